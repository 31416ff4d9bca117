// Open MPI (or another MPI) as a worker of `treering perf`. Plain MPI-3 calls; what MPI lacks (8-
// and 16-bit floats in reductions, averages) is refused rather than built here.
#include <climits>
#include <cstdio>
#include <cstring>
#include <mpi.h>
#include <optional>
#include <string>
#include <vector>

#include "perf/case.hpp"
#include "perf/failure.hpp"
#include "perf/worker.hpp"

namespace treering::perf {
namespace {

std::optional<MPI_Datatype> datatype(tr_type_t type) {
  switch (type) {
    case TR_INT8:
      return MPI_INT8_T;
    case TR_UINT8:
      return MPI_UINT8_T;
    case TR_INT32:
      return MPI_INT32_T;
    case TR_UINT32:
      return MPI_UINT32_T;
    case TR_INT64:
      return MPI_INT64_T;
    case TR_UINT64:
      return MPI_UINT64_T;
    case TR_FLOAT32:
      return MPI_FLOAT;
    case TR_FLOAT64:
      return MPI_DOUBLE;
    default:
      return std::nullopt;
  }
}

std::optional<MPI_Op> operation(RedOp redop) {
  switch (redop) {
    case RedOp::kSum:
      return MPI_SUM;
    case RedOp::kProd:
      return MPI_PROD;
    case RedOp::kMin:
      return MPI_MIN;
    case RedOp::kMax:
      return MPI_MAX;
    default:
      return std::nullopt;
  }
}

class MpiLibrary final : public Library {
 public:
  MpiLibrary() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  // "Open MPI v4.1.4, package: ..." becomes "Open MPI v4.1.4".
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    return std::string(text).substr(0, std::strcspn(text, ",\n"));
  }

  std::vector<std::string> settings(const Case& what, std::string* why) override {
    if (reduces(what.op) && !operation(what.redop)) {
      *why = std::string("MPI has no ") + red_op_name(what.redop);
    } else if (reduces(what.op) && !datatype(what.type)) {
      *why = std::string("MPI cannot reduce ") + type_name(what.type);
    } else if (what.count * type_bytes(what.type) > INT_MAX) {
      *why = "MPI counts are ints";
    } else {
      return {""};
    }
    return {};
  }

  Failure prepare(const std::string&, const Case& what, void* send, void* recv) override {
    what_ = what;
    send_ = send;
    recv_ = recv;
    type_ = datatype(what.type).value_or(MPI_BYTE);
    op_ = operation(what.redop).value_or(MPI_OP_NULL);
    // A type that MPI does not know is moved as bytes.
    count_ =
        static_cast<int>(datatype(what.type) ? what.count : what.count * type_bytes(what.type));
    return std::nullopt;
  }

  Failure barrier() override { return explain(MPI_Barrier(MPI_COMM_WORLD)); }

  Failure run(std::uint64_t times) override {
    const MPI_Comm comm = MPI_COMM_WORLD;
    const int root = what_.root;
    const bool at_root = rank_ == root;
    const bool in_place = what_.in_place != 0;
    const void* send = in_place ? MPI_IN_PLACE : send_;
    const auto loop = [&](const auto& call) { return explain(repeat(times, MPI_SUCCESS, call)); };
    switch (what_.op) {
      case Op::kAllReduce:
        return loop([&] { return MPI_Allreduce(send, recv_, count_, type_, op_, comm); });
      case Op::kReduce: {
        const void* from = at_root ? send : send_;
        return loop([&] { return MPI_Reduce(from, recv_, count_, type_, op_, root, comm); });
      }
      case Op::kBroadcast:
        return broadcast(times);
      case Op::kAllGather:
        return loop([&] { return MPI_Allgather(send, count_, type_, recv_, count_, type_, comm); });
      case Op::kReduceScatter:
        return reduce_scatter(times);
      case Op::kGather: {
        const void* from = at_root ? send : send_;
        return loop(
            [&] { return MPI_Gather(from, count_, type_, recv_, count_, type_, root, comm); });
      }
      case Op::kScatter: {
        void* to = at_root && in_place ? MPI_IN_PLACE : recv_;
        return loop(
            [&] { return MPI_Scatter(send_, count_, type_, to, count_, type_, root, comm); });
      }
      case Op::kAllToAll:
        return loop([&] { return MPI_Alltoall(send, count_, type_, recv_, count_, type_, comm); });
      case Op::kBarrier:
        return loop([&] { return MPI_Barrier(comm); });
      case Op::kScan:
        return loop([&] { return MPI_Scan(send, recv_, count_, type_, op_, comm); });
      case Op::kExscan:
        return loop([&] { return MPI_Exscan(send, recv_, count_, type_, op_, comm); });
      case Op::kSendRecv: {
        const int to = (rank_ + 1) % ranks_;
        const int from = (rank_ + ranks_ - 1) % ranks_;
        return loop([&] {
          return MPI_Sendrecv(send_, count_, type_, to, 0, recv_, count_, type_, from, 0, comm,
                              MPI_STATUS_IGNORE);
        });
      }
    }
    return "unknown operation";
  }

 private:
  // MPI broadcasts in place only: out of place the root has a copy to make, as any caller would.
  Failure broadcast(std::uint64_t times) {
    const bool copies = rank_ == what_.root && what_.in_place == 0;
    const std::size_t bytes = what_.count * type_bytes(what_.type);
    return explain(repeat(times, MPI_SUCCESS, [&] {
      if (copies) std::memcpy(recv_, send_, bytes);
      return MPI_Bcast(recv_, count_, type_, what_.root, MPI_COMM_WORLD);
    }));
  }

  // MPI's in-place result stands at the start of the buffer, the API's at the rank's own part of
  // it.
  Failure reduce_scatter(std::uint64_t times) {
    if (what_.in_place == 0) {
      return explain(repeat(times, MPI_SUCCESS, [&] {
        return MPI_Reduce_scatter_block(send_, recv_, count_, type_, op_, MPI_COMM_WORLD);
      }));
    }
    const std::size_t bytes = what_.count * type_bytes(what_.type);
    return explain(repeat(times, MPI_SUCCESS, [&] {
      const int code =
          MPI_Reduce_scatter_block(MPI_IN_PLACE, send_, count_, type_, op_, MPI_COMM_WORLD);
      if (rank_ != 0) std::memcpy(recv_, send_, bytes);
      return code;
    }));
  }

  static Failure explain(int code) {
    if (code == MPI_SUCCESS) return std::nullopt;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return std::string(text);
  }

  int rank_ = 0;
  int ranks_ = 1;
  Case what_;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
  MPI_Op op_ = MPI_OP_NULL;
};

}  // namespace
}  // namespace treering::perf

int main(int argc, char** argv) {
  treering::perf::limit_start_up();
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
    std::fprintf(stderr, "MPI_Init failed\n");
    return 1;
  }
  int status = 0;
  {
    treering::perf::MpiLibrary library;
    status = treering::perf::run_worker(library);
  }
  MPI_Finalize();
  return status;
}
