// Comm: one group of ranks, whichever library moves the bytes. What Mesh, layers, gradient
// reduction and the pipeline are written against.
//
// Every operation is enqueued and returns; a group's operations run in issue order, which must be
// the same on all its ranks. wait(mark) makes what the caller computes next come after them: it
// blocks on the host, and orders the compute stream on a device. Buffers stay until then. What was
// computed before an operation was issued is seen by it.
//
// Backends: "treering" (processes, or threads as make_threads_comms makes them); "mpi", "gloo" and
// "nccl" for comparison, where the build or the machine has them; "count", which moves nothing and
// counts what would be moved, for any number of ranks.
//
// Errors are those of the library beneath, with its whole text. Threads: one rank's thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "treering/parallel/tensor.hpp"

namespace tr::par {

enum class Operation : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
};
inline constexpr int kNumOperations = 8;
const char* name_of(Operation operation);  // "all_reduce"

// What this rank sent, counted when an operation is issued: the bytes that a ring sends (all_reduce
// 2 (n-1)/n S, reduce_scatter and all_gather (n-1)/n S, all_to_all (n-1)/n S, broadcast S where a
// ring sends), to the byte, with chunks as a ring cuts them. Receives count as calls alone.
struct Traffic {
  struct Row {
    std::int64_t calls = 0, bytes = 0, messages = 0;
  };
  std::array<Row, kNumOperations> rows = {};
  const Row& operator[](Operation operation) const { return rows[static_cast<int>(operation)]; }
  Row& operator[](Operation operation) { return rows[static_cast<int>(operation)]; }
  std::int64_t bytes() const;
  Traffic& operator+=(const Traffic& other);
};
// One call's row, for a prediction. `elements` are those of the whole vector: of what a
// reduce_scatter reads, of what an all_gather leaves. A group of one sends nothing.
Traffic::Row ring_traffic(Operation operation, std::int64_t elements, DType type, int rank,
                          int size, int root = 0);

enum class Reduction : std::uint8_t { kSum, kMax };

// Less is not worth a registration.
inline constexpr std::size_t kRegistrableBytes = 64 << 10;
// Ends a registration.
using Registration = std::shared_ptr<const void>;

class Comm {
 public:
  using Mark = std::uint64_t;  // of an operation; 0: of none

  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;
  virtual const char* backend() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool is_dry() const { return false; }  // nothing is moved: received data is undefined
  // What the group is for ("dp"), for traces. The Mesh names its groups.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  // Which ranks of the world it is of that this group is, in order; empty: it is the world.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

  // Views are contiguous. send and recv may be the same view.
  Result<Mark> all_reduce(const View& send, const View& recv, Reduction op = Reduction::kSum);
  // |send| = n |recv|, by elements; recv may be this rank's part of send.
  Result<Mark> reduce_scatter(const View& send, const View& recv);
  // |recv| = n |send|; send may be this rank's part of recv.
  Result<Mark> all_gather(const View& send, const View& recv);
  // Equal parts. |send| = |recv|, not the same memory.
  Result<Mark> all_to_all(const View& send, const View& recv);
  Result<Mark> broadcast(const View& data, int root);
  // Matched in issue order between two ranks, and not ordered with collectives. A send and a
  // receive that a rank has both issued progress together; on a device after open_messages().
  Result<Mark> send(const View& data, int peer);
  Result<Mark> recv(const View& data, int peer);
  Status barrier();  // blocks

  // For one operation, and the collectives that were issued before a collective. Again, once the
  // device has been waited for: has it failed meanwhile?
  virtual Status wait(Mark mark) = 0;
  virtual Status wait_all() = 0;

  // Collective: groups of the ranks of one colour, in this group's order. colors[q] is rank q's,
  // and everybody gives the same list, so that nobody need ask.
  virtual Result<std::unique_ptr<Comm>> split(std::span<const int> colors);
  // Collective, for buffers that stay: the backend may let peers reach `memory`, a Tensor's, while
  // the answer lives, which is not longer than the tensor and the group. Empty: it does not, as
  // that is empty.
  virtual Result<Registration> register_memory(const View& memory);
  // Collective: from now on a rank's sends and receives to ranks next to it, the last and the first
  // too, do not wait for each other. On the host they never do; a device's backend may need more
  // resources for it.
  virtual Status open_messages() { return {}; }
  // Sums fold in rank order at one place, so that their bits equal the serial sum's.
  // TR_UNSUPPORTED where the backend cannot.
  virtual Status set_rank_order(bool on) = 0;
  // A device's backend orders its operations with what is on this CUDA stream; null: the default
  // one. Groups that are split off later inherit it. Nothing on the host.
  virtual void set_compute_stream(void*) {}

 protected:
  // Each issues the operation as mark last(); the base has checked shapes, counted, and answers a
  // group of one.
  virtual Status do_all_reduce(const View& send, const View& recv, Reduction op) = 0;
  virtual Status do_reduce_scatter(const View& send, const View& recv) = 0;
  virtual Status do_all_gather(const View& send, const View& recv) = 0;
  virtual Status do_all_to_all(const View& send, const View& recv) = 0;
  virtual Status do_broadcast(const View& data, int root) = 0;
  virtual Status do_send(const View& data, int peer) = 0;
  virtual Status do_recv(const View& data, int peer) = 0;
  virtual Status do_barrier() = 0;
  // The group that `rank` is number `new_rank` of `new_size` in.
  virtual Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int new_size) = 0;
  // In a group of one, what a collective leaves to do. On the host unless overridden.
  virtual Status do_copy(const View& from, const View& to);
  Mark last() const { return last_; }
  // An error of a library that counts ranks within this group also says which ranks of the world
  // these are.
  Status in_world(Status status) const;

 private:
  enum class Shape : std::uint8_t { kEqual, kSendIsWhole, kRecvIsWhole };
  Status check(Operation operation, const View& send, const View& recv, Shape shape) const;
  Status check_peer(Operation operation, const View& data, int peer, bool may_be_self) const;
  // Counts and numbers a call, and has it issued.
  template <class Issue>
  Result<Mark> issue(Operation operation, std::int64_t elements, DType type, int root,
                     const Issue& issue);
  std::string name_;
  std::vector<int> world_ranks_;
  Traffic traffic_;
  Mark last_ = 0;
};

// The world as the launcher says (treering: from_env; mpi, gloo: its ranks), for a backend by name.
// TR_UNSUPPORTED names what the build or the machine lacks.
Result<std::unique_ptr<Comm>> make_world(std::string_view backend);
// Adds a backend to make_world; a program that links an adapter to another library (peers/) calls
// it first.
using WorldFactory = Result<std::unique_ptr<Comm>> (*)();
void register_backend(std::string_view name, WorldFactory make);
// `size` ranks in this process, one for each thread.
Result<std::vector<std::unique_ptr<Comm>>> make_threads_comms(int size);
// Rank `rank` of `size` that do not exist.
std::unique_ptr<Comm> make_count_comm(int rank, int size);

}  // namespace tr::par
