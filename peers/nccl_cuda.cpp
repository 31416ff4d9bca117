// NCCL as a peer: the ranks of `treering perf --device cuda --against nccl`.
//
//   treering-peer-nccl --check N     can N ranks run here? Exit status 0, or 1 and one line why not
//   treering-peer-nccl --threads N   all N ranks, as threads
//   treering-peer-nccl               one rank of those that `treering run` started
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

#include "peers/nccl_api_cuda.hpp"
#include "perf/wire.hpp"
#include "perf/worker.hpp"

namespace treering::perf {
namespace {

// May `ranks` ranks run here?
Failure check_places(const Nccl& nccl, int ranks) {
  if (Failure failure = why_no_cuda()) return failure;
  int devices = 0;
  (void)cudaGetDeviceCount(&devices);
  if (ranks <= devices || nccl.version >= kMultiRankVersion) return std::nullopt;
  return nccl.version_text() + " puts one rank on a GPU (2.30.3 and later can put several), and " +
         (devices == 1 ? "there is 1 GPU" : "there are " + std::to_string(devices) + " GPUs") +
         ": use -n " + std::to_string(devices) + ", or set TREERING_NCCL to a newer libnccl.so.2";
}

// NCCL's number of a type.
int type_number(tr_type_t type) {
  constexpr int kNumbers[TR_NUM_TYPES] = {0, 1, 2, 3, 4, 5, 6, 9, 7, 8, 10, 11};
  return kNumbers[type];
}
int op_number(RedOp op) {
  constexpr int kNumbers[kNumRedOps] = {0, 1, 3, 2, 4, -1};  // premul_sum's is made
  return kNumbers[static_cast<int>(op)];
}
// premul_factor, which is 1 or 2, in the bits of a type.
std::uint64_t factor_bits(tr_type_t type, double factor) {
  const bool two = factor == 2;
  if (type == TR_FLOAT16) return two ? 0x4000 : 0x3c00;
  if (type == TR_BFLOAT16) return two ? 0x4000 : 0x3f80;
  if (type == TR_FLOAT32) return two ? 0x40000000 : 0x3f800000;
  return two ? 0x4000000000000000 : 0x3ff0000000000000;
}

class NcclLibrary final : public Library {
 public:
  NcclLibrary(const Nccl& nccl, NcclComm comm, const RankPlace& place, Memory& memory)
      : Library(memory),
        nccl_(nccl),
        comm_(comm),
        place_(place),
        stream_(static_cast<cudaStream_t>(memory.stream())) {}
  ~NcclLibrary() override {
    drop_premul();
    (void)cudaFree(token_);
    (void)nccl_.destroy(comm_);
  }
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  int rank() const override { return place_.rank; }
  int ranks() const override { return place_.ranks; }
  std::string version() const override { return nccl_.version_text(); }

  std::vector<std::string> settings(const Case& what, std::string* why) override {
    const bool is_float8 = what.type == TR_FLOAT8_E4M3 || what.type == TR_FLOAT8_E5M2;
    const char* missing = nullptr;
    if (what.op == Op::kBarrier) missing = "NCCL has no barrier";
    if (what.op == Op::kScan || what.op == Op::kExscan) missing = "NCCL has no scan";
    if (reduces(what.op)) {
      if (is_float8 && nccl_.version < kFloat8Version) missing = "8-bit floats came with NCCL 2.24";
      if (what.redop == RedOp::kAvg && !is_float(what.type)) {
        missing = "NCCL rounds averages of integers by a rule of its own";
      }
      if (what.redop == RedOp::kPremulSum && is_float8) {
        missing = "the factors of 8-bit floats are not measured";
      }
    }
    if (missing == nullptr) return {""};
    *why = missing;
    return {};
  }

  Failure prepare(const std::string&, const Case& what, void* send, void* recv) override {
    what_ = what;
    send_ = static_cast<char*>(send);
    recv_ = static_cast<char*>(recv);
    type_ = type_number(what.type);
    drop_premul();
    op_ = op_number(what.redop);
    if (!reduces(what.op) || what.redop != RedOp::kPremulSum) return std::nullopt;
    std::uint64_t factor = factor_bits(what.type, premul_factor(rank()));
    constexpr int kHostImmediate = 1;
    const int code = nccl_.create_premul(&op_, &factor, type_, kHostImmediate, comm_);
    has_premul_ = code == kNcclSuccess;
    return nccl_.explain("ncclRedOpCreatePreMulSum", code);
  }

  // As nccl-tests has it: the sum of a byte.
  Failure barrier() override {
    if (token_ == nullptr && cudaMalloc(&token_, 1) != cudaSuccess) return "cudaMalloc failed";
    return nccl_.explain("ncclAllReduce",
                         nccl_.all_reduce(token_, token_, 1, 0, 0, comm_, stream_));
  }

  Failure finish() override {
    if (const cudaError_t error = cudaStreamSynchronize(stream_); error != cudaSuccess) {
      return std::string("cudaStreamSynchronize: ") + cudaGetErrorString(error);
    }
    int code = kNcclSuccess;
    if (Failure failure = nccl_.explain("ncclCommGetAsyncError", nccl_.async_error(comm_, &code))) {
      return failure;
    }
    return nccl_.explain("the communicator", code);
  }

