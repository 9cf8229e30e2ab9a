// What the target brings: registers, counters, checksums, passes. The stages name these only.

#include <core.p4>
#include <dpdk/pna.p4>

#define REGISTER(type, size, name) Register<type, bit<32>>(size) name;
#define READ(name, to, index) to = name.read(index);
#define WRITE(name, index, value) name.write(index, value);

// Registers count as well as counters do here, and are read in the same way as all else.
#define COUNTER(size, name) Register<bit<32>, bit<32>>(size) name;
#define COUNT(name, index) \
    { \
        bit<32> before = name.read(index); \
        name.write(index, before + 1); \
    }

// The compiler numbers colors in the order of the architecture's enum, the target from green to red.
const PNA_MeterColor_t TARGET_GREEN = PNA_MeterColor_t.RED;
const PNA_MeterColor_t TARGET_RED = PNA_MeterColor_t.YELLOW;
#define METER(size, name) Meter<bit<32>>(size, PNA_MeterType_t.BYTES) name;
#define CHARGE(name, index, color) \
    color = name.dpdk_execute(index, TARGET_GREEN, FRAME_BYTES) == TARGET_RED ? 32w2 : 32w0;
#define RED 2

// 0 where the words hold a right checksum already. The target's sum is never 0, but 0xffff.
#define CHECKSUM(to, words) \
    sum.clear(); \
    words \
    to = sum.get() ^ 0xffff;
// What a checksum is of. A header is summed in place, as the frame has it.
#define IPV4_WORDS sum.add(hdr.ipv4);
#define HEADER_WORDS \
    sum.add({ hdr.ipv4.src, hdr.ipv4.dst, hdr.udp.len, PROTOCOL_WORD }); \
    sum.add(hdr.udp); \
    sum.add(hdr.weft);
#define VECTOR_WORDS \
    HEADER_WORDS \
    sum.add(hdr.vec);
#define PROTOCOL_WORD 16w17
InternetChecksum() sum;

#define STANDARD in pna_main_input_metadata_t standard
#define CAME_IN ((PortIdUint_t)standard.input_port)
#define PASS ((PassNumberUint_t)standard.pass)
// 22.11 does not tell a program how long a frame is: whoever compiles the .spec further writes it here
// on reception (pipeline.py), before `copies` uses the field. Who does not gets no frame taken.
#define FRAME_BYTES meta.copy_cookie
// What is dropped goes to the sink: drop_packet() would leave at once, before headers and clones.
#define TO_PORT(number) send_to_port((PortId_t)(PortIdUint_t)(number));
#define TO_SESSION(number) \
    mirror_packet((MirrorSlotId_t)8w0, (MirrorSessionId_t)(MirrorSessionIdUint_t)number);

// What the target keeps with a frame: nothing that is not the program's.
#define TARGET_FIELDS
