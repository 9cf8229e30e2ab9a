/*
 * Pools, frames and bursts behind the ABI of shim.h: what runs per frame or per burst.
 *
 * Invariant: a frame handed to Rust by rx, alloc or copy is one direct segment with one reference,
 * so Rust may write all of it. Only weft_frame_share makes anything else.
 */
#include <rte_version.h>
#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#define ALLOW_EXPERIMENTAL_API
#endif

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "shim.h"

/* sys.rs mirrors these fields of an mbuf. */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "sys.rs: data");
_Static_assert(offsetof(struct rte_mbuf, data_off) == 16, "sys.rs: data_off");
_Static_assert(offsetof(struct rte_mbuf, refcnt) == 18, "sys.rs: refcnt");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "sys.rs: nb_segs");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "sys.rs: pkt_len");
_Static_assert(offsetof(struct rte_mbuf, data_len) == 40, "sys.rs: data_len");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == 54, "sys.rs: buf_len");
_Static_assert(sizeof(struct rte_mbuf) == 128, "sys.rs: owned");
_Static_assert(offsetof(struct weft_private, owned) == 0, "sys.rs: owned");

/* The private area of every mbuf: a cache line, so that headers stay aligned. */
#define PRIVATE_LEN RTE_CACHE_LINE_MIN_SIZE
_Static_assert(PRIVATE_LEN % RTE_MBUF_PRIV_ALIGN == 0, "DPDK's rule");

/*
 * Behind the headers of Ethernet, IPv4, UDP and Weft starts a payload, which is summed and copied in
 * pieces of up to a cache line. Where it starts on one, no piece touches two. DPDK's headroom is
 * fixed, so that leaves where buffers begin: SHIFT bytes earlier than DPDK's rule allows to ask for.
 */
#define HEADERS_LEN (42 + 32)
#define SHIFT ((RTE_PKTMBUF_HEADROOM + HEADERS_LEN) % RTE_CACHE_LINE_MIN_SIZE)
_Static_assert(sizeof(struct rte_mbuf) % RTE_CACHE_LINE_MIN_SIZE == 0, "SHIFT aligns payloads");
_Static_assert(sizeof(struct weft_private) <= PRIVATE_LEN - SHIFT, "it fits the private area");

static struct rte_mempool *pool_of(struct weft_pool *pool)
{
	return (struct rte_mempool *)pool;
}

/* Lets a new mbuf's buffer begin earlier, at the cost of its private area; it keeps its length. */
static void shift_buffer(struct rte_mempool *pool, void *arg, void *object, unsigned int index)
{
	struct rte_mbuf *m = object;

	(void)pool;
	(void)arg;
	(void)index;
	m->buf_addr = RTE_PTR_SUB(m->buf_addr, SHIFT);
	m->priv_size -= SHIFT;
#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
	rte_mbuf_iova_set(m, rte_mbuf_iova_get(m) - SHIFT);
#else
	m->buf_iova -= SHIFT;
#endif
}

/* Makes payloads start on a cache line. DPDK finds buffers by the length of the private area. */
static void align_payloads(struct rte_mempool *pool)
{
	struct rte_pktmbuf_pool_private *private = rte_mempool_get_priv(pool);

	rte_mempool_obj_iter(pool, shift_buffer, NULL);
	private->mbuf_priv_size -= SHIFT;
}

