// A frame that has passed classify.p4, or an op: what the rest of the pipeline may meet. Less is
// assumed of it than is so.

control Classify(inout headers_t hdr, inout meta_t meta, STANDARD) {
    apply {
        meta.reason = NONE;
        meta.happened = NONE;
        meta.happened_too = NONE;
        if (hdr.op.isValid()) {
            meta.class = CLASS_OP;
        } else {
            meta.class = CLASS_DATA;
            meta.kind = hdr.weft.version_kind & KIND_MASK;
            testgen_assume(meta.kind == KIND_CONTRIB || meta.kind == KIND_STATUS
                           || meta.kind == KIND_PULL);
        }
    }
}
