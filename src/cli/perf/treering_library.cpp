#include "cli/perf/treering_library.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "treering/treering.h"

#include "perf/data.hpp"
#include "perf/worker.hpp"

namespace treering::perf {
namespace {

Failure explain(tr_result_t result) {
  if (result == TR_SUCCESS) return std::nullopt;
  return tr_get_last_error();  // begins with the result's name
}

class TreeringLibrary final : public Library {
 public:
  TreeringLibrary(tr_comm_t comm, bool registered, Memory& memory)
      : Library(memory), comm_(comm), registered_(registered) {
    tr_comm_rank(comm_, &rank_);
    tr_comm_size(comm_, &ranks_);
  }
  // On a GPU, before anything else: the calls' stream.
  Failure open_stream() { return explain(tr_stream_from_cuda(&stream_, memory().stream())); }

  ~TreeringLibrary() override {
    drop_premul();
    for (const tr_window_t window : windows_) tr_comm_deregister(comm_, window);
    // A GPU's memory is freed when no rank has it mapped.
    if (!windows_.empty() && !barrier()) (void)finish();
    for (void* memory : memory_) tr_mem_free(memory);
    if (stream_ != nullptr) tr_stream_destroy(stream_);
    tr_comm_destroy(comm_);
  }
  TreeringLibrary(const TreeringLibrary&) = delete;
  TreeringLibrary& operator=(const TreeringLibrary&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string version() const override {
    const int code = tr_version();
    return "Treering " + std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) +
           "." + std::to_string(code % 100);
  }
  Rules rules() const override { return Rules::kTreering; }
  std::vector<std::string> settings(const Case&, std::string*) override { return {""}; }

  Failure allocate(std::size_t bytes, void** a, void** b) override {
    if (!registered_) return Library::allocate(bytes, a, b);
    const bool on_gpu = stream_ != nullptr;
    if (Failure failure = on_gpu ? Library::allocate(bytes, a, b) : allocate_shareable(bytes, a, b))
      return failure;
    for (void** buffer : {a, b}) {
      tr_window_t window = nullptr;
      if (Failure failure = explain(tr_comm_register(comm_, *buffer, bytes, &window))) {
        return failure;
      }
      windows_.push_back(window);
    }
    return std::nullopt;
  }

  // `setting` is an algorithm; empty: the library's own choice.
  Failure prepare(const std::string& setting, const Case& what, void* send, void* recv) override {
    what_ = what;
    send_ = send;
    recv_ = recv;
    drop_premul();
    if (what.redop == RedOp::kPremulSum && reduces(what.op)) {
      if (Failure failure = explain(tr_op_create_premul_sum(&op_, premul_factor(rank_)))) {
        return failure;
      }
      has_premul_ = true;
    } else {
      op_ = static_cast<tr_op_t>(what.redop);
    }
    const std::string wanted = setting.empty() ? "auto" : setting;
    if (wanted == algorithm_) return std::nullopt;
    algorithm_ = wanted;
    return explain(tr_comm_set_algorithm(comm_, op_name(what.op), wanted.c_str()));
  }

  Failure barrier() override { return explain(tr_barrier(comm_, stream_)); }

  Failure finish() override {
    return stream_ == nullptr ? std::nullopt : explain(tr_stream_synchronize(stream_));
  }

  Failure run(std::uint64_t times) override {
    const auto loop = [&](const auto& call) { return explain(repeat(times, TR_SUCCESS, call)); };
    const std::uint64_t count = what_.count;
    const tr_type_t type = what_.type;
    const int root = what_.root;
    switch (what_.op) {
      case Op::kAllReduce:
        return loop([&] { return tr_all_reduce(send_, recv_, count, type, op_, comm_, stream_); });
      case Op::kReduce:
        return loop(
            [&] { return tr_reduce(send_, recv_, count, type, op_, root, comm_, stream_); });
      case Op::kBroadcast:
        return loop([&] { return tr_broadcast(send_, recv_, count, type, root, comm_, stream_); });
      case Op::kAllGather:
        return loop([&] { return tr_all_gather(send_, recv_, count, type, comm_, stream_); });
      case Op::kReduceScatter:
        return loop(
            [&] { return tr_reduce_scatter(send_, recv_, count, type, op_, comm_, stream_); });
      case Op::kGather:
        return loop([&] { return tr_gather(send_, recv_, count, type, root, comm_, stream_); });
      case Op::kScatter:
        return loop([&] { return tr_scatter(send_, recv_, count, type, root, comm_, stream_); });
      case Op::kAllToAll:
        return loop([&] { return tr_all_to_all(send_, recv_, count, type, comm_, stream_); });
      case Op::kBarrier:
        return loop([&] { return tr_barrier(comm_, stream_); });
      case Op::kScan:
        return loop([&] { return tr_scan(send_, recv_, count, type, op_, comm_, stream_); });
      case Op::kExscan:
        return loop([&] { return tr_exscan(send_, recv_, count, type, op_, comm_, stream_); });
      case Op::kSendRecv:
        return loop([&] { return shift(); });
    }
    return "unknown operation";
  }

