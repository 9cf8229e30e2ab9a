// Out. The target has no multicast: each pass makes one copy, readdressed, sends it as a clone that
// is cut to its length, and keeps the frame for the pass after it. First the replica's and the
// server's, then the sender's, or one to each member, in a ring from the sender on. Field by field
// what the Rust engine sends.

// What the first pass judged by serves the later ones again.
#define COPY_SESSION meta.checksum
#define COPY_NEXT meta.listens
#define ELEMENTS_SUM meta.generation
#define PASSES meta.base

#define CLASS_FLOOD 5
#define ID_SERVER 64
#define ID_REPLICA 65

control Address(inout headers_t hdr, inout meta_t meta, STANDARD) {
    action copy(bit<64> bit_, bit<48> dst_mac, bit<48> src_mac, bit<32> dst_ip, bit<32> src_ip,
                bit<16> dst_port, bit<16> src_port, bit<32> cookie, bit<8> flags,
                bit<16> session, bit<16> next) {
        meta.copy_bit = bit_;
        meta.copy_cookie = cookie;
        meta.copy_flags = flags;
        hdr.ethernet.dst = dst_mac;
        hdr.ethernet.src = src_mac;
        hdr.ipv4.dst = dst_ip;
        hdr.ipv4.src = src_ip;
        hdr.udp.dst = dst_port;
        hdr.udp.src = src_port;
        COPY_SESSION = session;
        COPY_NEXT = next;
    }
    action no_copy() {
        meta.class = CLASS_DROP;
    }
    table copies {
        key = {
            meta.scope : exact @name("scope");
            meta.id : exact @name("id");
        }
        actions = { copy; no_copy; }
        default_action = no_copy();
        size = 4096;
    }

    action lose_copy() {
        meta.sends = SEND_NOTHING;
    }
    // The chunk is the header's: of two tables that match one field of metadata the compiler
    // copies the second's, and drops what is written to the first's.
    table faults_out {
        key = {
            meta.kind : exact @name("kind");
            meta.id : exact @name("id");
            hdr.weft.chunk : exact @name("chunk");
            meta.retransmit : exact @name("retransmit");
        }
        actions = { lose_copy; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action first() {
        meta.id = (bit<16>)meta.rank;
        ELEMENTS_SUM = 0;
        PASSES = 0;
    }
    // The elements' part of every copy's checksum.
    action sum_elements() {
        sum.clear();
        sum.add(hdr.vec);
        ELEMENTS_SUM = sum.get() ^ 0xffff;
    }
    action state() {
        hdr.weft.version_kind = VERSION_1 + KIND_STATE;
        hdr.weft.flags_outcome = meta.outcome;
        hdr.weft.members = meta.state_members;
        hdr.udp.len = HEADER_UDP_BYTES;
        COPY_SESSION = COPY_SESSION + CUT_TO_HEADER;
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
        COPY_SESSION = COPY_SESSION + CUT_TO_VECTOR;
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
    }
    action sum_ipv4() {
        sum.clear();
        sum.add(hdr.ipv4);
        hdr.ipv4.checksum = sum.get();
    }
    action sum_header() {
        sum.clear();
        HEADER_WORDS
        hdr.udp.checksum = sum.get();
    }
    action sum_vector() {
        // From a header: a word of metadata would be added in the host's byte order.
        hdr.udp.checksum = ELEMENTS_SUM;
        sum.clear();
        HEADER_WORDS
        hdr.udp.checksum = sum.get();
    }

    apply {
        if (PASS == 0) {
            first();
            if (meta.has_lanes == 1) {
                sum_elements();
            }
            if (meta.to_replica == 1) {
                meta.id = ID_REPLICA;
            } else if (meta.to_server != SEND_NOTHING) {
                meta.id = ID_SERVER;
            }
        }
        copies.apply();
        meta.sends = SEND_NOTHING;
        if (meta.class == CLASS_DATA) {
            if (meta.id == ID_REPLICA) {
                meta.sends = SEND_SUM;
                meta.to_replica = 0;
            } else if (meta.id == ID_SERVER) {
                meta.sends = meta.to_server;
                meta.to_server = SEND_NOTHING;
            } else if (meta.to_sender != SEND_NOTHING) {
                meta.sends = meta.to_sender;
                meta.to_sender = SEND_NOTHING;
            } else {
                if (meta.copy_bit & meta.mask != 0) {
                    meta.sends = meta.to_members;
                }
                if (COPY_NEXT == (bit<16>)meta.rank) {
                    meta.to_members = SEND_NOTHING;
                }
            }
        }
        if (meta.sends != SEND_NOTHING) {
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
            if (hdr.ipv4.checksum == 0xffff) {
                hdr.ipv4.checksum = 0;
            }
            if (meta.sends == SEND_STATE) {
                sum_header();
            } else {
                sum_vector();
            }
            meta.kind = hdr.weft.version_kind & KIND_MASK;
            meta.retransmit = 0;
            if (hdr.weft.flags_outcome & FLAG_RETRANSMIT != 0) {
                meta.retransmit = 1;
            }
            faults_out.apply();
        }
        if (meta.sends == SEND_NOTHING) {
            COPY_SESSION = NO_SESSION;
        }
        if (meta.class == CLASS_DATA) {
            if (meta.to_server != SEND_NOTHING) {
                meta.id = ID_SERVER;
            } else if (meta.to_sender != SEND_NOTHING) {
                meta.id = (bit<16>)meta.rank;
            } else {
                meta.id = COPY_NEXT;
            }
            if (meta.to_server + meta.to_sender + meta.to_members != 0) {
                if (PASSES < PASSES_MAX) {
                    PASSES = PASSES + 1;
                    recirculate();
                }
            }
        }
    }
}
