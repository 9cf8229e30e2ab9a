// What comes of a frame: proto/vectors/slot.toml, the cells of `root` and `whole`, and seeds.
// Decides what the bank will be, what its lanes do, what is counted, and what goes to whom.

control NextStep(inout headers_t hdr, inout meta_t meta) {
    // The bank begins anew with this contribution, which takes the place of the lanes.
    action claim() {
        meta.writes_bank = 1;
        meta.bank_state = STATE_COLLECTING;
        meta.bank_members = hdr.weft.members;
        meta.bank_exponent = hdr.weft.exponent;
        meta.bank_flags = meta.flags;
        meta.has_lanes = 1;
        meta.keep = 0;
        meta.take = 0xffffffff;
        meta.is_max = 0;
    }
    action add() {
        meta.writes_bank = 1;
        meta.bank_members = meta.bank_members | hdr.weft.members;
        meta.bank_flags = meta.bank_flags | meta.flags;
        meta.has_lanes = 1;
        meta.keep = 0xffffffff;
        meta.take = 0xffffffff;
    }
    // The lanes as they are, into the frame.
    action show() {
        hdr.vec.setValid();
        meta.has_lanes = 1;
        meta.keep = 0xffffffff;
        meta.take = 0;
        meta.is_max = 0;
    }
    action state_of_bank() {
        meta.outcome = OUTCOME_HAVE;
        meta.state_members = meta.bank_members;
    }
    action have() {
        meta.to_sender = SEND_STATE;
        state_of_bank();
    }
    action stale_step() {
        meta.to_sender = SEND_STATE;
        meta.outcome = OUTCOME_STALE;
        meta.state_members = 0;
        meta.reason = REASON_STALE_STEP;
    }
    action send_sum() {
        meta.writes_bank = 1;
        meta.bank_state = STATE_SENT;
        meta.to_server = SEND_SUM;
        meta.to_replica = meta.replicate;
        meta.sum_flags = meta.bank_flags;
    }

    apply {
        meta.flags = 0;
        if (meta.class == CLASS_DATA) {
            meta.flags = hdr.weft.flags_outcome & FLAGS_INHERITED;
            if (hdr.ipv4.tos & ECN_MASK == ECN_CE) {
                meta.flags = meta.flags | FLAG_CONGESTION;
            }
            if (meta.type_op & OPERATION_MASK == OPERATION_MAX) {
                meta.is_max = 1;
            }
        }

        if (meta.class == CLASS_OP) {
            if (meta.seen == SEEN_CLAIMABLE) {
                meta.writes_bank = 1;
                meta.bank_state = hdr.op.state;
                meta.bank_members = hdr.op.members;
                meta.bank_exponent = hdr.op.exponent;
                meta.bank_flags = 0;
                meta.bank_credit = 0;
                if (hdr.vec.isValid()) {
                    meta.has_lanes = 1;
                    meta.take = 0xffffffff;
                }
            }
        } else if (meta.lease == LEASE_WINDOWED) {
            if (meta.seen == SEEN_FOREIGN) {
                meta.happened = TRANSITION_REFUSE_FOREIGN;
                stale_step();
            } else if (meta.seen == SEEN_CLAIMABLE) {
                if (meta.kind == KIND_CONTRIB) {
                    claim();
                    meta.happened = TRANSITION_CLAIM;
                } else {
                    have();
                    meta.state_members = 0;
                    meta.happened = TRANSITION_STATUS_UNCLAIMED;
                }
            } else if (meta.bank_state == STATE_VIRTUAL) {
                // Every member said that it holds this sum, so nobody can ask for it.
                stale_step();
            } else if (meta.bank_state == STATE_ANSWERED) {
                meta.happened = TRANSITION_REPEAT_ANSWERED;
                if (meta.kind == KIND_CONTRIB) {
                    meta.reason = REASON_DUPLICATE;
                }
#if ELEMENTS > GROWTH_ELEMENTS
                if (!hdr.vec.isValid()) {
                    // The answer is too long for this frame: it shall come as a contribution.
                    have();
                    meta.state_members = meta.bank_members & ~hdr.weft.members;
                } else
#endif
                {
                    show();
                    meta.to_sender = SEND_ANSWER;
                    meta.sum_flags = meta.bank_flags;
                }
            } else if (meta.seen == SEEN_REPEAT) {
                have();
                meta.happened = TRANSITION_REPEAT_COLLECTING;
                if (meta.kind == KIND_CONTRIB) {
                    meta.reason = REASON_DUPLICATE;
                }
            } else if (meta.kind == KIND_STATUS) {
                have();
            } else if (hdr.weft.exponent != meta.bank_exponent) {
                meta.reason = REASON_EXPONENT;
            } else {
                add();
                meta.happened = TRANSITION_ADD;
            }
            // Complete: members == mask; nothing is counted.
            if (meta.writes_bank == 1 && meta.bank_members == meta.mask) {
                meta.bank_state = STATE_ANSWERED;
                meta.happened_too = TRANSITION_COMPLETE_ROOT;
                meta.to_members = SEND_ANSWER;
                meta.sum_flags = meta.bank_flags;
            }
        } else if (meta.kind == KIND_CONTRIB) {
            if (meta.bank_state == STATE_SENT) {
                have();
                meta.happened = WHOLE_REPEAT_SENT;
                meta.reason = REASON_DUPLICATE;
            } else if (meta.seen == SEEN_REPEAT) {
                have();
                meta.happened = WHOLE_REPEAT_COLLECTING;
                meta.reason = REASON_DUPLICATE;
            } else {
                meta.enters = 1;
                if (meta.seen == SEEN_CLAIMABLE) {
                    claim();
                    meta.happened = WHOLE_STORE;
                } else {
                    add();
                    meta.happened = WHOLE_ADD;
                }
                have();
                if (meta.bank_members == meta.mask && meta.bank_credit == 1) {
                    meta.happened_too = WHOLE_SEND_ON_CONTRIBUTION;
                    send_sum();
                }
            }
        } else {
            // A credit. `mask` is what both the row and the server leave of it.
            meta.to_server = SEND_STATE;
            state_of_bank();
            if (meta.mask == 0 || meta.bank_members & ~meta.mask != 0) {
                meta.outcome = OUTCOME_STALE;
                meta.happened = WHOLE_CREDIT_STALE;
            } else if (meta.bank_state == STATE_SENT) {
                meta.happened = WHOLE_SEND_AGAIN;
            } else if (meta.bank_state == STATE_COLLECTING && meta.bank_members == meta.mask) {
                meta.happened = WHOLE_SEND_ON_CREDIT;
            } else if (meta.bank_state == STATE_EMPTY) {
                meta.happened = WHOLE_CREDIT_EMPTY;
            } else {
                meta.happened = WHOLE_CREDIT_COLLECTING;
            }
#if ELEMENTS > GROWTH_ELEMENTS
            if (!hdr.vec.isValid() && (meta.happened == WHOLE_SEND_AGAIN
                                       || meta.happened == WHOLE_SEND_ON_CREDIT)) {
                // The sum is too long for this frame: the server shall pad it.
                meta.happened = WHOLE_CREDIT_COLLECTING;
            }
#endif
            if (meta.happened == WHOLE_SEND_ON_CREDIT) {
                show();
                send_sum();
            } else if (meta.happened == WHOLE_SEND_AGAIN) {
                show();
                send_sum();
                meta.to_replica = 0;
                meta.sum_flags = meta.bank_flags | FLAG_RETRANSMIT;
            } else if (meta.happened != WHOLE_CREDIT_STALE) {
                meta.writes_bank = 1;
                meta.bank_credit = 1;
            }
        }
    }
}
