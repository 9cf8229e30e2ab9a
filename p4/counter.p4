// The record: what was refused and why, what slots went through, how far members have come. It only
// counts; nothing decides on it.

COUNTER(REASONS, drops)
COUNTER(SCOPES_MAX * TRANSITIONS, transitions)
COUNTER(ROWS_MAX * RANKS_MAX, progress)

control Counter(in meta_t meta) {
    apply {
        if (meta.reason != NONE) {
            COUNT(drops, (bit<32>)meta.reason)
        }
        if (meta.happened != NONE) {
            COUNT(transitions, (bit<32>)meta.scope * TRANSITIONS + (bit<32>)meta.happened)
        }
        if (meta.happened_too != NONE) {
            COUNT(transitions, (bit<32>)meta.scope * TRANSITIONS + (bit<32>)meta.happened_too)
        }
        if (meta.enters == 1) {
            COUNT(progress, (bit<32>)meta.row_index * RANKS_MAX + (bit<32>)meta.rank)
        }
    }
}
