// What a frame is made of. A frame that ends within a header has that header invalid, and what
// follows it is an opaque rest, which leaves as it came.

parser WeftParser(packet_in packet, out headers_t hdr, inout meta_t meta, STANDARD) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type, CAME_IN) {
            (ETHERTYPE_IPV4, _): ipv4;
            (ETHERTYPE_ARP, _): arp;
            (ETHERTYPE_OP, CPU_PORT): op;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        meta.ip = hdr.arp.target_ip;
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.ip = hdr.ipv4.dst;
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (0x45, 0 &&& FRAGMENT_MASK, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        packet.extract(hdr.weft);
        transition select(hdr.weft.version_kind, hdr.udp.len) {
            (VERSION_1 + KIND_CONTRIB, VECTOR_UDP_BYTES): vec;
            (VERSION_1 + KIND_PULL, VECTOR_UDP_BYTES): vec;
            default: accept;
        }
    }

    state op {
        packet.extract(hdr.op);
        transition select(hdr.op.count) {
            ELEMENTS: vec;
            default: accept;
        }
    }

    state vec {
        packet.extract(hdr.vec);
        transition accept;
    }
}

control WeftDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.weft);
        packet.emit(hdr.op);
        packet.emit(hdr.vec);
    }
}
