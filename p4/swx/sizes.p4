// What is fixed when the program is compiled, where this target differs: ports are counted from 0
// without a gap, and the last is the agent's. Behind it is a sink, which takes what is not sent.

#include "../sizes.p4"

#undef CPU_PORT
#define CPU_PORT 15
#define SINK_PORT 16

// What op_t has, and what an echo is cut to.
#undef OP_BYTES
#define OP_BYTES 40

// A frame may grow by the headroom of an mbuf, 128 bytes; nothing checks it.
#undef GROWTH_ELEMENTS
#define GROWTH_ELEMENTS 32

// Each port has three mirror sessions from 1 + 3 * port on: for a frame as it is, cut to a vector's
// length, cut to a header's. One more is for the agent's echoes.
#define WHOLE_FRAME 0
#define CUT_TO_VECTOR 1
#define CUT_TO_HEADER 2
#define ECHO_SESSION 49
#define NO_SESSION 0

// A walk over copies or ports has at most so many passes, whatever the tables say.
#define PASSES_MAX 72
