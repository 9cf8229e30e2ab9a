/*
 * MPI_Allreduce of floats: WARM_UP untimed sums, then ITERATIONS timed ones, each between barriers.
 * Every rank prints what it measured; the slowest rank's time is the sum's.
 *
 * mpi_allreduce COUNT WARM_UP ITERATIONS
 */
#include <mpi.h>

#include "allreduce.h"

int main(int argc, char **argv)
{
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4) {
		fprintf(stderr, "usage: %s COUNT WARM_UP ITERATIONS\n", argv[0]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	size_t count = strtoull(argv[1], NULL, 10);
	int warm_up = atoi(argv[2]), iterations = atoi(argv[3]);
	float *data = malloc(count * sizeof(float));
	struct measured measured = { .seconds = calloc((size_t)iterations, sizeof(double)) };

	if (data == NULL || measured.seconds == NULL || count > INT32_MAX || iterations < 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int i = -warm_up; i < iterations; i++) {
		fill(data, count, rank);
		MPI_Barrier(MPI_COMM_WORLD);
		double cpu = cpu_seconds();
		unsigned long long sent = sent_bytes();
		MPI_Barrier(MPI_COMM_WORLD);
		double begun = MPI_Wtime();
		MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		double took = MPI_Wtime() - begun;
		double cpu_used = cpu_seconds() - cpu;
		unsigned long long sent_here = sent_bytes() - sent;
		/* Nobody compares on a core that another rank still needs. */
		MPI_Barrier(MPI_COMM_WORLD);
		if (i < 0)
			continue;
		measured.seconds[measured.count++] = took;
		measured.cpu_seconds += cpu_used;
		measured.sent_bytes += sent_here;
		measured.wrong += count_wrong(data, count, ranks);
	}
	print_measured(rank, &measured);
	free(data);
	MPI_Finalize();
	return 0;
}
