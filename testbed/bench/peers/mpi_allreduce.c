/*
 * MPI_Allreduce of floats: one untimed run of a hundredth of the size, then ITERATIONS timed ones
 * between barriers. Prints the slowest rank's mean, and how many elements were wrong anywhere.
 *
 * mpi_allreduce LABEL COUNT ITERATIONS
 */
#include <mpi.h>
#include <stdint.h>

#include "allreduce.h"

int main(int argc, char **argv)
{
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4) {
		fprintf(stderr, "usage: %s LABEL COUNT ITERATIONS\n", argv[0]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	size_t count = strtoull(argv[2], NULL, 10);
	int iterations = atoi(argv[3]);
	float *data = malloc(count * sizeof(float));

	if (data == NULL || count > INT32_MAX || iterations < 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	fill(data, count, rank);
	MPI_Allreduce(MPI_IN_PLACE, data, (int)(count / 100), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	double mine = 0;
	unsigned long long wrong = 0, wrong_anywhere;

	for (int i = 0; i < iterations; i++) {
		fill(data, count, rank);
		MPI_Barrier(MPI_COMM_WORLD);
		double begun = MPI_Wtime();
		MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		mine += MPI_Wtime() - begun;
		wrong += count_wrong(data, count, ranks);
	}
	double slowest;

	MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&wrong, &wrong_anywhere, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		print_row(argv[1], count, ranks, slowest / iterations, (size_t)wrong_anywhere);
	free(data);
	MPI_Finalize();
	return 0;
}