/* rte_pktmbuf_pool_create, but with `flags`. */
static struct rte_mempool *create(const char *name, unsigned int count, unsigned int cache,
				  uint16_t data_room, int socket, unsigned int flags)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = data_room,
		.mbuf_priv_size = PRIVATE_LEN,
	};
	struct rte_mempool *pool =
		rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf) + PRIVATE_LEN + data_room,
					 cache,
					 sizeof(private), socket, flags);

	if (pool == NULL)
		return NULL;
	int rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = rte_mempool_populate_default(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

struct weft_pool *weft_pool_create(const char *name, unsigned int count, unsigned int cache,
				   uint16_t data_room, int socket, int *error)
{
	/*
	 * A buffer may not cross a page, so that devices can reach it by DMA: on 4 KiB pages one
	 * buffer of 2176 bytes fits each, all at the same offset, and their headers share a few
	 * sets of the L1 cache. Without hugepages there is no DMA, so pack them: examples/burst_cost
	 * echoes on net_ring in a third of the time.
	 */
	unsigned int flags = rte_eal_has_hugepages() ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	struct rte_mempool *pool = create(name, count, cache, data_room, socket, flags);

	/* Devices that use DMA may have wishes of their own; mbufs without room refer to others'. */
	if (pool != NULL && data_room != 0 && !rte_eal_has_hugepages())
		align_payloads(pool);
	*error = pool == NULL ? -rte_errno : 0;
	return (struct weft_pool *)pool;
}

unsigned int weft_pool_available(const struct weft_pool *pool)
{
	return rte_mempool_avail_count((const struct rte_mempool *)pool);
}

uint16_t weft_headroom(void)
{
	return RTE_PKTMBUF_HEADROOM;
}

/* True if nobody else can see the bytes and they are in one piece. */
static inline int is_exclusive(const struct rte_mbuf *m)
{
	return m->nb_segs == 1 && RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1;
}

static inline struct weft_frame *frame_of(struct rte_mbuf *m)
{
	return (struct weft_frame *)m;
}

static inline struct rte_mbuf *mbuf_of(const struct weft_frame *frame)
{
	return (struct rte_mbuf *)(uintptr_t)frame;
}

struct weft_frame *weft_frame_alloc(struct weft_pool *pool)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool_of(pool));

	return frame_of(m);
}

/* A new single segment with all bytes of `from`'s chain; NULL sets `error`. */
static inline struct rte_mbuf *copy_chain(struct weft_pool *pool, const struct rte_mbuf *from,
					  int *error)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool_of(pool));
	uint8_t *at;

	if (unlikely(m == NULL)) {
		*error = ENOMEM;
		return NULL;
	}
	if (unlikely(from->pkt_len > rte_pktmbuf_tailroom(m))) {
		rte_pktmbuf_free(m);
		*error = EMSGSIZE;
		return NULL;
	}
	at = rte_pktmbuf_mtod(m, uint8_t *);
	for (const struct rte_mbuf *seg = from; seg != NULL; seg = seg->next) {
		memcpy(at, rte_pktmbuf_mtod(seg, const uint8_t *), seg->data_len);
		at += seg->data_len;
	}
	m->data_len = (uint16_t)from->pkt_len;
	m->pkt_len = from->pkt_len;
	return m;
}

struct weft_frame *weft_frame_copy(struct weft_pool *pool, const struct weft_frame *from)
{
	int error;
	struct rte_mbuf *m = copy_chain(pool, mbuf_of(from), &error);

	return frame_of(m);
}

struct weft_frame *weft_frame_share(struct weft_pool *pool, struct weft_pool *clones,
				    const struct weft_frame *from, uint16_t header_len)
{
	struct rte_mbuf *m = mbuf_of(from), *original = m, *head, *tail;
	struct weft_private *private;

	/* A chain that is shared again may break at its own first segment. */
	if (header_len > original->data_len)
		return NULL;
	if (header_len == original->data_len)
		original = original->next;
	if (original == NULL || clones == NULL)
		return NULL;
	head = rte_pktmbuf_alloc(pool_of(pool));
	if (unlikely(head == NULL))
		return NULL;
	if (unlikely(header_len > rte_pktmbuf_tailroom(head))) {
		rte_pktmbuf_free(head);
		return NULL;
	}
	tail = rte_pktmbuf_clone(original, pool_of(clones));
	if (unlikely(tail == NULL)) {
		rte_pktmbuf_free(head);
		return NULL;
	}
	if (original == m)
		rte_pktmbuf_adj(tail, header_len);
	else
		tail->pkt_len = m->pkt_len - m->data_len;
	memcpy(rte_pktmbuf_mtod(head, uint8_t *), rte_pktmbuf_mtod(m, uint8_t *), header_len);
	head->data_len = header_len;
	head->pkt_len = header_len;
	rte_pktmbuf_chain(head, tail);
	private = rte_mbuf_to_priv(head);
	private->owned = header_len;
	return frame_of(head);
}

