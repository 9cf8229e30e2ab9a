// What one pass of the pipeline keeps, whatever it finds in memory, tables and frame, so that it
// always holds: from what is assumed in front of a pass the same follows behind it. Each
// testgen_assert is one sentence; p4testgen looks for what breaks it, over all paths.

#include "weft.p4"

parser ProofParser(packet_in packet, out headers_t hdr, inout meta_t meta, STANDARD) {
    state start {
        packet.extract(meta.memory);
        transition select(meta.memory.is_op) {
            1: op;
            default: data;
        }
    }
    state op {
        packet.extract(hdr.op);
        transition vector;
    }
    state data {
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.weft);
        transition vector;
    }
    state vector {
        transition select(meta.memory.has_vector) {
            1: vec;
            default: accept;
        }
    }
    state vec {
        packet.extract(hdr.vec);
        transition accept;
    }
}

control ProofIngress(inout headers_t hdr, inout meta_t meta, STANDARD) {
    WeftIngress() ingress;
    memory_t before;
    // The bank held contributions to the sum that the frame means.
    bool was_begun;
    bool had_vector;
    bit<32> element;
    bit<32> sum;
    bit<64> members;

    apply {
        testgen_assume(standard.parser_error == error.NoError);
        before = meta.memory;
        had_vector = false;
        element = 0;
        if (hdr.vec.isValid()) {
            had_vector = true;
            element = hdr.vec.e00;
        }
        meta.wrote_tag_epoch = NOT_WRITTEN;
        meta.wrote_bank_members = NOT_WRITTEN;
        meta.wrote_lane_00 = NOT_WRITTEN;

        ingress.apply(hdr, meta, standard);

        // No slot of another job: what is written is the bank that was asked for, inside the
        // arena, and its tag is the lease's from then on.
        if (meta.wrote_tag_epoch != NOT_WRITTEN) {
            testgen_assert(meta.wrote_tag_epoch == meta.index && meta.index < BANKS);
            testgen_assert(meta.wrote_bank_members == meta.index);
            testgen_assert(meta.memory.own_tag_epoch == meta.lease_epoch);
            testgen_assert(meta.reason == NONE);
        }
        if (meta.wrote_lane_00 != NOT_WRITTEN) {
            testgen_assert(meta.wrote_lane_00 == meta.index && meta.index < BANKS);
        }
        // No lane without a vector, and none whose bank is not claimed or added to.
        if (meta.memory.own_lane_00 != before.own_lane_00) {
            testgen_assert(had_vector && meta.wrote_tag_epoch != NOT_WRITTEN);
        }
        if (meta.class == CLASS_OP) {
            if (meta.wrote_tag_epoch != NOT_WRITTEN) {
                // A seed takes nothing from a sum that is done.
                testgen_assert(before.own_tag_epoch != hdr.op.lease_epoch
                               || before.own_bank_state == STATE_COLLECTING);
                testgen_assert(meta.index == hdr.op.index);
            }
        } else if (meta.has_bank == 1) {
            was_begun = before.own_tag_epoch == meta.lease_epoch
                        && before.own_bank_state != STATE_EMPTY
                        && (meta.lease == LEASE_WHOLE || before.own_tag_step == meta.step);
            // What a credit found EMPTY and left so has no members.
            testgen_assume(before.own_tag_epoch != meta.lease_epoch
                           || before.own_bank_state != STATE_EMPTY
                           || before.own_bank_members == 0);
            testgen_assume(before.own_bank_credit <= 1);
            members = before.own_bank_members;
            sum = before.own_lane_00;
            if (!was_begun) {
                members = 0;
            }
            if (meta.kind == KIND_CONTRIB && meta.wrote_tag_epoch != NOT_WRITTEN) {
                // A lane is the sum of what its members contributed, each once.
                testgen_assert(members & hdr.weft.members == 0);
                members = members | hdr.weft.members;
                if (!was_begun) {
                    sum = element;
                } else if (meta.type_op & OPERATION_MASK != OPERATION_MAX) {
                    sum = sum + element;
                } else if ((int<32>)element > (int<32>)sum) {
                    sum = element;
                }
            } else {
                testgen_assert(meta.memory.own_lane_00 == before.own_lane_00);
            }
            if (meta.wrote_tag_epoch != NOT_WRITTEN) {
                testgen_assert(meta.memory.own_lane_00 == sum);
                testgen_assert(meta.memory.own_bank_members == members);
            }
            if (meta.lease == LEASE_WINDOWED) {
                // Within the row's banks, where the row is as an agent writes it.
                testgen_assume(meta.window != 0 && meta.window <= BANKS / 2
                               && meta.window & (meta.window - 1) == 0
                               && meta.window_mask == meta.window - 1
                               && meta.base <= BANKS - 2 * meta.window);
                testgen_assert(meta.index - meta.base < 2 * meta.window);
                testgen_assert(meta.other - meta.base < 2 * meta.window);
                // It is full exactly when its result leaves: assumed of what is found, it holds of
                // what is left.
                testgen_assume(!was_begun || before.own_bank_state == STATE_COLLECTING
                               || before.own_bank_state == STATE_ANSWERED
                               || before.own_bank_state == STATE_VIRTUAL);
                testgen_assume(!was_begun || before.own_bank_state != STATE_ANSWERED
                               || before.own_bank_members == meta.mask);
                if (meta.wrote_tag_epoch != NOT_WRITTEN) {
                    testgen_assert((members == meta.mask) == (meta.to_members == SEND_ANSWER));
                    testgen_assert((members == meta.mask)
                                   == (meta.memory.own_bank_state == STATE_ANSWERED));
                    testgen_assert((members != meta.mask)
                                   == (meta.memory.own_bank_state == STATE_COLLECTING));
                } else {
                    testgen_assert(meta.to_members == SEND_NOTHING);
                }
                if (meta.to_sender == SEND_ANSWER) {
                    testgen_assert(members == meta.mask);
                }
                testgen_assert(meta.to_server == SEND_NOTHING && meta.to_replica == SEND_NOTHING);
            } else {
                testgen_assume(meta.chunks <= BANKS && meta.base <= BANKS - meta.chunks);
                testgen_assert(meta.index - meta.base < meta.chunks);
                // Credits narrow the mask, so what was full and sent holds at least the mask.
                testgen_assume(!was_begun || before.own_bank_state == STATE_COLLECTING
                               || before.own_bank_state == STATE_SENT);
                testgen_assume(!was_begun || before.own_bank_state != STATE_SENT
                               || meta.mask & ~before.own_bank_members == 0);
                if (meta.wrote_tag_epoch != NOT_WRITTEN) {
                    testgen_assert(meta.memory.own_bank_state != STATE_SENT
                                   || members == meta.mask);
                    // Full, and a credit is there.
                    testgen_assert(members != meta.mask || meta.memory.own_bank_state == STATE_SENT
                                   || meta.memory.own_bank_credit == 0);
                    testgen_assert((meta.memory.own_bank_state == STATE_SENT)
                                   == (meta.to_server == SEND_SUM));
                }
                if (meta.to_server == SEND_SUM) {
                    testgen_assert(members == meta.mask && meta.mask != 0);
                } else {
                    testgen_assert(meta.to_replica == SEND_NOTHING);
                }
                testgen_assert(meta.to_members == SEND_NOTHING);
            }
        } else {
            testgen_assert(meta.wrote_tag_epoch == NOT_WRITTEN);
            testgen_assert(meta.to_members == SEND_NOTHING && meta.to_server != SEND_SUM);
        }
    }
}

control NoEgress(inout headers_t hdr, inout meta_t meta, STANDARD) {
    apply { }
}
control NoChecksum(inout headers_t hdr, inout meta_t meta) {
    apply { }
}
control NoDeparser(packet_out packet, in headers_t hdr) {
    apply { }
}

V1Switch(ProofParser(), NoChecksum(), ProofIngress(), NoEgress(), NoChecksum(), NoDeparser()) main;
