// Seen already? From the tag and the contributor bitmap, never from the bitmap alone (PROTOCOL
// section 1 has the counterexample), and whether a step may take its bank (the successor rule).

control Bitmap(inout headers_t hdr, inout meta_t meta) {
    action load() {
        LOAD_SLOT
    }

    apply {
        load();
        if (meta.bank_epoch != meta.lease_epoch) {
            meta.bank_state = STATE_EMPTY;
            meta.bank_members = 0;
            meta.bank_flags = 0;
            meta.bank_credit = 0;
        }
        if (meta.other_epoch != meta.lease_epoch) {
            meta.other_state = STATE_EMPTY;
        }
        meta.seen = SEEN_FOREIGN;
        if (meta.class == CLASS_OP) {
            // A seed takes the bank of another lease, or of the same step while that collects.
            if (meta.bank_epoch != meta.lease_epoch) {
                meta.seen = SEEN_CLAIMABLE;
            } else if (meta.bank_state == STATE_COLLECTING && meta.bank_step == meta.step) {
                meta.seen = SEEN_CLAIMABLE;
            }
        } else if (meta.lease == LEASE_WHOLE) {
            if (meta.bank_state == STATE_EMPTY) {
                meta.seen = SEEN_CLAIMABLE;
            } else if (meta.bank_members & hdr.weft.members != 0) {
                meta.seen = SEEN_REPEAT;
            } else {
                meta.seen = SEEN_NEW;
            }
        } else if (meta.bank_state != STATE_EMPTY && meta.bank_step == meta.step) {
            if (meta.bank_members & hdr.weft.members != 0) {
                meta.seen = SEEN_REPEAT;
            } else {
                meta.seen = SEEN_NEW;
            }
        } else if (meta.step < meta.window) {
            if (meta.bank_state == STATE_EMPTY && meta.other_state == STATE_EMPTY) {
                meta.seen = SEEN_CLAIMABLE;
            }
        } else if (meta.other_state >= STATE_SENT
                   && meta.other_step == meta.step - meta.window) {
            if (meta.bank_state == STATE_EMPTY || meta.bank_step < meta.step) {
                meta.seen = SEEN_CLAIMABLE;
            }
        }
    }
}
