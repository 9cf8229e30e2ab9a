/*
 * gloo::allreduce of floats over TCP: as mpi_allreduce.c. Ranks meet through files in DIRECTORY.
 *
 * gloo_allreduce COUNT WARM_UP ITERATIONS RANK RANKS ADDRESS DIRECTORY ALGORITHM
 */
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "allreduce.h"

namespace {

typedef std::shared_ptr<gloo::Context> Context;

void sum(Context context, gloo::AllreduceOptions::Algorithm algorithm, float *data, size_t count)
{
	gloo::AllreduceOptions options(context);
	options.setAlgorithm(algorithm);
	options.setOutput(data, count);
	options.setTag(3);
	options.setTimeout(std::chrono::hours(1));
	options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) {
		gloo::sum<float>(to, a, b, n);
	});
	gloo::allreduce(options);
}

/* What sums `data` in place. What an algorithm prepares once is prepared here, untimed. */
std::function<void()> summing(const std::string &name, Context context, float *data, size_t count)
{
	typedef gloo::AllreduceOptions::Algorithm Algorithm;

	if (name == "ring")
		return [=] { sum(context, Algorithm::RING, data, count); };
	if (name == "bcube")
		return [=] { sum(context, Algorithm::BCUBE, data, count); };
	if (name == "halving_doubling") {
		auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
			context, std::vector<float *>{ data }, static_cast<int>(count));
		return [=] { algorithm->run(); };
	}
	fprintf(stderr, "no algorithm %s\n", name.c_str());
	exit(2);
}

void meet(Context context, uint32_t tag)
{
	gloo::BarrierOptions options(context);
	options.setTag(tag);
	options.setTimeout(std::chrono::hours(1));
	gloo::barrier(options);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 9) {
		fprintf(stderr,
			"usage: %s COUNT WARM_UP ITERATIONS RANK RANKS ADDRESS DIRECTORY ALGORITHM\n",
			argv[0]);
		return 2;
	}
	const size_t count = std::stoull(argv[1]);
	const int warm_up = std::stoi(argv[2]), iterations = std::stoi(argv[3]);
	const int rank = std::stoi(argv[4]), ranks = std::stoi(argv[5]);

	gloo::transport::tcp::attr where;
	where.hostname = argv[6];
	auto device = gloo::transport::tcp::CreateDevice(where);
	gloo::rendezvous::FileStore store(argv[7]);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
	context->setTimeout(std::chrono::hours(1));
	context->connectFullMesh(store, device);

	std::vector<float> data(count);
	std::vector<double> seconds(static_cast<size_t>(iterations));
	struct measured measured = { seconds.data(), 0, 0, 0, 0 };
	const auto sum_once = summing(argv[8], context, data.data(), count);

	for (int i = -warm_up; i < iterations; i++) {
		fill(data.data(), count, rank);
		meet(context, 1);
		const double cpu = cpu_seconds();
		const unsigned long long sent = sent_bytes();
		meet(context, 2);
		const auto begun = std::chrono::steady_clock::now();
		sum_once();
		const auto took = std::chrono::steady_clock::now() - begun;
		const double cpu_used = cpu_seconds() - cpu;
		const unsigned long long sent_here = sent_bytes() - sent;
		/* Nobody compares on a core that another rank still needs. */
		meet(context, 6);
		if (i < 0)
			continue;
		seconds[static_cast<size_t>(measured.count++)] = std::chrono::duration<double>(took).count();
		measured.cpu_seconds += cpu_used;
		measured.sent_bytes += sent_here;
		measured.wrong += count_wrong(data.data(), count, ranks);
	}
	meet(context, 4);
	print_measured(rank, &measured);
	meet(context, 5);
	return 0;
}
