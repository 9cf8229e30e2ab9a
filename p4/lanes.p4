// One text for each element, by the preprocessor: ELEMENTS times M(number), numbers in hex.

#define LANES_16(M, h) \
    M(h##0) M(h##1) M(h##2) M(h##3) M(h##4) M(h##5) M(h##6) M(h##7) \
    M(h##8) M(h##9) M(h##a) M(h##b) M(h##c) M(h##d) M(h##e) M(h##f)
#define LANES_32(M) LANES_16(M, 0) LANES_16(M, 1)
#define LANES_64(M) LANES_32(M) LANES_16(M, 2) LANES_16(M, 3)
#define LANES_128(M) \
    LANES_64(M) LANES_16(M, 4) LANES_16(M, 5) LANES_16(M, 6) LANES_16(M, 7)
#define LANES_256(M) \
    LANES_128(M) \
    LANES_16(M, 8) LANES_16(M, 9) LANES_16(M, a) LANES_16(M, b) \
    LANES_16(M, c) LANES_16(M, d) LANES_16(M, e) LANES_16(M, f)

#if ELEMENTS == 32
#define LANES(M) LANES_32(M)
#elif ELEMENTS == 64
#define LANES(M) LANES_64(M)
#elif ELEMENTS == 128
#define LANES(M) LANES_128(M)
#elif ELEMENTS == 256
#define LANES(M) LANES_256(M)
#else
#error "ELEMENTS is 32, 64, 128 or 256"
#endif
