// The driver of the ladder: ranks are threads of this process, all on one device. It runs each step
// several times on new numbers, compares every result with a sum on the CPU, and prints a table.
// See README.md.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "1_gather.cu"
#include "2_ring.cu"
#include "3_pipelined.cu"
#include "4_vectorised.cu"
#include "5_ll.cu"
#include "6_library.cu"
#include "options.hpp"

namespace ladder {
namespace {

struct Step {
  const char* name;
  const char* idea;
  // Nullptr: the library's.
  cudaError_t (*start)(const Call&, int channels, cudaStream_t);
  // What the kernel of the busiest rank loads and stores, (a n + b) S or that over n.
  const char* moved;
  double a, b;
  bool over_n;
};

constexpr Step kSteps[kNumSteps] = {
    {"1_gather", "rank 0 does it all", gather::start, "2n S", 2, 0, false},
    {"2_ring", "everybody works: a ring", ring::start, "9(n-1)/n S", 9, -9, true},
    {"3_pipelined", "slices, slots, one loop", pipelined::start, "(6n-4)/n S", 6, -4, true},
    {"4_vectorised", "16 bytes, several blocks", vectorised::start, "(6n-4)/n S", 6, -4, true},
    {"5_ll", "the flag is in the data", ll::start, "(10n-8)/n S", 10, -8, true},
    {"6_library", "the same from algos/ring.hpp", nullptr, "(6n-4)/n S", 6, -4, true},
};

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "ladder: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void must(tr_result_t result, const char* what) {
  if (result == TR_SUCCESS) return;
  std::fprintf(stderr, "ladder: %s: %s\n", what, tr_get_last_error());
  std::exit(1);
}

template <class T>
T* device_alloc(std::uint64_t count) {
  void* memory = nullptr;
  // (16 bytes more: an allocation of none would be a null pointer.)
  must(cudaMalloc(&memory, count * sizeof(T) + 16), "device memory");
  return static_cast<T*>(memory);
}

// Whole numbers, so that float sums of them are exact; other ones in every run, so that a result of
// the last one is not taken for a new one.
float input_of(int rank, std::uint64_t e, int run) {
  return static_cast<float>(
      (e * 7 + static_cast<std::uint64_t>(rank) * 1013 + static_cast<std::uint64_t>(run) * 131) %
      4099);
}

// All ranks: their memory, streams, and the communicators of step 6.
class Team {
 public:
  explicit Team(const Options& options) : options_(options), count_(options.bytes / sizeof(float)) {
    const std::uint64_t chunk_bytes = chunk_elems(count_, options.ranks) * sizeof(float);
    slot_bytes_ = std::max(kMaxChannels * kSlots * kSlotBytes, chunk_bytes);
    Call all{};
    all.size = options.ranks;
    all.count = count_;
    all.gave_up = device_alloc<std::uint32_t>(1);
    all.timeout_ns = static_cast<std::uint64_t>(options.timeout_s * 1e9);
    for (int r = 0; r < options.ranks; ++r) {
      all.peers[r] = {device_alloc<float>(count_), device_alloc<float>(count_),
                      device_alloc<Mailbox>(kMaxChannels), device_alloc<std::byte>(slot_bytes_)};
    }
    for (int r = 0; r < options.ranks; ++r) {
      calls_.push_back(all);
      calls_[r].rank = r;
      calls_[r].report = device_alloc<Report>(1);
      cudaStream_t stream = nullptr;
      must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
      streams_.push_back(stream);
    }
  }
  ~Team() {
    for (const tr_comm_t comm : comms_) (void)tr_comm_destroy(comm);
    for (const cudaStream_t stream : streams_) (void)cudaStreamDestroy(stream);
    for (const Call& call : calls_) {
      const Peer& mine = call.peers[call.rank];
      (void)cudaFree(const_cast<float*>(mine.in));
      (void)cudaFree(mine.out);
      (void)cudaFree(mine.mail);
      (void)cudaFree(mine.slots);
      (void)cudaFree(call.report);
    }
    (void)cudaFree(calls_[0].gave_up);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // The median time of several runs, in us. Or what was wrong.
  double run(const Step& step, std::string* wrong);

 private:
  void join();  // the communicators
  void prepare(int rank, int run);
  void fetch(int rank, std::vector<float>& output);
  std::string check(const Step& step, int rank, int run, const std::vector<float>& output);
  std::string who_waited(const Step& step);

  const Options& options_;
  std::uint64_t count_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<Call> calls_;  // by rank
  std::vector<cudaStream_t> streams_;
  std::vector<tr_comm_t> comms_;
};

void Team::join() {
  comms_.resize(options_.ranks);
  // What a user may have set stays.
  ::setenv("TR_PROTOCOL", "Simple", 0);
  ::setenv("TR_CUDA_CHANNELS", std::to_string(options_.library_channels).c_str(), 0);
  ::setenv("TR_TIMEOUT_S", std::to_string(options_.timeout_s).c_str(), 0);
  must(tr_comm_init_all(comms_.data(), options_.ranks), "tr_comm_init_all");
  for (const tr_comm_t comm : comms_) {
    must(tr_comm_set_algorithm(comm, "all_reduce", "ring"), "tr_comm_set_algorithm");
  }
}

// New input; all else is forgotten. (The library need not: its links' numbers go on.)
void Team::prepare(int rank, int run) {
  const Call& call = calls_[rank];
  const Peer& mine = call.peers[rank];
  const cudaStream_t stream = streams_[rank];
  std::vector<float> input(count_);
  for (std::uint64_t e = 0; e < count_; ++e) input[e] = input_of(rank, e, run);
  const auto to_device = cudaMemcpyHostToDevice;
  must(
      cudaMemcpyAsync(const_cast<float*>(mine.in), input.data(), options_.bytes, to_device, stream),
      "copying the input");
  must(cudaMemsetAsync(mine.out, 0xff, options_.bytes, stream), "filling the output with NaN");
  must(cudaMemsetAsync(mine.mail, 0, kMaxChannels * sizeof(Mailbox), stream), "zeroing the flags");
  must(cudaMemsetAsync(mine.slots, 0, slot_bytes_, stream), "zeroing the slots");
  must(cudaMemsetAsync(call.report, 0, sizeof(Report), stream), "zeroing the report");
  if (rank == 0) must(cudaMemsetAsync(call.gave_up, 0, sizeof(std::uint32_t), stream), "zeroing");
  must(cudaStreamSynchronize(stream), "preparing a run");
}

void Team::fetch(int rank, std::vector<float>& output) {
  must(cudaMemcpyAsync(output.data(), calls_[rank].peers[rank].out, options_.bytes,
                       cudaMemcpyDeviceToHost, streams_[rank]),
       "copying the result");
  must(cudaStreamSynchronize(streams_[rank]), "copying the result");
}

// Says what is wrong with a rank's output; "" if it is right.
std::string Team::check(const Step& step, int rank, int run, const std::vector<float>& output) {
  for (std::uint64_t e = 0; e < count_; ++e) {
    float sum = 0;
    for (int q = 0; q < options_.ranks; ++q) sum += input_of(q, e, run);
    if (output[e] == sum) continue;
    return std::string(step.name) + ": rank " + std::to_string(rank) + ", run " +
           std::to_string(run) + ": element " + std::to_string(e) + " is " +
           std::to_string(output[e]) + ", should be " + std::to_string(sum) + "\n";
  }
  return "";
}

// After a run: what each rank waited for when one of them gave up; "" if none did.
std::string Team::who_waited(const Step& step) {
  std::uint32_t gave_up = 0;
  must(cudaMemcpy(&gave_up, calls_[0].gave_up, sizeof gave_up, cudaMemcpyDeviceToHost), "reports");
  if (gave_up == 0) return "";
  char line[200];
  std::snprintf(line, sizeof line, "%s: a wait took more than %g s\n", step.name,
                options_.timeout_s);
  std::string text = line;
  for (const Call& call : calls_) {
    Report report;
    must(cudaMemcpy(&report, call.report, sizeof report, cudaMemcpyDeviceToHost), "reports");
    if (call.rank == options_.stall) {
      std::snprintf(line, sizeof line, "  rank %d: not started (--stall)\n", call.rank);
    } else if (report.reported == 0) {
      std::snprintf(line, sizeof line, "  rank %d: was not held up\n", call.rank);
    } else {
      const bool room = report.what == WaitFor::kRoom;
      std::snprintf(line, sizeof line,
                    "  rank %d: block %d, thread %d waited for %smessage %llu %s rank %d\n",
                    call.rank, report.block, report.thread, room ? "room for " : "",
                    static_cast<unsigned long long>(report.number), room ? "to" : "from",
                    report.peer);
    }
    text += line;
  }
  return text;
}

double Team::run(const Step& step, std::string* wrong) {
  using Clock = std::chrono::steady_clock;
  if (step.start == nullptr && comms_.empty()) join();
  const int n = options_.ranks;
  std::barrier all_ranks(n);
  std::vector<Clock::time_point> started(n), ended(n);
  std::vector<std::string> found(n);
  std::vector<double> times_us;
  std::atomic<bool> ok = true;

  const auto rank_main = [&](int rank) {
    std::vector<float> output(count_);
    for (int run = 0; run <= options_.runs; ++run) {  // the first is not timed
      prepare(rank, run);
      all_ranks.arrive_and_wait();
      started[rank] = Clock::now();
      if (rank == options_.stall) {
        // It shows what the others say.
      } else if (step.start != nullptr) {
        must(step.start(calls_[rank], options_.channels, streams_[rank]), "starting a kernel");
        must(cudaStreamSynchronize(streams_[rank]), step.name);
      } else if (library::all_reduce(calls_[rank], comms_[rank]) != TR_SUCCESS) {
        found[rank] = "6_library: rank " + std::to_string(rank) + ": " + tr_get_last_error() + "\n";
      }
      ended[rank] = Clock::now();
      // A result must be there when the own kernel has ended, whatever the other ranks still do.
      if (run == 0) fetch(rank, output);
      all_ranks.arrive_and_wait();
      if (run != 0) fetch(rank, output);  // not while the others are timed
      if (rank == 0) found[0] = who_waited(step) + found[0];
      if (!found[rank].empty()) ok.store(false, std::memory_order_relaxed);
      all_ranks.arrive_and_wait();
      if (ok.load(std::memory_order_relaxed)) found[rank] = check(step, rank, run, output);
      if (!found[rank].empty()) ok.store(false, std::memory_order_relaxed);
      all_ranks.arrive_and_wait();
      if (!ok.load(std::memory_order_relaxed)) return;
      if (rank != 0 || run == 0) continue;
      const Clock::duration slowest = *std::max_element(ended.begin(), ended.end()) -
                                      *std::min_element(started.begin(), started.end());
      times_us.push_back(std::chrono::duration<double, std::micro>(slowest).count());
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) threads.emplace_back(rank_main, r);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : found) *wrong += text;
  if (!wrong->empty()) return 0;
  std::sort(times_us.begin(), times_us.end());
  return times_us[times_us.size() / 2];
}

// Blocks that wait for each other must all be on the device.
void check_room(Options& options, const cudaDeviceProp& device) {
  int of_step_4 = 0, of_step_5 = 0;
  must(blocks_per_sm(&of_step_4, vectorised::all_reduce, kThreads, 0), "asking for room");
  must(blocks_per_sm(&of_step_5, ll::all_reduce, kThreads, 0), "asking for room");
  const int blocks = device.multiProcessorCount * std::min(of_step_4, of_step_5);
  if (options.ranks * options.channels > blocks) {
    refuse("%d ranks with %d channels need %d blocks at once, and %s holds %d: take fewer channels",
           options.ranks, options.channels, options.ranks * options.channels, device.name, blocks);
  }
  // A communicator reserves six blocks a channel: four for collectives, two for messages.
  options.library_channels = std::clamp(blocks / (6 * options.ranks), 1, options.channels);
}

int main_of(int argc, char** argv) {
  Options options = parse(argc, argv);
  cudaDeviceProp device;
  must(cudaGetDeviceProperties(&device, 0), "looking for a device");
  check_room(options, device);
  const double n = options.ranks, megabytes = static_cast<double>(options.bytes) / 1e6;
  std::printf(
      "all-reduce (sum) of %llu bytes of float32, %d ranks on %s; median of %d, slowest rank\n",
      static_cast<unsigned long long>(options.bytes), options.ranks, device.name, options.runs);
  if (std::strstr(device.name, "cudasim") != nullptr) {
    std::printf(
        "THE EMULATOR'S TIMES MEAN NOTHING FOR A GPU, not even which step is faster. Results and "
        "the\n"
        "bytes moved are the same there.\n");
  }
  std::printf("\n%-13s %-29s %10s %8s  %s\n", "step", "what is new", "time us", "GB/s",
              "the busiest rank loads and stores");
  Team team(options);
  bool all_right = true;
  for (const int number : options.steps) {
    const Step& step = kSteps[number - 1];
    std::string wrong;
    const double time_us = team.run(step, &wrong);
    if (!wrong.empty()) {
      std::printf("%-13s WRONG\n%s", step.name, wrong.c_str());
      all_right = false;
    } else {
      const double moved = (step.a * n + step.b) / (step.over_n ? n : 1);
      std::printf("%-13s %-29s %10.1f %8.3f  %-12s = %5.2f S = %.3f MB\n", step.name, step.idea,
                  time_us, megabytes / time_us * 1e3, step.moved, moved, moved * megabytes);
    }
    std::fflush(stdout);
  }
  if (all_right) std::printf("\nS: bytes, n: ranks; GB/s: S over time. All results are exact.\n");
  return all_right ? 0 : 1;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) { return ladder::main_of(argc, argv); }
