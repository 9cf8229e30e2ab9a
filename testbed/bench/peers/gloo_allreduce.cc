/*
 * gloo::allreduce of floats over TCP: as mpi_allreduce.c, but every rank prints its own mean and the
 * script takes the slowest. Ranks meet through files in DIRECTORY.
 *
 * gloo_allreduce LABEL COUNT ITERATIONS RANK RANKS ADDRESS DIRECTORY
 */
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "allreduce.h"

namespace {

void sum(std::shared_ptr<gloo::Context> context, float *data, size_t count, uint32_t tag)
{
	gloo::AllreduceOptions options(context);
	options.setOutput(data, count);
	options.setTag(tag);
	options.setTimeout(std::chrono::minutes(10));
	options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) {
		gloo::sum<float>(to, a, b, n);
	});
	gloo::allreduce(options);
}

void meet(std::shared_ptr<gloo::Context> context, uint32_t tag)
{
	gloo::BarrierOptions options(context);
	options.setTag(tag);
	gloo::barrier(options);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 8) {
		fprintf(stderr, "usage: %s LABEL COUNT ITERATIONS RANK RANKS ADDRESS DIRECTORY\n", argv[0]);
		return 2;
	}
	const size_t count = std::stoull(argv[2]);
	const int iterations = std::stoi(argv[3]), rank = std::stoi(argv[4]), ranks = std::stoi(argv[5]);

	gloo::transport::tcp::attr where;
	where.hostname = argv[6];
	auto device = gloo::transport::tcp::CreateDevice(where);
	gloo::rendezvous::FileStore store(argv[7]);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
	context->connectFullMesh(store, device);

	std::vector<float> data(count);
	fill(data.data(), count, rank);
	sum(context, data.data(), count / 100, 1);
	double seconds = 0;
	size_t wrong = 0;

	for (int i = 0; i < iterations; i++) {
		fill(data.data(), count, rank);
		meet(context, 2);
		const auto begun = std::chrono::steady_clock::now();
		sum(context, data.data(), count, 3);
		seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
		wrong += count_wrong(data.data(), count, ranks);
	}
	print_row(argv[1], count, ranks, seconds / iterations, wrong);
	meet(context, 4);
	return 0;
}
