/*
 * EAL, lcores and port set-up behind the ABI of shim.h: nothing here runs per frame.
 */
#define _GNU_SOURCE
#include <rte_version.h>
#if RTE_VERSION < RTE_VERSION_NUM(21, 11, 0, 0)
#error "weft-dpdk needs DPDK 21.11 or later"
#endif

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
#include <rte_thread.h>
#endif

#include "shim.h"

_Static_assert(WEFT_NAME_MAX >= RTE_ETH_NAME_MAX_LEN, "port names fit");
_Static_assert(WEFT_NAME_MAX >= RTE_ETH_XSTATS_NAME_SIZE, "statistic names fit");

int weft_eal_init(int argc, char **argv)
{
	cpu_set_t before;
	int saved = pthread_getaffinity_np(pthread_self(), sizeof(before), &before) == 0;

	/* EAL logs to stdout by default, where the programs print data. */
	rte_openlog_stream(stderr);
	int rc = rte_eal_init(argc, argv);
	int error = rte_errno;
	/* EAL pins its caller, and every thread that the caller starts would inherit that. */
	if (saved)
		pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
	if (rc < 0)
		return error > 0 ? -error : -EINVAL;
	return 0;
}

struct errand {
	void (*work)(void *arg);
	void *arg;
	int done;
};

static void run_errand(void *arg)
{
	struct errand *errand = arg;

	errand->work(errand->arg);
	__atomic_store_n(&errand->done, 1, __ATOMIC_RELEASE);
}

/* Alarms run on EAL's interrupt thread. Waits for the end; fails without having run anything. */
static int run_on_interrupt_thread(void (*work)(void *arg), void *arg)
{
	struct errand errand = { .work = work, .arg = arg };
	int rc = rte_eal_alarm_set(1, run_errand, &errand);

	if (rc != 0)
		return rc;
	while (!__atomic_load_n(&errand.done, __ATOMIC_ACQUIRE))
		usleep(100);
	return 0;
}

static void nothing(void *arg)
{
	(void)arg;
}

/*
 * Waits until EAL's interrupt thread has walked its list of sources after the last change to it.
 * The first errand may share its wake-up with that walk; when the second has run, it is over.
 */
static void settle_interrupts(void)
{
	run_on_interrupt_thread(nothing, NULL);
	run_on_interrupt_thread(nothing, NULL);
}

static int is_memif(uint16_t port)
{
	struct rte_eth_dev_info dev;

	return rte_eth_dev_info_get(port, &dev) == 0 && dev.driver_name != NULL &&
	       strcmp(dev.driver_name, "net_memif") == 0;
}

/*
 * Closing a net_memif server frees the handle of its listening socket, but leaves it in the list
 * of interrupt sources (22.11 to 26.07). The next walk over that list reads freed memory. So memif
 * ports are only stopped while the program runs; they close here, after the last walk, which also
 * removes the socket's file; and then the memory stays mapped until the process ends.
 */
int weft_eal_cleanup(void)
{
	int dangling = 0;
	uint16_t port;

	settle_interrupts();
	RTE_ETH_FOREACH_DEV(port) {
		if (is_memif(port)) {
			rte_eth_dev_close(port);
			dangling = 1;
		}
	}
	return dangling ? 0 : rte_eal_cleanup();
}

const char *weft_runtime_dir(void)
{
	return rte_eal_get_runtime_dir();
}

const char *weft_version(void)
{
	return rte_version();
}

const char *weft_strerror(int errnum)
{
	return rte_strerror(errnum);
}

int weft_first_cpu(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			return cpu;
	return -ENOENT;
}

