// Open MPI (or another MPI-3) as a backend of the parallelism layer, for comparison: the trainer
// with MPI's non-blocking operations in place of Treering's.
//
// Linked whole, it registers itself as "mpi". Differences from "treering": counts are ints, 16-bit
// floats are moved but not summed, sums are in no promised order, and operations progress while
// somebody waits.
#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <functional>
#include <mpi.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"

#include "peers/comm_deadline.hpp"

namespace treering::peers {
namespace {

using tr::Error;
using tr::Result;
using tr::Status;
using tr::par::Comm;
using tr::par::DType;
using tr::par::Reduction;
using tr::par::View;

Status explain(const char* call, int code) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error{TR_SYSTEM_ERROR, std::string(call) + ": " + text};
}

MPI_Datatype datatype(DType type) {
  return type == DType::kFloat64   ? MPI_DOUBLE
         : type == DType::kFloat32 ? MPI_FLOAT
                                   : MPI_UINT16_T;  // moved only
}

class MpiComm final : public Comm {
 public:
  MpiComm(MPI_Comm comm, bool is_world) : comm_(comm), is_world_(is_world) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~MpiComm() override {
    (void)wait_all();
    if (is_world_) {
      MPI_Finalize();
    } else {
      MPI_Comm_free(&comm_);
    }
  }

  const char* backend() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // MPI begins collectives in issue order, and may end them in another.
  Status wait(Mark mark) override {
    const auto of = [&](bool is_message) {
      return [=](const Pending& p) {
        return p.is_message == is_message && (is_message ? p.mark == mark : p.mark <= mark);
      };
    };
    for (const Pending& p : pending_) {
      if (p.mark == mark) return end_those(of(p.is_message));
    }
    return end_those(of(false));
  }
  Status wait_all() override {
    return end_those([](const Pending&) { return true; });
  }

  Status set_rank_order(bool on) override {
    if (!on) return {};
    return Error{TR_UNSUPPORTED,
                 "mpi: MPI promises no order of its sums: use the treering backend"};
  }

