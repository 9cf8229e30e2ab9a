// The sum. Each lane's register is touched here and nowhere else, once a frame: what it holds and
// what the frame carries are kept or taken by masks, and the result goes to both. Sums wrap modulo
// 2^32; MAX is signed.

#define LANE(n) REGISTER(bit<32>, BANKS, lane_##n)
LANES(LANE)

#define ACCUMULATE(n) \
    READ(lane_##n, old, meta.index) \
    hdr.vec.e##n = meta.is_max == 1 \
        ? ((int<32>)old > (int<32>)hdr.vec.e##n ? old : hdr.vec.e##n) \
        : (old & meta.keep) + (hdr.vec.e##n & meta.take); \
    WRITE(lane_##n, meta.index, hdr.vec.e##n)

control Accumulate(inout headers_t hdr, inout meta_t meta) {
    bit<32> old;

    action accumulate() {
        LANES(ACCUMULATE)
    }

    apply {
        accumulate();
    }
}
