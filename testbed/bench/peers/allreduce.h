/* What the peers' programs do alike: the numbers, the check, and the line that each rank prints. */
#ifndef PEERS_ALLREDUCE_H
#define PEERS_ALLREDUCE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Small integers, so that every order of additions gives the same float. */
static inline float contribution(size_t index, int rank)
{
	return (float)((index * 7 + (size_t)rank * 13) % 1000);
}

static inline void fill(float *data, size_t count, int rank)
{
	for (size_t i = 0; i < count; i++)
		data[i] = contribution(i, rank);
}

static inline size_t count_wrong(const float *data, size_t count, int ranks)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++) {
		float sum = 0;

		for (int rank = 0; rank < ranks; rank++)
			sum += contribution(i, rank);
		wrong += data[i] != sum;
	}
	return wrong;
}

/* CPU seconds of this process, threads and kernel included. */
static inline double cpu_seconds(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Bytes that the interfaces of this network namespace have sent, but for the loopback. */
static inline unsigned long long sent_bytes(void)
{
	char line[512];
	unsigned long long total = 0, sent;
	FILE *file = fopen("/proc/self/net/dev", "r");

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		char *colon = strchr(line, ':');

		if (colon != NULL && strstr(line, "lo:") == NULL &&
		    sscanf(colon + 1, "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &sent) == 1)
			total += sent;
	}
	fclose(file);
	return total;
}

/* What one rank measured over all of its timed sums. */
struct measured {
	double *seconds;
	int count;
	double cpu_seconds;
	unsigned long long sent_bytes;
	size_t wrong;
};

/* One line, in one write: the lines of several ranks may share a pipe. */
static inline void print_measured(int rank, const struct measured *measured)
{
	size_t room = 256 + 32 * (size_t)measured->count;
	char *line = (char *)malloc(room);
	size_t at;

	if (line == NULL)
		exit(1);
	at = (size_t)snprintf(line, room, "{\"rank\":%d,\"cpu_ns\":%.0f,\"wire_bytes\":%llu,\"wrong\":%zu,"
			      "\"times_ns\":[", rank, measured->cpu_seconds * 1e9,
			      measured->sent_bytes, measured->wrong);
	for (int i = 0; i < measured->count; i++)
		at += (size_t)snprintf(line + at, room - at, "%s%.0f", i ? "," : "",
				       measured->seconds[i] * 1e9);
	snprintf(line + at, room - at, "]}\n");
	fputs(line, stdout);
	fflush(stdout);
	free(line);
}

#endif
