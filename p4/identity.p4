// Of which row a frame is, and where its bank lies. Who speaks is for member.p4 and credit.p4 to
// say; what passes has a bank, what does not has a reason.

control Identity(inout headers_t hdr, inout meta_t meta, STANDARD) {
    Member() by_member;
    Credit() by_server;

    action windowed(bit<32> lease_epoch, bit<16> generation, bit<16> scope, bit<64> mask,
                    bit<32> base, bit<32> window_mask, bit<32> window, bit<32> chunks,
                    bit<8> type_op, bit<8> exponent, bit<8> exponent_fixed) {
        meta.lease = LEASE_WINDOWED;
        meta.lease_epoch = lease_epoch;
        meta.generation = generation;
        meta.scope = scope;
        meta.mask = mask;
        meta.base = base;
        meta.window_mask = window_mask;
        meta.window = window;
        meta.chunks = chunks;
        meta.type_op = type_op;
        meta.exponent = exponent;
        meta.exponent_fixed = exponent_fixed;
    }
    action whole(bit<32> lease_epoch, bit<16> generation, bit<16> scope, bit<64> mask,
                 bit<32> base, bit<32> chunks, bit<8> type_op, bit<8> exponent,
                 bit<16> row_index, bit<8> replicate) {
        meta.lease = LEASE_WHOLE;
        meta.lease_epoch = lease_epoch;
        meta.generation = generation;
        meta.scope = scope;
        meta.mask = mask;
        meta.base = base;
        meta.chunks = chunks;
        meta.type_op = type_op;
        meta.exponent = exponent;
        meta.exponent_fixed = 1;
        meta.row_index = row_index;
        meta.replicate = replicate;
    }
    table rows {
        key = {
            hdr.weft.job : exact @name("job");
            hdr.weft.row : exact @name("row");
        }
        actions = { windowed; whole; NoAction; }
        default_action = NoAction();
        size = ROWS_MAX;
    }

    action push_job(bit<16> scope) {
        meta.lease = LEASE_PUSH;
        meta.scope = scope;
    }
    action other_job() {
        meta.reason = REASON_UNKNOWN_GROUP;
    }
    action no_job() {
        meta.reason = REASON_UNKNOWN_JOB;
    }
    table jobs {
        key = { hdr.weft.job : exact @name("job"); }
        actions = { push_job; other_job; no_job; }
        default_action = no_job();
        size = SCOPES_MAX;
    }

    action load_gone() {
        READ(gone, meta.gone, (bit<32>)meta.row_index)
        READ(gone_epoch, meta.gone_epoch, (bit<32>)meta.row_index)
    }
    apply {
        rows.apply();
        if (meta.lease == LEASE_NONE) {
            if (meta.kind == KIND_PULL) {
                // Of a group that is not here: the agent's engine answers.
                meta.class = CLASS_CPU;
            } else {
                jobs.apply();
            }
        }
        REFUSE_IF(meta.scope >= SCOPES_MAX || meta.row_index >= ROWS_MAX, REASON_UNKNOWN_GROUP)
        if (meta.class == CLASS_DATA && meta.reason == NONE) {
            if (meta.lease == LEASE_WHOLE) {
                load_gone();
                if (meta.gone_epoch != meta.lease_epoch) {
                    meta.gone = 0;
                }
                meta.mask = meta.mask & ~meta.gone;
            }
            if (meta.kind == KIND_PULL) {
                by_server.apply(hdr, meta);
            } else {
                by_member.apply(hdr, meta);
            }
        }
        meta.step = hdr.weft.chunk;
        if (meta.lease == LEASE_WINDOWED) {
            meta.index = meta.base + (hdr.weft.chunk & meta.window_mask)
                + (hdr.weft.chunk & meta.window_mask);
            meta.other = meta.index + 1;
            if (hdr.weft.chunk & meta.window != 0) {
                meta.other = meta.index;
                meta.index = meta.index + 1;
            }
        } else {
            meta.index = meta.base + hdr.weft.chunk;
            meta.other = meta.index;
        }
    }
}
