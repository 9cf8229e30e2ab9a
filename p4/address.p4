// Out. A verdict leaves as one multicast to its scope; each copy is what the verdict has for its
// id, readdressed, or nothing. Field by field what the Rust engine sends.

control Address(inout headers_t hdr, inout meta_t meta, STANDARD) {
    action copy(bit<64> bit_, bit<48> dst_mac, bit<48> src_mac, bit<32> dst_ip, bit<32> src_ip,
                bit<16> dst_port, bit<16> src_port, bit<32> cookie, bit<8> flags) {
        meta.copy_bit = bit_;
        meta.copy_cookie = cookie;
        meta.copy_flags = flags;
        hdr.ethernet.dst = dst_mac;
        hdr.ethernet.src = src_mac;
        hdr.ipv4.dst = dst_ip;
        hdr.ipv4.src = src_ip;
        hdr.udp.dst = dst_port;
        hdr.udp.src = src_port;
    }
    action no_copy() {
        meta.class = CLASS_DROP;
    }
    table copies {
        key = {
            meta.scope : exact @name("scope");
            COPY_ID : exact @name("id");
        }
        actions = { copy; no_copy; }
        default_action = no_copy();
        size = 4096;
    }

    action lose_copy() {
        meta.class = CLASS_DROP;
    }
    table faults_out {
        key = {
            meta.kind : exact @name("kind");
            meta.id : exact @name("id");
            meta.fault_chunk : exact @name("chunk");
            meta.retransmit : exact @name("retransmit");
        }
        actions = { lose_copy; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action state() {
        hdr.vec.setInvalid();
        hdr.weft.version_kind = VERSION_1 + KIND_STATE;
        hdr.weft.flags_outcome = meta.outcome;
        hdr.weft.members = meta.state_members;
        hdr.udp.len = HEADER_UDP_BYTES;
    }
    // A push group's STATE has no element fields.
    action plain() {
        hdr.weft.type_op = 0;
        hdr.weft.exponent = 0;
        hdr.weft.count = 0;
    }
    action elements() {
        hdr.weft.flags_outcome = meta.sum_flags | meta.copy_flags;
        hdr.weft.type_op = meta.type_op;
        hdr.weft.exponent = meta.bank_exponent;
        hdr.weft.count = ELEMENTS;
        hdr.weft.members = meta.bank_members;
        hdr.udp.len = VECTOR_UDP_BYTES;
    }
    action wrap() {
        hdr.weft.crc = 0;
        hdr.ipv4.version_ihl = 0x45;
        hdr.ipv4.tos = ECN_ECT0;
        hdr.ipv4.len = hdr.udp.len + IPV4_BYTES;
        hdr.ipv4.id = 0;
        hdr.ipv4.fragment = DO_NOT_FRAGMENT;
        hdr.ipv4.ttl = HOP_LIMIT;
        hdr.ipv4.protocol = PROTOCOL_UDP;
        hdr.ipv4.checksum = 0;
        hdr.udp.checksum = 0;
        CUT_TO((bit<32>)hdr.ipv4.len + ETHERNET_BYTES)
    }
    action sum_ipv4() {
        CHECKSUM(hdr.ipv4.checksum, IPV4_WORDS)
    }
    action sum_header() {
        CHECKSUM(hdr.udp.checksum, HEADER_WORDS)
    }
    action sum_vector() {
        CHECKSUM(hdr.udp.checksum, VECTOR_WORDS)
    }

    apply {
        meta.id = COPY_ID;
        copies.apply();
        meta.sends = SEND_NOTHING;
        if (meta.id == 64) {
            meta.sends = meta.to_server;
        } else if (meta.id == 65) {
            if (meta.to_replica == 1) {
                meta.sends = SEND_SUM;
            }
        } else if (meta.to_sender != SEND_NOTHING) {
            if (meta.copy_bit == hdr.weft.members) {
                meta.sends = meta.to_sender;
            }
        } else if (meta.copy_bit & meta.mask != 0) {
            meta.sends = meta.to_members;
        }
        if (meta.sends == SEND_NOTHING) {
            meta.class = CLASS_DROP;
        }
        if (meta.class == CLASS_DATA) {
            if (meta.sends == SEND_STATE) {
                state();
                if (meta.lease != LEASE_WINDOWED) {
                    plain();
                }
            } else {
                hdr.weft.version_kind = VERSION_1 + KIND_CONTRIB;
                if (meta.sends == SEND_ANSWER) {
                    hdr.weft.version_kind = VERSION_1 + KIND_ANSWER;
                }
                elements();
            }
            if (meta.echoes_cookie == 0) {
                hdr.weft.cookie = meta.copy_cookie;
            }
            wrap();
            sum_ipv4();
            if (hdr.vec.isValid()) {
                sum_vector();
            } else {
                sum_header();
            }
            // 0 would say that there is none.
            if (hdr.udp.checksum == 0) {
                hdr.udp.checksum = 0xffff;
            }
            meta.kind = hdr.weft.version_kind & KIND_MASK;
            meta.retransmit = 0;
            if (hdr.weft.flags_outcome & FLAG_RETRANSMIT != 0) {
                meta.retransmit = 1;
            }
            faults_out.apply();
        }
    }
}