int weft_pin_thread(unsigned int cpu)
{
	cpu_set_t set;

	if (cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

int weft_lcore_id(void)
{
	unsigned int id = rte_lcore_id();

	return id == LCORE_ID_ANY ? -ENOENT : (int)id;
}

int weft_thread_register(void)
{
	return rte_thread_register() == 0 ? 0 : -rte_errno;
}

void weft_thread_unregister(void)
{
	rte_thread_unregister();
}

int weft_socket_id(void)
{
	unsigned int id = rte_socket_id();

	return id == (unsigned int)SOCKET_ID_ANY ? -1 : (int)id;
}

uint64_t weft_tsc(void)
{
	return rte_rdtsc();
}

uint64_t weft_tsc_hz(void)
{
	return rte_get_tsc_hz();
}

int weft_port_probe(const char *devargs)
{
	return rte_dev_probe(devargs);
}

int weft_port_next(uint16_t from)
{
	uint64_t port = rte_eth_find_next_owned_by(from, RTE_ETH_DEV_NO_OWNER);

	return port >= RTE_MAX_ETHPORTS ? -ENODEV : (int)port;
}

static const uint64_t RSS_UDP_SOURCE =
	RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP | RTE_ETH_RSS_L4_SRC_ONLY;

int weft_port_info(uint16_t port, struct weft_port_info *info)
{
	struct rte_eth_dev_info dev;
	struct rte_ether_addr mac;
	int rc = rte_eth_dev_info_get(port, &dev);

	if (rc != 0)
		return rc;
	memset(info, 0, sizeof(*info));
	rc = rte_eth_dev_get_name_by_port(port, info->name);
	if (rc != 0)
		return rc;
	snprintf(info->driver, sizeof(info->driver), "%s", dev.driver_name ? dev.driver_name : "");
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->min_mtu = dev.min_mtu;
	info->max_mtu = dev.max_mtu;
	info->max_rx_queues = dev.max_rx_queues;
	info->max_tx_queues = dev.max_tx_queues;
	info->socket = (int16_t)rte_eth_dev_socket_id(port);
	info->tx_multi_segs = (dev.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	info->rss_l4_src = (dev.flow_type_rss_offloads & RSS_UDP_SOURCE) == RSS_UDP_SOURCE;
	return 0;
}

int weft_port_configure(uint16_t port, const struct weft_port_conf *conf)
{
	struct rte_eth_conf eth;

	memset(&eth, 0, sizeof(eth));
	eth.rxmode.mtu = conf->mtu;
	if (conf->tx_multi_segs)
		eth.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (conf->rss_l4_src) {
		eth.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		eth.rx_adv_conf.rss_conf.rss_hf = RSS_UDP_SOURCE;
	}
	return rte_eth_dev_configure(port, conf->rx_queues, conf->tx_queues, &eth);
}

int weft_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, struct weft_pool *pool)
{
	uint16_t rx = descriptors, tx = 0;
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);

	if (rc != 0 && rc != -ENOTSUP)
		return rc;
	return rte_eth_rx_queue_setup(port, queue, rx, SOCKET_ID_ANY, NULL,
				      (struct rte_mempool *)pool);
}

int weft_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors)
{
	uint16_t rx = 0, tx = descriptors;
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);

	if (rc != 0 && rc != -ENOTSUP)
		return rc;
	return rte_eth_tx_queue_setup(port, queue, tx, SOCKET_ID_ANY, NULL);
}

/* Virtual devices lack these operations and behave as asked without them. */
static int unless_missing(int rc)
{
	return rc == -ENOTSUP ? 0 : rc;
}

int weft_port_start(uint16_t port, uint16_t mtu, int promiscuous)
{
	int rc = unless_missing(rte_eth_dev_set_mtu(port, mtu));

	if (rc == 0)
		rc = rte_eth_dev_start(port);
	if (rc != 0)
		return rc;
	rc = unless_missing(rte_eth_dev_set_link_up(port));
	if (rc == 0 && promiscuous)
		rc = unless_missing(rte_eth_promiscuous_enable(port));
	if (rc == 0)
		rc = unless_missing(rte_eth_stats_reset(port));
	if (rc != 0)
		rte_eth_dev_stop(port);
	return rc;
}

struct closing {
	uint16_t port;
	uint16_t rx_queues;
	int rc;
};

static void stop_port(void *arg)
{
	struct closing *closing = arg;

	/* What a loop-back device still holds would never return to its pool. */
	for (uint16_t queue = 0; queue < closing->rx_queues; queue++)
		weft_frames_drain(closing->port, queue);
	closing->rc = rte_eth_dev_stop(closing->port);
}

/*
 * net_memif tears a connection down on EAL's interrupt thread when the peer leaves, without a lock
 * against stop: both at once free the same memory twice. On that thread they take turns.
 */
int weft_port_close(uint16_t port, uint16_t rx_queues)
{
	struct closing closing = { .port = port, .rx_queues = rx_queues };

	if (is_memif(port)) {
		if (run_on_interrupt_thread(stop_port, &closing) != 0)
			stop_port(&closing);
		return closing.rc;
	}
	stop_port(&closing);
	int closed = rte_eth_dev_close(port);
	return closing.rc != 0 ? closing.rc : closed;
}

int weft_port_link(uint16_t port)
{
	struct rte_eth_link link;
	int rc = rte_eth_link_get_nowait(port, &link);

	return rc != 0 ? rc : link.link_status == RTE_ETH_LINK_UP;
}

int weft_port_stats(uint16_t port, struct weft_port_stats *stats)
{
	struct rte_eth_stats eth;
	int rc = rte_eth_stats_get(port, &eth);

	if (rc != 0)
		return rc;
	stats->imissed = eth.imissed;
	stats->ierrors = eth.ierrors;
	stats->oerrors = eth.oerrors;
	stats->rx_nombuf = eth.rx_nombuf;
	return 0;
}

int weft_port_xstats(uint16_t port, char (*names)[WEFT_NAME_MAX], uint64_t *values, unsigned int n)
{
	_Static_assert(sizeof(struct rte_eth_xstat_name) == WEFT_NAME_MAX, "names are copied whole");
	int named = rte_eth_xstats_get_names_by_id(port, (struct rte_eth_xstat_name *)names, n, NULL);

	if (named < 0 || (unsigned int)named > n)
		return named;
	return rte_eth_xstats_get_by_id(port, NULL, values, n);
}
