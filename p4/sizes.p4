// What is fixed when the program is compiled. The agent reads all of it from the p4info.

#ifndef ELEMENTS
#define ELEMENTS 32
#endif

// Banks of the arena: two for each slot of a windowed lease, one for each chunk of a whole one.
#ifndef BANKS
#define BANKS 2048
#endif

// Rows that may be open at a time, and scopes: who may speak in a lease or a push job.
#define ROWS_MAX 1024
#define SCOPES_MAX 64
#define RANKS_MAX 64

// The port on which the agent is a plain host.
#define CPU_PORT 255

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define UDP_BYTES 8
#define WEFT_BYTES 32
#define OP_BYTES 40
#define VECTOR_BYTES (4 * ELEMENTS)

// UDP lengths of a header alone and of a header with its vector.
#define HEADER_UDP_BYTES (UDP_BYTES + WEFT_BYTES)
#define VECTOR_UDP_BYTES (HEADER_UDP_BYTES + VECTOR_BYTES)

// BMv2 gives a frame 512 bytes to grow by; more ends the switch. A header of 74 bytes may become a
// sum of so many elements.
#define GROWTH_ELEMENTS 128