 protected:
  Status do_all_reduce(const View& send, const View& recv, Reduction op) override {
    const void* from = send.data == recv.data ? MPI_IN_PLACE : send.data;
    return reduction("MPI_Iallreduce", send, recv, {}, [&](MPI_Request* request) {
      return MPI_Iallreduce(from, recv.data, count(send), datatype(send.type),
                            op == Reduction::kSum ? MPI_SUM : MPI_MAX, comm_, request);
    });
  }
  // The part that stays may lie in what is sent, which MPI refuses: it arrives beside it.
  Status do_reduce_scatter(const View& send, const View& recv) override {
    Staged staged;
    staged.bytes.resize(recv.bytes());
    staged.to = recv.data;
    void* arrives = staged.bytes.data();
    return reduction(
        "MPI_Ireduce_scatter_block", send, recv, std::move(staged), [&](MPI_Request* request) {
          return MPI_Ireduce_scatter_block(send.data, arrives, count(recv), datatype(send.type),
                                           MPI_SUM, comm_, request);
        });
  }
  Status do_all_gather(const View& send, const View& recv) override {
    const void* own = static_cast<const std::byte*>(recv.data) + send.bytes() * rank_;
    const void* from = send.data == own ? MPI_IN_PLACE : send.data;
    return issue("MPI_Iallgather", send, recv, {}, [&](MPI_Request* request) {
      return MPI_Iallgather(from, count(send), datatype(send.type), recv.data, count(send),
                            datatype(send.type), comm_, request);
    });
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    const int part = count(send) / size_;
    return issue("MPI_Ialltoall", send, recv, {}, [&](MPI_Request* request) {
      return MPI_Ialltoall(send.data, part, datatype(send.type), recv.data, part,
                           datatype(send.type), comm_, request);
    });
  }
  Status do_broadcast(const View& data, int root) override {
    return issue("MPI_Ibcast", data, data, {}, [&](MPI_Request* request) {
      return MPI_Ibcast(data.data, count(data), datatype(data.type), root, comm_, request);
    });
  }
  Status do_send(const View& data, int peer) override {
    return issue("MPI_Isend", data, data, {.is_message = true}, [&](MPI_Request* request) {
      return MPI_Isend(data.data, count(data), datatype(data.type), peer, 0, comm_, request);
    });
  }
  Status do_recv(const View& data, int peer) override {
    return issue("MPI_Irecv", data, data, {.is_message = true}, [&](MPI_Request* request) {
      return MPI_Irecv(data.data, count(data), datatype(data.type), peer, 0, comm_, request);
    });
  }
  Status do_barrier() override {
    const View none;
    if (Status issued = issue("MPI_Ibarrier", none, none, {},
                              [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
        !issued) {
      return issued;
    }
    return wait(last());
  }
  Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int) override {
    MPI_Comm part = MPI_COMM_NULL;
    if (Status s = explain("MPI_Comm_split", MPI_Comm_split(comm_, color, new_rank, &part)); !s) {
      return s.error();
    }
    return std::unique_ptr<Comm>(new MpiComm(part, false));
  }

 private:
  // What is not where it belongs before the operation has ended; and is it a message?
  struct Staged {
    std::vector<std::byte> bytes = {};
    void* to = nullptr;
    bool is_message = false;
  };
  struct Pending {
    Mark mark;
    const char* call;
    MPI_Request request;
    View send, recv;
    Staged staged;
    bool is_message;
  };

  static int count(const View& view) { return static_cast<int>(view.elements()); }
  static bool overlap(const View& a, const View& b) {
    const auto* x = static_cast<const std::byte*>(a.data);
    const auto* y = static_cast<const std::byte*>(b.data);
    return !a.is_empty() && !b.is_empty() && std::less<>()(x, y + b.bytes()) &&
           std::less<>()(y, x + a.bytes());
  }

  template <class Call>
  Status reduction(const char* name, const View& send, const View& recv, Staged staged,
                   const Call& call) {
    if (size_of(send.type) == 2) {
      return Error{TR_UNSUPPORTED,
                   std::string("mpi: MPI cannot sum ") + tr::par::name_of(send.type)};
    }
    return issue(name, send, recv, std::move(staged), call);
  }

  template <class Call>
  Status issue(const char* name, const View& send, const View& recv, Staged staged,
               const Call& call) {
    if (send.elements() > INT_MAX || recv.elements() > INT_MAX) {
      return Error{TR_UNSUPPORTED, std::string("mpi: ") + name + ": MPI's counts are ints"};
    }
    // MPI's operations run side by side: one that uses the memory of an earlier one waits for it.
    const auto uses_it = [&](const Pending& p) {
      return overlap(p.recv, send) || overlap(p.recv, recv) || overlap(p.send, recv);
    };
    if (Status ended = end_those(uses_it); !ended) return ended;
    MPI_Request request = MPI_REQUEST_NULL;
    if (Status issued = explain(name, call(&request)); !issued) return issued;
    const bool is_message = staged.is_message;
    pending_.push_back({last(), name, request, send, recv, std::move(staged), is_message});
    return {};
  }

  template <class Which>
  Status end_those(const Which& which) {
    Status first;
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (!which(*it)) {
        ++it;
        continue;
      }
      Status ended = end(*it);
      if (first.ok()) first = std::move(ended);
      it = pending_.erase(it);
    }
    return first;
  }

  Status end(Pending& pending) {
    const auto deadline = std::chrono::steady_clock::now() + comm_deadline();
    for (int done = 0;;) {
      if (Status s = explain(pending.call, MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE));
          !s) {
        return s;
      }
      if (done != 0) break;
      if (std::chrono::steady_clock::now() > deadline) {
        return Error{TR_TIMEOUT, std::string("mpi: ") + pending.call + " did not end within " +
                                     std::to_string(comm_deadline().count()) + " ms"};
      }
      std::this_thread::yield();
    }
    const Staged& staged = pending.staged;
    if (!staged.bytes.empty()) std::memcpy(staged.to, staged.bytes.data(), staged.bytes.size());
    return {};
  }

  MPI_Comm comm_;
  bool is_world_;
  int rank_ = 0, size_ = 1;
  std::deque<Pending> pending_;  // in issue order
};

Result<std::unique_ptr<Comm>> make_world() {
  int is_initialized = 0, is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized != 0 || is_finalized != 0) {
    return Error{TR_INVALID_USAGE, "mpi: a process has one world, once"};
  }
  if (Status s = explain("MPI_Init", MPI_Init(nullptr, nullptr)); !s) return s.error();
  return std::unique_ptr<Comm>(new MpiComm(MPI_COMM_WORLD, true));
}

[[maybe_unused]] const bool kRegistered = (tr::par::register_backend("mpi", make_world), true);

}  // namespace
}  // namespace treering::peers