  Failure run(std::uint64_t times) override {
    return nccl_.explain(op_name(what_.op), repeat(times, kNcclSuccess, [&] { return call(); }));
  }

 private:
  int call() {
    const std::size_t count = what_.count;
    const int root = what_.root;
    switch (what_.op) {
      case Op::kAllReduce:
        return nccl_.all_reduce(send_, recv_, count, type_, op_, comm_, stream_);
      case Op::kReduce:
        return nccl_.reduce(send_, recv_, count, type_, op_, root, comm_, stream_);
      case Op::kBroadcast:
        return nccl_.broadcast(send_, recv_, count, type_, root, comm_, stream_);
      case Op::kAllGather:
        return nccl_.all_gather(send_, recv_, count, type_, comm_, stream_);
      case Op::kReduceScatter:
        return nccl_.reduce_scatter(send_, recv_, count, type_, op_, comm_, stream_);
      default:
        return exchange();
    }
  }

  // What NCCL's users make of sends and receives.
  int exchange() {
    const std::size_t count = what_.count;
    const std::size_t part = count * type_bytes(what_.type);
    const bool at_root = rank() == what_.root;
    int code = nccl_.group_start();
    const auto send = [&](const char* from, int to) {
      if (code == kNcclSuccess) code = nccl_.send(from, count, type_, to, comm_, stream_);
    };
    const auto receive = [&](char* to, int from) {
      if (code == kNcclSuccess) code = nccl_.recv(to, count, type_, from, comm_, stream_);
    };
    if (what_.op == Op::kSendRecv) {
      send(send_, (rank() + 1) % ranks());
      receive(recv_, (rank() + ranks() - 1) % ranks());
    }
    const bool in_place_root = what_.in_place != 0 && at_root;
    for (int p = 0; p < ranks(); ++p) {
      const std::size_t at = static_cast<std::size_t>(p) * part;
      const bool stays = in_place_root && p == rank();
      if (what_.op == Op::kAllToAll) send(send_ + at, p), receive(recv_ + at, p);
      if (what_.op == Op::kGather && at_root && !stays) receive(recv_ + at, p);
      if (what_.op == Op::kScatter && at_root && !stays) send(send_ + at, p);
    }
    if (what_.op == Op::kGather && !in_place_root) send(send_, what_.root);
    if (what_.op == Op::kScatter && !in_place_root) receive(recv_, what_.root);
    const int ended = nccl_.group_end();
    return code != kNcclSuccess ? code : ended;
  }

  void drop_premul() {
    if (has_premul_) (void)nccl_.destroy_op(op_, comm_);
    has_premul_ = false;
  }

  const Nccl& nccl_;
  NcclComm comm_;
  RankPlace place_;
  cudaStream_t stream_;
  Case what_;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  int type_ = 0;
  int op_ = 0;
  bool has_premul_ = false;
  void* token_ = nullptr;
};

// Processes meet in a file of the run's private directory.
Failure share_id(const Nccl& nccl, int rank, NcclId* id) {
  const char* dir = std::getenv(kDirVariable);
  if (dir == nullptr) return "this is started by `treering perf --device cuda --against nccl`";
  const std::string path = std::string(dir) + "/nccl-id", draft = path + ".new";
  if (rank == 0) {
    if (Failure failure = nccl.explain("ncclGetUniqueId", nccl.get_id(id))) return failure;
    const Fd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
    const bool ok = file.is_open() && ::write(file.fd(), id, sizeof *id) == sizeof *id &&
                    ::rename(draft.c_str(), path.c_str()) == 0;
    return ok ? std::nullopt : Failure("cannot write " + path);
  }
  for (;;) {  // limit_start_up() ends it
    const Fd file(::open(path.c_str(), O_RDONLY));
    if (file.is_open() && ::read(file.fd(), id, sizeof *id) == sizeof *id) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int run_rank(const Nccl& nccl, NcclId id, const RankPlace& place) {
  std::unique_ptr<Memory> memory;
  NcclComm comm = nullptr;
  Failure failure = make_cuda_memory(place.rank, &memory);
  if (!failure && !place.threads) failure = share_id(nccl, place.rank, &id);
  if (!failure) {
    failure = nccl.explain("ncclCommInitRank", nccl.init_rank(&comm, place.ranks, id, place.rank));
  }
  if (failure) {
    std::fprintf(stderr, "rank %d cannot join: %s\n", place.rank, failure->c_str());
    return 1;
  }
  NcclLibrary library(nccl, comm, place, *memory);
  return run_worker(library);
}

int run(int argc, char** argv) {
  const std::string option = argc > 2 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  limit_start_up();
  Nccl nccl;
  Failure failure = open_nccl(&nccl);
  if (!failure && option == "--check") failure = check_places(nccl, number);
  NcclId id = {};
  const int threads = option == "--threads" ? number : 0;
  if (!failure && threads > 0) failure = nccl.explain("ncclGetUniqueId", nccl.get_id(&id));
  if (failure) {
    std::fprintf(stderr, "%s\n", failure->c_str());
    return 1;
  }
  if (option == "--check") return 0;
  return run_ranks(threads, [&](const RankPlace& place) { return run_rank(nccl, id, place); });
}

}  // namespace
}  // namespace treering::perf

int main(int argc, char** argv) { return treering::perf::run(argc, argv); }
