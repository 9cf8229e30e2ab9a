// What the agent tells its switch: a life to be known by, and what banks begin with. Each op is
// echoed with the life, so that the agent learns in the same breath that it was done, and by whom.

control Op(inout headers_t hdr, inout meta_t meta) {
    apply {
        REFUSE_IF(hdr.op.op != OP_SET_LIFE && hdr.op.op != OP_ASK_LIFE && hdr.op.op != OP_SEED,
                  REASON_KIND)
        REFUSE_IF(hdr.op.count != 0 && !hdr.vec.isValid(), REASON_LENGTH)
        if (meta.reason == NONE) {
            if (hdr.op.op == OP_SET_LIFE) {
                WRITE(life, 0, hdr.op.life)
            }
            READ(life, hdr.op.life, 0)
            if (hdr.op.op == OP_SEED) {
                meta.has_bank = 1;
                meta.index = hdr.op.index;
                meta.other = hdr.op.index;
                meta.step = hdr.op.step;
                meta.lease_epoch = hdr.op.lease_epoch;
            }
        }
    }
}
