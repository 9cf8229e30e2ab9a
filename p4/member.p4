// CONTRIB and STATUS: member, cookie, generation, source, quota, chunk, elements and integrity, in
// the order of SPEC#checks (for whole leases that of SPEC#push). STALE tells a member at its own
// address of a restart, or that its group is not here.

control Member(inout headers_t hdr, inout meta_t meta) {
    action peer(bit<32> cookie, bit<32> ip, bit<16> port) {
        meta.peer_cookie = cookie;
        meta.peer_ip = ip;
        meta.peer_port = port;
        if (hdr.ipv4.src == ip && hdr.udp.src == port) {
            meta.is_at_home = 1;
        }
    }
    action no_peer() {
        meta.reason = REASON_BAD_MEMBERS;
    }
    action member(bit<8> rank, bit<32> cookie, bit<32> ip, bit<16> port) {
        meta.rank = rank;
        peer(cookie, ip, port);
    }
    table members {
        key = {
            meta.scope : exact @name("scope");
            hdr.weft.members : exact @name("members");
        }
        actions = { member; no_peer; }
        default_action = no_peer();
        size = 4096;
    }

    // 0 where the datagram is as it was sent.
    action sum_header() {
        CHECKSUM(meta.checksum, HEADER_WORDS)
    }
    action sum_vector() {
        CHECKSUM(meta.checksum, VECTOR_WORDS)
    }

    action charge_job() {
        CHARGE(job_meter, (bit<32>)meta.scope, meta.color)
    }
    action charge_strangers() {
        CHARGE(cpu_meter, 0, meta.color)
    }

    action answer_stale() {
        meta.to_sender = SEND_STATE;
        meta.outcome = OUTCOME_STALE;
        meta.state_members = 0;
    }
    // Windowed rows judge the generation with the cookie, before they know where it is from.
    action echo_stale() {
        answer_stale();
        meta.echoes_cookie = 1;
    }

    apply {
        members.apply();
        REFUSE_IF(meta.lease == LEASE_WINDOWED && meta.mask & hdr.weft.members == 0,
                  REASON_BAD_MEMBERS)
        if (meta.reason == NONE) {
            REFUSE_IF(hdr.weft.cookie & EPOCH_MASK != meta.peer_cookie & EPOCH_MASK,
                      REASON_STALE_EPOCH)
            REFUSE_IF(hdr.weft.cookie != meta.peer_cookie, REASON_BAD_COOKIE)
            if (meta.reason != NONE && meta.is_at_home == 1) {
                charge_strangers();
                if (meta.color == RED) {
                    meta.reason = REASON_STRANGERS_QUOTA;
                } else {
                    echo_stale();
                }
            }
            REFUSE_IF(meta.lease == LEASE_WINDOWED && hdr.weft.generation != meta.generation,
                      REASON_STALE_GROUP)
            if (meta.reason == REASON_STALE_GROUP && meta.is_at_home == 1) {
                charge_job();
                if (meta.color == RED) {
                    meta.reason = REASON_OVER_QUOTA;
                } else {
                    echo_stale();
                }
            }
            REFUSE_IF(meta.is_at_home == 0, REASON_WRONG_SOURCE)
        }
        if (meta.reason == NONE) {
            charge_job();
            REFUSE_IF(meta.color == RED, REASON_OVER_QUOTA)
        }
        if (meta.reason == NONE && meta.lease != LEASE_WINDOWED) {
            // What became of a group its server tells.
            REFUSE_IF(meta.kind == KIND_STATUS, REASON_KIND)
            if (meta.reason == NONE) {
                REFUSE_IF(meta.lease == LEASE_PUSH, REASON_UNKNOWN_GROUP)
                REFUSE_IF(hdr.weft.generation != meta.generation, REASON_STALE_GROUP)
                REFUSE_IF(meta.mask & hdr.weft.members == 0, REASON_BAD_MEMBERS)
                if (meta.reason != NONE) {
                    answer_stale();
                    meta.happened = WHOLE_REFUSE_STALE;
                }
            }
        }
        REFUSE_IF(hdr.weft.chunk >= meta.chunks, REASON_CHUNK_OUT_OF_RANGE)
        if (meta.kind == KIND_CONTRIB) {
            REFUSE_IF(hdr.weft.count != ELEMENTS, REASON_ELEMENT_COUNT)
            REFUSE_IF(hdr.weft.type_op & TYPE_MASK != meta.type_op & TYPE_MASK,
                      REASON_ELEMENT_TYPE)
            REFUSE_IF(hdr.weft.type_op != meta.type_op, REASON_OPERATION)
            REFUSE_IF(meta.exponent_fixed == 1 && hdr.weft.exponent != meta.exponent,
                      REASON_EXPONENT)
            // BMv2 leaves the elements of an earlier frame in a vector that is not there.
            REFUSE_IF(!hdr.vec.isValid(), REASON_LENGTH)
        }
        if (meta.reason == NONE) {
            if (hdr.vec.isValid()) {
                sum_vector();
            } else {
                sum_header();
            }
            REFUSE_IF(hdr.udp.checksum == 0 || meta.checksum != 0, REASON_INTEGRITY)
        }
        if (meta.reason == NONE) {
            meta.has_bank = 1;
        }
    }
}
