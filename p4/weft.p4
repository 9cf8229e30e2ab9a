// In-network aggregation of gradients: Weft's slot machine as a switch's pipeline (PROTOCOL section
// 11). This file is the control flow; what each stage decides is in the file of its name.

#include "v1model.p4"
#include "sizes.p4"
#include "lanes.p4"
#include "reasons.p4"
#include "headers.p4"
#include "bank.p4"
#include "parser.p4"
#include "classify.p4"
#include "quota.p4"
#include "member.p4"
#include "credit.p4"
#include "identity.p4"
#include "op.p4"
#include "bitmap.p4"
#include "next_step.p4"
#include "accumulate.p4"
#include "counter.p4"
#include "bridge.p4"
#include "address.p4"

control WeftIngress(inout headers_t hdr, inout meta_t meta, STANDARD) {
    Classify() classify;
    Identity() identity;
    Op() op;
    Bitmap() bitmap;
    NextStep() next_step;
    Accumulate() accumulate;
    Counter() count;
    Bridge() forward;

    action store() {
        STORE_BANK
    }

    apply {
        classify.apply(hdr, meta, standard);
        if (meta.reason == NONE) {
            if (meta.class == CLASS_DATA) {
                identity.apply(hdr, meta, standard);
            } else if (meta.class == CLASS_OP) {
                op.apply(hdr, meta);
            }
        }
        if (meta.has_bank == 1 && (meta.index >= BANKS || meta.other >= BANKS)) {
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
        if (meta.class == CLASS_BRIDGE || meta.class == CLASS_CPU) {
            if (meta.reason == NONE) {
                forward.apply(hdr, meta, standard);
            } else {
                DROP
            }
        } else if (meta.class == CLASS_OP && meta.reason == NONE) {
            TO_PORT(CPU_PORT)
        } else if (meta.class == CLASS_DATA && meta.to_sender + meta.to_members
                   + meta.to_server + meta.to_replica != 0) {
            TO_GROUP(meta.scope + 2)
        } else {
            DROP
        }
        count.apply(meta);
    }
}

control WeftEgress(inout headers_t hdr, inout meta_t meta, STANDARD) {
    Address() address;

    apply {
        if (meta.class == CLASS_DATA) {
            address.apply(hdr, meta, standard);
        } else if (meta.class == CLASS_OP) {
            hdr.op.op = hdr.op.op | OP_ECHO;
            hdr.op.count = 0;
            hdr.vec.setInvalid();
            CUT_TO(ETHERNET_BYTES + OP_BYTES)
        } else if (GOES_OUT == CAME_IN) {
            meta.class = CLASS_DROP;
        }
        if (meta.class == CLASS_DROP) {
            DROP
        }
    }
}

PIPELINE(WeftParser, WeftIngress, WeftEgress, WeftDeparser)
