// Whose a frame is by its form alone: another host's, the agent's, an op of the agent, or a frame
// of the data path, well formed. SPEC#checks up to the exponent; nothing of the tables but who
// listens.

control Classify(inout headers_t hdr, inout meta_t meta, STANDARD) {
    action is_local(bit<16> port) {
        meta.class = CLASS_DATA;
        meta.listens = port;
    }
    table local {
        key = { meta.ip : exact @name("ip"); }
        actions = { is_local; NoAction; }
        default_action = NoAction();
        size = 16;
    }

    action lose() {
        meta.class = CLASS_DROP;
    }
    table faults {
        key = {
            meta.kind : exact @name("kind");
            meta.fault_members : exact @name("members");
            meta.fault_chunk : exact @name("chunk");
            meta.retransmit : exact @name("retransmit");
        }
        actions = { lose; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // A whole IPv4 packet without options, not a fragment.
    action sum_ipv4() {
        CHECKSUM(meta.checksum, IPV4_WORDS)
    }
    action count_payload() {
        meta.payload_bytes = (bit<32>)hdr.weft.count + (bit<32>)hdr.weft.count;
    }

    apply {
        meta.class = CLASS_BRIDGE;
        meta.reason = NONE;
        meta.happened = NONE;
        meta.happened_too = NONE;
        if (!hdr.ethernet.isValid()) {
            meta.reason = REASON_LENGTH;
        } else if (CAME_IN == CPU_PORT) {
            if (hdr.ethernet.ether_type == ETHERTYPE_OP) {
                meta.class = CLASS_OP;
                REFUSE_IF(!hdr.op.isValid(), REASON_LENGTH)
            }
        } else {
            local.apply();
        }
        if (meta.class == CLASS_DATA) {
            if (!hdr.ipv4.isValid()) {
                meta.class = CLASS_CPU;
            } else {
                REFUSE_IF(hdr.ipv4.version_ihl != 0x45, REASON_IP_HEADER)
                if (meta.reason == NONE) {
                    sum_ipv4();
                }
                REFUSE_IF(meta.checksum != 0, REASON_IP_CHECKSUM)
                REFUSE_IF(hdr.ipv4.fragment & FRAGMENT_MASK != 0, REASON_FRAGMENT)
                if (meta.reason == NONE && hdr.ipv4.protocol != PROTOCOL_UDP) {
                    meta.class = CLASS_CPU;
                }
            }
        }
        if (meta.class == CLASS_DATA) {
            // Lengths that the frame has no bytes for, then those that contradict each other.
            REFUSE_IF((bit<32>)hdr.ipv4.len + ETHERNET_BYTES > FRAME_BYTES, REASON_LENGTH)
            REFUSE_IF(hdr.ipv4.len < IPV4_BYTES + UDP_BYTES, REASON_LENGTH)
            REFUSE_IF(hdr.udp.len > hdr.ipv4.len - IPV4_BYTES, REASON_LENGTH)
            REFUSE_IF(hdr.udp.len < UDP_BYTES, REASON_LENGTH)
            if (meta.reason == NONE) {
                if (hdr.udp.dst != meta.listens) {
                    meta.class = CLASS_CPU;
                }
            }
        }
        if (meta.class == CLASS_DATA) {
            REFUSE_IF(hdr.udp.len < HEADER_UDP_BYTES, REASON_LENGTH)
            REFUSE_IF(hdr.weft.version_kind & VERSION_MASK != VERSION_1, REASON_VERSION)
            if (meta.reason == NONE) {
                meta.kind = hdr.weft.version_kind & KIND_MASK;
                meta.retransmit = 0;
                if (hdr.weft.flags_outcome & FLAG_RETRANSMIT != 0) {
                    meta.retransmit = 1;
                }
                meta.fault_members = hdr.weft.members;
                meta.fault_chunk = hdr.weft.chunk;
            }
            REFUSE_IF(meta.kind == 0 || meta.kind > KIND_LAST, REASON_KIND)
            REFUSE_IF(hdr.weft.type_op & TYPE_MASK > TYPE_LAST, REASON_KIND)
            REFUSE_IF(hdr.weft.type_op & OPERATION_MASK > OPERATION_LAST, REASON_KIND)
            REFUSE_IF(hdr.weft.exponent > EXPONENT_HIGH && hdr.weft.exponent < EXPONENT_LOW,
                      REASON_EXPONENT)
            if (meta.reason == NONE) {
                faults.apply();
            }
        }
        if (meta.class == CLASS_DATA && meta.reason == NONE) {
            if (meta.kind == KIND_CONTRIB) {
                if (hdr.weft.type_op & TYPE_MASK != TYPE_NONE) {
                    count_payload();
                    if (hdr.weft.type_op & TYPE_MASK != TYPE_BF16) {
                        meta.payload_bytes = meta.payload_bytes + meta.payload_bytes;
                    }
                }
                REFUSE_IF((bit<32>)hdr.udp.len - HEADER_UDP_BYTES != meta.payload_bytes,
                          REASON_LENGTH)
            } else if (meta.kind == KIND_STATUS) {
                REFUSE_IF(hdr.udp.len != HEADER_UDP_BYTES, REASON_LENGTH)
            } else if (meta.kind == KIND_PULL) {
                // Header only, or padded to the length of the sum that it may be answered with.
                REFUSE_IF(hdr.udp.len != HEADER_UDP_BYTES && hdr.udp.len != VECTOR_UDP_BYTES,
                          REASON_LENGTH)
            } else {
                // The handshake, hand-overs and channels are the agent's.
                meta.class = CLASS_CPU;
            }
        }
    }
}
