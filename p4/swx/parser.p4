// What a frame is made of. In the passes after the first the frame is a copy that went out already:
// its headers are those of the next copy, and a vector is an opaque rest.

parser WeftParser(packet_in packet, out headers_t hdr, inout meta_t meta,
                  in pna_main_parser_input_metadata_t standard) {
    state start {
        meta.ip = 0;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_ARP: arp;
            ETHERTYPE_OP: op;
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
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol) {
            (0x45, PROTOCOL_UDP): fragment;
            default: accept;
        }
    }

    state fragment {
        meta.checksum = hdr.ipv4.fragment & FRAGMENT_MASK;
        transition select(meta.checksum) {
            0: udp;
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

    // Of any port: the target does not name it here.
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

control WeftDeparser(packet_out packet, in headers_t hdr, in meta_t meta,
                     in pna_main_output_metadata_t standard) {
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
