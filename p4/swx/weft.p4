// The same stages as ../weft.p4 for DPDK's SWX pipeline, by the Portable NIC Architecture. This file
// is the control flow; a stage that the target needs otherwise is beside it, all others are shared.
//
// The target keeps metadata from one pass of a frame to the next and from one frame to the next:
// the first is what `Address` builds on, the second is why the first pass begins with `begin`.

#include "swx.p4"
#include "sizes.p4"
#include "../lanes.p4"
#include "../reasons.p4"
#include "../headers.p4"
#include "../bank.p4"
#include "parser.p4"
#include "../classify.p4"
#include "../quota.p4"
#include "../member.p4"
#include "../credit.p4"
#include "../identity.p4"
#include "../op.p4"
#include "../bitmap.p4"
#include "../next_step.p4"
#include "accumulate.p4"
// The architecture has a Counter of its own.
#define Counter Record
#include "../counter.p4"
#undef Counter
#include "address.p4"
#include "bridge.p4"

control WeftMain(inout headers_t hdr, inout meta_t meta, STANDARD,
                 inout pna_main_output_metadata_t out_) {
    Classify() classify;
    Identity() identity;
    Op() op;
    Bitmap() bitmap;
    NextStep() next_step;
    Accumulate() accumulate;
    Record() count;
    Address() address;
    Bridge() forward;

    // All that a stage may read before another wrote it. By a table, since the compiler would carry
    // some of these constants past a table that writes the field.
    action begin() {
        meta.checksum = 0;
        meta.payload_bytes = 0;
        meta.kind = 0;
        meta.retransmit = 0;
        meta.color = 0;
        meta.lease = LEASE_NONE;
        meta.scope = 0;
        meta.lease_epoch = 0;
        meta.generation = 0;
        meta.mask = 0;
        meta.base = 0;
        meta.window_mask = 0;
        meta.window = 0;
        meta.chunks = 0;
        meta.type_op = 0;
        meta.exponent = 0;
        meta.exponent_fixed = 0;
        meta.row_index = 0;
        meta.replicate = 0;
        meta.rank = 0;
        meta.peer_cookie = 0;
        meta.is_at_home = 0;
        meta.has_bank = 0;
        meta.has_lanes = 0;
        meta.is_max = 0;
        meta.writes_bank = 0;
        meta.enters = 0;
        meta.to_sender = SEND_NOTHING;
        meta.to_members = SEND_NOTHING;
        meta.to_server = SEND_NOTHING;
        meta.to_replica = 0;
        meta.echoes_cookie = 0;
        meta.outcome = 0;
        meta.state_members = 0;
        meta.sum_flags = 0;
    }
    table start {
        actions = { begin; }
        default_action = begin();
    }
    // The target takes a mirror session from a table's data only: each is listed as itself.
    action clone(bit<16> session) {
        TO_SESSION(session)
    }
    table clones {
        key = { COPY_SESSION : exact @name("session"); }
        actions = { clone; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    action store() {
        STORE_BANK
    }
    action charge_strangers() {
        CHARGE(cpu_meter, 0, meta.color)
    }
    action echo() {
        hdr.op.op = hdr.op.op | OP_ECHO;
        hdr.op.count = 0;
        hdr.vec.setInvalid();
    }

    apply {
        if (PASS == 0) {
            start.apply();
            classify.apply(hdr, meta, standard);
            // Extraction does not stop at a frame's end.
            REFUSE_IF(FRAME_BYTES < ETHERNET_BYTES, REASON_LENGTH)
            if (meta.class == CLASS_OP) {
                REFUSE_IF(FRAME_BYTES < ETHERNET_BYTES + OP_BYTES, REASON_LENGTH)
                REFUSE_IF(hdr.vec.isValid() && FRAME_BYTES < ETHERNET_BYTES + OP_BYTES + VECTOR_BYTES,
                          REASON_LENGTH)
            }
            if (meta.reason == NONE) {
                if (meta.class == CLASS_DATA) {
                    identity.apply(hdr, meta, standard);
                } else if (meta.class == CLASS_OP) {
                    op.apply(hdr, meta);
                }
            }
            if (meta.has_bank == 1 && (meta.index > BANKS - 1 || meta.other > BANKS - 1)) {
                meta.has_bank = 0;
                meta.reason = REASON_LENGTH;
            }
            if (meta.has_bank == 1) {
                bitmap.apply(hdr, meta);
                next_step.apply(hdr, meta);
                if (meta.has_lanes == 1) {
                    accumulate.apply(hdr, meta);
                }
                if (meta.writes_bank == 1) {
                    store();
                }
            }
            if (meta.class == CLASS_CPU && meta.reason == NONE) {
                charge_strangers();
                REFUSE_IF(meta.color == RED, REASON_STRANGERS_QUOTA)
            }
            count.apply(meta);
            if (meta.reason != NONE && meta.class != CLASS_DATA) {
                meta.class = CLASS_DROP;
            }
        }
        TO_PORT(SINK_PORT)
        COPY_SESSION = NO_SESSION;
        if (meta.class == CLASS_DATA) {
            if (meta.to_sender + meta.to_members + meta.to_server + meta.to_replica != 0) {
                address.apply(hdr, meta, standard);
            }
        } else if (meta.class == CLASS_OP) {
            echo();
            COPY_SESSION = ECHO_SESSION;
        } else if (meta.class != CLASS_DROP) {
            forward.apply(hdr, meta, standard);
        }
        clones.apply();
    }
}

control NoPre(in headers_t hdr, inout meta_t meta, in pna_pre_input_metadata_t standard,
              inout pna_pre_output_metadata_t out_) {
    apply { }
}

PNA_NIC(WeftParser(), NoPre(), WeftMain(), WeftDeparser()) main;
