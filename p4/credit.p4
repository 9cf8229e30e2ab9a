// PULL: source, cookie, integrity, quota, group, chunk, in the order of SPEC#push. A credit narrows
// the mask of its row, for good; one that names no slot is answered STALE.

control Credit(inout headers_t hdr, inout meta_t meta) {
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
    action server(bit<32> cookie, bit<32> ip, bit<16> port) {
        peer(cookie, ip, port);
    }
    table servers {
        key = { meta.scope : exact @name("scope"); }
        actions = { server; no_peer; }
        default_action = no_peer();
        size = SCOPES_MAX;
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
    action store_gone() {
        WRITE(gone, (bit<32>)meta.row_index, meta.gone)
        WRITE(gone_epoch, (bit<32>)meta.row_index, meta.lease_epoch)
    }

    action answer_server_stale() {
        meta.to_server = SEND_STATE;
        meta.outcome = OUTCOME_STALE;
        meta.state_members = 0;
        meta.happened = WHOLE_CREDIT_STALE;
    }

    apply {
        REFUSE_IF(meta.lease == LEASE_WINDOWED, REASON_KIND)
        if (meta.reason == NONE) {
            servers.apply();
        }
        // Credits of anybody else are no frames of this box.
        REFUSE_IF(meta.is_at_home == 0, REASON_KIND)
        REFUSE_IF(hdr.weft.cookie & EPOCH_MASK != meta.peer_cookie & EPOCH_MASK,
                  REASON_STALE_EPOCH)
        REFUSE_IF(hdr.weft.cookie != meta.peer_cookie, REASON_BAD_COOKIE)
        if (meta.reason == NONE) {
            if (hdr.vec.isValid()) {
                sum_vector();
            } else {
                sum_header();
            }
            REFUSE_IF(hdr.udp.checksum == 0 || meta.checksum != 0, REASON_INTEGRITY)
        }
        if (meta.reason == NONE) {
            charge_job();
            REFUSE_IF(meta.color == RED, REASON_OVER_QUOTA)
        }
        if (meta.reason == NONE) {
            if (hdr.weft.generation != meta.generation || hdr.weft.chunk >= meta.chunks) {
                answer_server_stale();
            } else {
                meta.has_bank = 1;
                // The mask only ever shrinks; a credit that leaves nobody changes nothing.
                if (meta.mask & hdr.weft.members != 0 && meta.mask & ~hdr.weft.members != 0) {
                    meta.gone = meta.gone | (meta.mask & ~hdr.weft.members);
                    meta.happened_too = WHOLE_NARROW;
                    store_gone();
                }
                meta.mask = meta.mask & hdr.weft.members;
            }
        }
    }
}
