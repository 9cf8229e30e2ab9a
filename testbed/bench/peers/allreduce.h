/* What both peers' programs do alike: the numbers, the check and the row that they print. */
#ifndef PEERS_ALLREDUCE_H
#define PEERS_ALLREDUCE_H

#include <stdio.h>
#include <stdlib.h>

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

/* As a row of `weft bench allreduce --format json`. */
static inline void print_row(const char *peer, size_t count, int ranks, double seconds, size_t wrong)
{
	printf("{\"peer\":\"%s\",\"bytes\":%zu,\"workers\":%d,\"type\":\"f32\",\"time_us\":%.1f,"
	       "\"algbw_bytes_per_sec\":%.0f,\"wrong\":%zu}\n",
	       peer, count * sizeof(float), ranks, seconds * 1e6,
	       (double)(count * sizeof(float)) / seconds, wrong);
	fflush(stdout);
}

#endif
