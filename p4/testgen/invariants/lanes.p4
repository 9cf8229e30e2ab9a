// One lane: all of them are one text.

#define LANES(M) M(00)
