/*
 * The C ABI between weft-dpdk and libdpdk.
 *
 * DPDK's burst functions, mbuf accessors and mempool fast paths are static inlines over structures
 * whose layout changes between releases. They are called here, in C, and Rust sees only the structs
 * below and the head of an mbuf, so a new DPDK release touches this folder alone.
 *
 * Functions that can fail return 0 or a negative errno. sys.rs mirrors this file; keep them equal.
 */
#ifndef WEFT_SHIM_H
#define WEFT_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_BURST_MAX 64
/* What a device gives at once, as in testpmd: more leaves the first cache before it is read. */
#define WEFT_RX_BURST_MAX 32
#define WEFT_NAME_MAX 64

struct weft_pool; /* struct rte_mempool */

/*
 * One frame as Rust sees it: an mbuf, of which Rust reads and writes the few fields that sys.rs
 * names. They have lain at the same offsets in every release so far, because drivers' vector code
 * depends on them; frame.c asserts it, so that a release which moves one fails to compile.
 * `struct weft_frame *[n]` is what bursts fill and consume, which makes it an mbuf array.
 */
struct weft_frame;

/* Behind each mbuf; meaningless while nobody shares the frame. */
struct weft_private {
	uint16_t owned;		/* leading bytes that no other mbuf refers to */
};

struct weft_rx_count {
	uint64_t bytes;
	uint64_t errors;	/* frames that did not fit one buffer of the pool */
	uint64_t nombuf;	/* frames whose private copy found the pool empty */
};

struct weft_port_info {
	char name[WEFT_NAME_MAX];
	char driver[WEFT_NAME_MAX];
	uint8_t mac[6];
	uint16_t min_mtu;
	uint16_t max_mtu;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	int16_t socket;
	uint8_t tx_multi_segs;	/* frames of several segments can be sent */
	uint8_t rss_l4_src;	/* RSS over the UDP source port alone */
};

struct weft_port_conf {
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t mtu;
	uint8_t tx_multi_segs;
	uint8_t rss_l4_src;
};

struct weft_port_stats {
	uint64_t imissed;
	uint64_t ierrors;
	uint64_t oerrors;
	uint64_t rx_nombuf;
};

/* EAL and lcores */
int weft_eal_init(int argc, char **argv);
int weft_eal_cleanup(void);
/* Where EAL keeps its files, from the start of weft_eal_init on. */
const char *weft_runtime_dir(void);
const char *weft_version(void);
const char *weft_strerror(int errnum);
int weft_first_cpu(void);
int weft_pin_thread(unsigned int cpu);
int weft_lcore_id(void);
int weft_thread_register(void);
void weft_thread_unregister(void);
int weft_socket_id(void);
uint64_t weft_tsc(void);
uint64_t weft_tsc_hz(void);

/* Ports */
int weft_port_probe(const char *devargs);
int weft_port_next(uint16_t from);
int weft_port_info(uint16_t port, struct weft_port_info *info);
int weft_port_configure(uint16_t port, const struct weft_port_conf *conf);
int weft_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, struct weft_pool *pool);
int weft_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors);
int weft_port_start(uint16_t port, uint16_t mtu, int promiscuous);
int weft_port_close(uint16_t port, uint16_t rx_queues);
int weft_port_link(uint16_t port);
int weft_port_stats(uint16_t port, struct weft_port_stats *stats);
int weft_port_xstats(uint16_t port, char (*names)[WEFT_NAME_MAX], uint64_t *values, unsigned int n);

/* Pools and frames; no frame is NULL. `clones` may be NULL: then weft_frame_share never succeeds. */
struct weft_pool *weft_pool_create(const char *name, unsigned int count, unsigned int cache,
				   uint16_t data_room, int socket, int *error);
unsigned int weft_pool_available(const struct weft_pool *pool);
uint16_t weft_headroom(void);
struct weft_frame *weft_frame_alloc(struct weft_pool *pool);
struct weft_frame *weft_frame_copy(struct weft_pool *pool, const struct weft_frame *from);
struct weft_frame *weft_frame_share(struct weft_pool *pool, struct weft_pool *clones,
				    const struct weft_frame *from, uint16_t header_len);
void weft_frame_free(struct weft_frame *frame);
void weft_frame_free_bulk(struct weft_frame *const *frames, uint16_t n);

/* Frees what waits in a receive queue; for weft_port_close. */
void weft_frames_drain(uint16_t port, uint16_t queue);

/* Bursts of at most WEFT_BURST_MAX frames, received of at most WEFT_RX_BURST_MAX */
uint16_t weft_rx_burst(uint16_t port, uint16_t queue, struct weft_pool *pool,
		       struct weft_frame **frames, uint16_t n, struct weft_rx_count *count);
uint16_t weft_tx_burst(uint16_t port, uint16_t queue, struct weft_frame *const *frames, uint16_t n,
		       uint64_t *bytes);

#endif
