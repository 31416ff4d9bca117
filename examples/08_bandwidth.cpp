// Lesson 8: measuring bandwidth right.
//
// - Warm up: the first calls map memory and choose an algorithm.
// - A barrier before each timed call, or a late rank's delay counts as transfer time.
// - Take the median of several calls, and the slowest rank's time: a collective is done when all
//   ranks are.
// - algbw = S / t says how fast the program sees its S bytes done. It cannot be compared between
//   numbers of ranks. busbw = algbw * factor can: it is the bytes that must cross each rank's link
//   per second. Factors: all_reduce 2 (n-1)/n; reduce_scatter and all_gather (n-1)/n.
// - S is the size of the *whole* vector: for reduce_scatter n times the output, for all_gather n
//   times the input. Taking the output for S makes reduce_scatter look n times slower than it is.
//   The slip is in print: 4 GPUs, 400 MiB out in 3.92 ms, "about 70 GB/s", when all_reduce on the
//   same machine has 278. Put right it is 299 GiB/s. The last table shows both on this machine.
//
// On a GPU these are blocking calls, whose kernels are started and waited for one by one.
//
//   treering run -n 4 -- 08_bandwidth [MiB] [--device cuda]    (default 16: the largest vector)
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "treering/treering.hpp"

#include "device.hpp"
#include "must.hpp"

using example::check;
using example::must;

double median_seconds(tr::Communicator& comm, const std::function<void()>& call) {
  constexpr int kWarmUps = 5, kTimed = 11;
  for (int i = 0; i < kWarmUps; ++i) call();
  std::array<double, kTimed> times{};
  for (double& t : times) {
    must(comm.barrier());
    const auto start = std::chrono::steady_clock::now();
    call();
    t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  must(comm.all_reduce(times, tr::kMax));
  std::nth_element(times.begin(), times.begin() + kTimed / 2, times.end());
  return times[kTimed / 2];
}

int main(int argc, char** argv) {
  const auto device = example::chosen_device(argc, argv);
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int n = comm.size();
  const bool speaks = comm.rank() == 0;
  const double mib = argc > 1 ? std::atof(argv[1]) : 16.0;
  check(mib > 0.0 && mib <= 1024.0, "the argument is a number of MiB, at most 1024");
  const auto largest = static_cast<std::size_t>(mib * (1 << 20) / sizeof(float)) / n * n;
  check(largest > 0, "the vector has at least one element per rank");

  const auto whole = example::copy_of(std::vector<float>(largest, 1.0f), *device);
  const auto result = example::make_array<float>(*device, largest);
  const auto holds = [&](std::size_t i, float value) {
    return example::element(result, i) == value;
  };
  if (speaks) {
    std::printf("%d rank(s); busbw in GB/s; S is the whole vector\n", n);
    std::printf("%12s  %14s  %14s  %14s\n", "S bytes", "all_reduce", "reduce_scatter",
                "all_gather");
  }
  const double share = static_cast<double>(n - 1) / n;  // of S, that reduce_scatter must move
  double scatter_seconds = 0.0;
  for (std::size_t count = std::min<std::size_t>(1024 / sizeof(float) * n, largest);;
       count = std::min(count * 8, largest)) {
    const auto all_in = whole.span().first(count), all_out = result.span().first(count);
    const auto part_in = all_in.first(count / n), part_out = all_out.first(count / n);
    const double gigabytes = static_cast<double>(count * sizeof(float)) / 1e9;

    const double ar =
        median_seconds(comm, [&] { must(comm.all_reduce(all_in, all_out, tr::kSum)); });
    check(holds(count - 1, static_cast<float>(n)), "the sum of n ones is n");
    const double rs =
        median_seconds(comm, [&] { must(comm.reduce_scatter(all_in, part_out, tr::kSum)); });
    check(holds(count / n - 1, static_cast<float>(n)), "so it is in each part");
    const double ag = median_seconds(comm, [&] { must(comm.all_gather(part_in, all_out)); });
    check(holds(count - 1, 1.0f), "the last rank's part arrived");

    if (speaks) {
      std::printf("%12zu  %14.3f  %14.3f  %14.3f\n", count * sizeof(float),
                  2 * share * gigabytes / ar, share * gigabytes / rs, share * gigabytes / ag);
    }
    scatter_seconds = rs;
    if (count == largest) break;
  }

  if (speaks && n == 1) {
    std::printf("one rank moves nothing: try treering run -n 4 -- 08_bandwidth\n");
  } else if (speaks) {
    const double whole_gb = static_cast<double>(largest * sizeof(float)) / 1e9;
    const double right = share * whole_gb / scatter_seconds;
    std::printf("\nreduce_scatter of the last row, %.3f ms, counted two ways:\n",
                1e3 * scatter_seconds);
    std::printf(
        "  S = the output (%.1f MB):   (n-1)/n S / t = %.3f GB/s   wrong, %d times too small\n",
        1e3 * whole_gb / n, right / n, n);
    std::printf("  S = n outputs  (%.1f MB):   (n-1)/n S / t = %.3f GB/s   right\n", 1e3 * whole_gb,
                right);
  }
  must(comm.destroy());
}
