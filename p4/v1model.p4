// What the target brings: registers, counters, meters, checksums, copies. The stages name these
// only, so that another target needs another file like this one.

#include <core.p4>
#include <v1model.p4>

#define REGISTER(type, size, name) register<type>(size) name;
#define READ(name, to, index) name.read(to, index);
#define WRITE(name, index, value) name.write(index, value);

#define COUNTER(size, name) counter(size, CounterType.packets) name;
#define COUNT(name, index) name.count(index);

#define METER(size, name) meter(size, MeterType.bytes) name;
#define CHARGE(name, index, color) name.execute_meter<bit<32>>(index, color);
#define RED 2

// Ones-complement sum of 16-bit words, inverted; 0 where the words hold a right checksum already.
#define CHECKSUM(to, words) hash(to, HashAlgorithm.csum16, 32w0, words, 32w65536);

// A register may be named in a field list only by what is in the frame, hence the macros.
#define IPV4_WORDS { \
    hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment, \
    hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.checksum, hdr.ipv4.src, hdr.ipv4.dst }
#define UDP_WORDS \
    hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.protocol, hdr.udp.len, \
    hdr.udp.src, hdr.udp.dst, hdr.udp.len, hdr.udp.checksum, \
    hdr.weft.version_kind, hdr.weft.flags_outcome, hdr.weft.job, hdr.weft.cookie, \
    hdr.weft.row, hdr.weft.generation, hdr.weft.chunk, hdr.weft.type_op, hdr.weft.exponent, \
    hdr.weft.count, hdr.weft.crc, hdr.weft.members
#define LANE_WORD(n) hdr.vec.e##n,
#define HEADER_WORDS { UDP_WORDS }
// The sum does not depend on the order of its words.
#define VECTOR_WORDS { LANES(LANE_WORD) UDP_WORDS }

#define STANDARD inout standard_metadata_t standard
#define FRAME_BYTES standard.packet_length
#define CAME_IN standard.ingress_port
#define GOES_OUT standard.egress_port
#define COPY_ID standard.egress_rid
#define DROP mark_to_drop(standard);
#define TO_PORT(number) standard.egress_spec = number;
#define TO_GROUP(number) standard.mcast_grp = number;
#define CUT_TO(bytes) truncate(bytes);

// Checksums are judged and made within the stages: a sum that is 0 has to leave as 0xffff, and one
// that came as 0xffff is right.
#define PIPELINE(from, ingress, egress, to) \
    control NoVerify(inout headers_t hdr, inout meta_t meta) { apply { } } \
    control NoUpdate(inout headers_t hdr, inout meta_t meta) { apply { } } \
    V1Switch(from(), NoVerify(), ingress(), egress(), NoUpdate(), to()) main;

// What the target keeps with a frame.
#define TARGET_FIELDS