void weft_frame_free(struct weft_frame *frame)
{
	rte_pktmbuf_free(mbuf_of(frame));
}

void weft_frame_free_bulk(struct weft_frame *const *frames, uint16_t n)
{
	rte_pktmbuf_free_bulk((struct rte_mbuf **)(uintptr_t)frames, n);
}

/* Replaces a received chain or shared buffer by something exclusive, or frees and counts it. */
static struct rte_mbuf *make_exclusive(struct weft_pool *pool, struct rte_mbuf *m,
				       struct weft_rx_count *count)
{
	struct rte_mbuf *copy;
	int error;

	/* Linearising writes behind the first segment's data, so that one must be ours alone. */
	if (RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 && rte_pktmbuf_linearize(m) == 0)
		return m;
	copy = copy_chain(pool, m, &error);
	rte_pktmbuf_free(m);
	if (copy != NULL)
		return copy;
	if (error == ENOMEM)
		count->nombuf++;
	else
		count->errors++;
	return NULL;
}

uint16_t weft_rx_burst(uint16_t port, uint16_t queue, struct weft_pool *pool,
		       struct weft_frame **frames, uint16_t n, struct weft_rx_count *count)
{
	struct rte_mbuf **mbufs = (struct rte_mbuf **)frames;
	uint16_t got = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(n, WEFT_RX_BURST_MAX));
	uint16_t kept = 0;

	for (uint16_t i = 0; i < got; i++) {
		struct rte_mbuf *m = mbufs[i];

		if (unlikely(!is_exclusive(m))) {
			m = make_exclusive(pool, m, count);
			if (m == NULL)
				continue;
		}
		/* Ethernet, IP, UDP and Weft headers end at byte 106 (IPv4): two lines. */
		rte_prefetch0(rte_pktmbuf_mtod(m, uint8_t *));
		rte_prefetch0(rte_pktmbuf_mtod(m, uint8_t *) + RTE_CACHE_LINE_MIN_SIZE);
		count->bytes += m->data_len;
		mbufs[kept++] = m;
	}
	return kept;
}

/* Twice what net_ring's rings hold; bounded because net_pcap may never run dry. */
#define DRAIN_BURSTS_MAX 64

void weft_frames_drain(uint16_t port, uint16_t queue)
{
	struct rte_mbuf *mbufs[WEFT_BURST_MAX];
	uint16_t got = WEFT_BURST_MAX;

	for (unsigned int i = 0; i < DRAIN_BURSTS_MAX && got != 0; i++) {
		got = rte_eth_rx_burst(port, queue, mbufs, WEFT_BURST_MAX);
		rte_pktmbuf_free_bulk(mbufs, got);
	}
}

uint16_t weft_tx_burst(uint16_t port, uint16_t queue, struct weft_frame *const *frames, uint16_t n,
		       uint64_t *bytes)
{
	struct rte_mbuf **mbufs = (struct rte_mbuf **)(uintptr_t)frames;
	uint32_t lengths[WEFT_BURST_MAX];
	uint16_t sent;

	n = RTE_MIN(n, WEFT_BURST_MAX);
	for (uint16_t i = 0; i < n; i++) {
		/* Receive flags say nothing about transmission, and some share their bits. */
		mbufs[i]->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
		lengths[i] = mbufs[i]->pkt_len;
	}
	sent = rte_eth_tx_burst(port, queue, mbufs, n);
	for (uint16_t i = 0; i < sent; i++)
		*bytes += lengths[i];
	return sent;
}
