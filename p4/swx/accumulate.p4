// The sum. Each lane's register is touched here and nowhere else, once a frame: what it holds and
// what the frame carries are kept or taken by masks, and the result goes to both. Sums wrap modulo
// 2^32. MAX is signed: the target compares without sign, hence the top bit is turned.

#define LANE(n) REGISTER(bit<32>, BANKS, lane_##n)
LANES(LANE)

#define SUM(n) \
    READ(lane_##n, old, meta.index) \
    hdr.vec.e##n = (old & meta.keep) + (hdr.vec.e##n & meta.take); \
    WRITE(lane_##n, meta.index, hdr.vec.e##n)

#define MAXIMUM(n) \
    READ(lane_##n, old, meta.index) \
    turned = old ^ 0x80000000; \
    element = hdr.vec.e##n ^ 0x80000000; \
    if (turned > element) { \
        hdr.vec.e##n = old; \
    } \
    WRITE(lane_##n, meta.index, hdr.vec.e##n)

control Accumulate(inout headers_t hdr, inout meta_t meta) {
    bit<32> old;
    bit<32> turned;
    bit<32> element;

    apply {
        if (meta.is_max == 1) {
            LANES(MAXIMUM)
        } else {
            LANES(SUM)
        }
    }
}