 private:
  Failure allocate_shareable(std::size_t bytes, void** a, void** b) {
    for (void** buffer : {a, b}) {
      if (Failure failure = explain(tr_mem_alloc(buffer, bytes))) return failure;
      memory_.push_back(*buffer);
      std::memset(*buffer, 0, bytes);
    }
    return std::nullopt;
  }

  tr_result_t shift() {
    const int to = (rank_ + 1) % ranks_;
    const int from = (rank_ + ranks_ - 1) % ranks_;
    tr_group_start();
    tr_send(send_, what_.count, what_.type, to, comm_, stream_);
    tr_recv(recv_, what_.count, what_.type, from, comm_, stream_);
    return tr_group_end();  // with the error of any of the three
  }

  void drop_premul() {
    if (has_premul_) tr_op_destroy(op_);
    has_premul_ = false;
  }

  tr_comm_t comm_;
  tr_stream_t stream_ = nullptr;  // on the host all calls block
  bool registered_;
  int rank_ = 0;
  int ranks_ = 1;
  Case what_;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  tr_op_t op_ = TR_SUM;
  bool has_premul_ = false;
  std::string algorithm_ = "auto";
  std::vector<void*> memory_;
  std::vector<tr_window_t> windows_;
};

static_assert(static_cast<int>(RedOp::kSum) == TR_SUM && static_cast<int>(RedOp::kAvg) == TR_AVG);

Failure join(const RankPlace& place, const tr_unique_id_t& id, tr_comm_t* comm) {
  if (!place.threads) return explain(tr_comm_init_env(comm));
  return explain(tr_comm_init_rank(comm, place.ranks, id, place.rank));
}

// Ranks of different names share no memory (`treering env`).
void play_host(int hosts) {
  const char* const rank = std::getenv("TR_RANK");
  const char* const ranks = std::getenv("TR_SIZE");
  if (hosts < 2 || rank == nullptr || ranks == nullptr || std::atoi(ranks) < 1) return;
  const int host = std::atoi(rank) * hosts / std::atoi(ranks);
  ::setenv("TR_HOST_ID", ("host" + std::to_string(host)).c_str(), 1);
}

int run_rank(const WorkerOptions& options, const tr_unique_id_t& id, const RankPlace& place) {
  std::unique_ptr<Memory> cuda;
  tr_comm_t comm = nullptr;
  Failure failure;
  if (options.cuda) failure = make_cuda_memory(place.rank, &cuda);
  if (!failure) failure = join(place, id, &comm);
  if (!failure) {
    TreeringLibrary library(comm, options.registered, cuda ? *cuda : host_memory());
    if (cuda) failure = library.open_stream();
    if (!failure) return run_worker(library);
  }
  std::fprintf(stderr, "rank %d cannot join: %s\n", place.rank, failure->c_str());
  return 1;
}

}  // namespace

int run_treering_worker(const WorkerOptions& options) {
  limit_start_up();
  play_host(options.hosts);
  tr_unique_id_t id = {};
  if (options.threads > 0) {
    if (Failure failure = explain(tr_get_unique_id(&id))) {
      std::fprintf(stderr, "%s\n", failure->c_str());
      return 1;
    }
  }
  return run_ranks(options.threads,
                   [&](const RankPlace& place) { return run_rank(options, id, place); });
}

}  // namespace treering::perf
