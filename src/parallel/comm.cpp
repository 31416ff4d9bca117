#include "treering/parallel/comm.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "parallel/try.hpp"

namespace tr::par {
namespace {

constexpr std::int64_t kChunkAlignBytes = 64;  // the library cuts a vector at cache lines

// Elements of chunk c, where the library cuts a vector of `elements` into n.
std::int64_t chunk_elements(std::int64_t elements, DType type, int n, int c) {
  const std::int64_t granule = kChunkAlignBytes / static_cast<std::int64_t>(size_of(type));
  std::int64_t each = (elements + n - 1) / n;
  if (each > granule) each = (each + granule - 1) / granule * granule;
  return std::clamp<std::int64_t>(elements - c * each, 0, each);
}

Error refuse(Operation operation, const std::string& what) {
  return {TR_INVALID_ARGUMENT, std::string(name_of(operation)) + ": " + what};
}

}  // namespace

const char* name_of(Operation operation) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast",  "send",           "recv",       "barrier"};
  return kNames[static_cast<int>(operation)];
}

std::int64_t Traffic::bytes() const {
  std::int64_t sum = 0;
  for (const Row& row : rows) sum += row.bytes;
  return sum;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (int i = 0; i < kNumOperations; ++i) {
    rows[i].calls += other.rows[i].calls;
    rows[i].bytes += other.rows[i].bytes;
    rows[i].messages += other.rows[i].messages;
  }
  return *this;
}

// The ring's reduce-scatter sends every chunk but the one that comes home complete, its all-gather
// every chunk but the one that arrives last (algos/ring.hpp).
Traffic::Row ring_traffic(Operation operation, std::int64_t elements, DType type, int rank,
                          int size, int root) {
  Traffic::Row row{.calls = 1};
  if (size == 1) return row;
  const auto count = [&](std::int64_t sent) {
    row.bytes += sent * static_cast<std::int64_t>(size_of(type));
    row.messages += sent > 0;
  };
  switch (operation) {
    case Operation::kAllReduce:
      for (int c = 0; c < size; ++c) {
        const std::int64_t chunk = chunk_elements(elements, type, size, c);
        if (c != rank) count(chunk);
        if (c != (rank + 1) % size) count(chunk);
      }
      break;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kAllToAll:
      for (int i = 1; i < size; ++i) count(elements / size);
      break;
    case Operation::kBroadcast:
      if ((rank + 1) % size != root) count(elements);
      break;
    case Operation::kSend:
      count(elements);
      break;
    case Operation::kRecv:
    case Operation::kBarrier:
      break;
  }
  return row;
}

Status Comm::check(Operation operation, const View& send, const View& recv, Shape shape) const {
  if (!send.is_contiguous() || !recv.is_contiguous()) {
    return refuse(operation, "a view is not contiguous: pack it first");
  }
  if (send.type != recv.type) {
    return refuse(operation, std::string("sends ") + name_of(send.type) + ", but receives " +
                                 name_of(recv.type));
  }
  const std::int64_t to = shape == Shape::kSendIsWhole ? size() : 1;
  const std::int64_t from = shape == Shape::kRecvIsWhole ? size() : 1;
  if (send.elements() * from == recv.elements() * to) return {};
  return refuse(operation, std::to_string(send.elements()) + " elements to send and " +
                               std::to_string(recv.elements()) + " to receive do not fit " +
                               std::to_string(size()) + " ranks");
}

Status Comm::check_peer(Operation operation, const View& data, int peer, bool may_be_self) const {
  if (!data.is_contiguous()) return refuse(operation, "a view is not contiguous: pack it first");
  if (peer >= 0 && peer < size() && (may_be_self || peer != rank())) return {};
  return refuse(operation,
                "rank " + std::to_string(peer) + " is " +
                    (peer == rank() ? "this rank itself" : "none of " + std::to_string(size())));
}

template <class Issue>
Result<Comm::Mark> Comm::issue(Operation operation, std::int64_t elements, DType type, int root,
                               const Issue& issue) {
  const Traffic::Row row = ring_traffic(operation, elements, type, rank(), size(), root);
  traffic_[operation].calls += row.calls;
  traffic_[operation].bytes += row.bytes;
  traffic_[operation].messages += row.messages;
  ++last_;
  TRY(issue());
  return last_;
}

Result<Comm::Mark> Comm::all_reduce(const View& send, const View& recv, Reduction op) {
  TRY(check(Operation::kAllReduce, send, recv, Shape::kEqual));
  return issue(Operation::kAllReduce, send.elements(), send.type, 0,
               [&] { return size() == 1 ? do_copy(send, recv) : do_all_reduce(send, recv, op); });
}

Result<Comm::Mark> Comm::reduce_scatter(const View& send, const View& recv) {
  TRY(check(Operation::kReduceScatter, send, recv, Shape::kSendIsWhole));
  return issue(Operation::kReduceScatter, send.elements(), send.type, 0,
               [&] { return size() == 1 ? do_copy(send, recv) : do_reduce_scatter(send, recv); });
}

Result<Comm::Mark> Comm::all_gather(const View& send, const View& recv) {
  TRY(check(Operation::kAllGather, send, recv, Shape::kRecvIsWhole));
  return issue(Operation::kAllGather, recv.elements(), send.type, 0,
               [&] { return size() == 1 ? do_copy(send, recv) : do_all_gather(send, recv); });
}

Result<Comm::Mark> Comm::all_to_all(const View& send, const View& recv) {
  TRY(check(Operation::kAllToAll, send, recv, Shape::kEqual));
  if (send.elements() % size() != 0) {
    return refuse(Operation::kAllToAll, std::to_string(send.elements()) +
                                            " elements do not make equal parts for " +
                                            std::to_string(size()) + " ranks");
  }
  if (send.data == recv.data && !send.is_empty()) {
    return refuse(Operation::kAllToAll, "sends from and receives into the same memory");
  }
  return issue(Operation::kAllToAll, send.elements(), send.type, 0,
               [&] { return size() == 1 ? do_copy(send, recv) : do_all_to_all(send, recv); });
}

Result<Comm::Mark> Comm::broadcast(const View& data, int root) {
  TRY(check_peer(Operation::kBroadcast, data, root, true));
  return issue(Operation::kBroadcast, data.elements(), data.type, root,
               [&] { return size() == 1 ? Status() : do_broadcast(data, root); });
}

Result<Comm::Mark> Comm::send(const View& data, int peer) {
  TRY(check_peer(Operation::kSend, data, peer, false));
  return issue(Operation::kSend, data.elements(), data.type, 0,
               [&] { return do_send(data, peer); });
}

Result<Comm::Mark> Comm::recv(const View& data, int peer) {
  TRY(check_peer(Operation::kRecv, data, peer, false));
  return issue(Operation::kRecv, data.elements(), data.type, 0,
               [&] { return do_recv(data, peer); });
}

Status Comm::barrier() {
  TRY(issue(Operation::kBarrier, 0, DType::kFloat32, 0,
            [&] { return size() == 1 ? Status() : do_barrier(); }));
  return {};
}

Result<std::unique_ptr<Comm>> Comm::split(std::span<const int> colors) {
  if (static_cast<int>(colors.size()) != size()) {
    return Error{TR_INVALID_ARGUMENT, "split: " + std::to_string(colors.size()) + " colours for " +
                                          std::to_string(size()) + " ranks"};
  }
  const auto mine = colors.begin() + rank();
  TRY_ASSIGN(std::unique_ptr<Comm> part,
             do_split(*mine, static_cast<int>(std::count(colors.begin(), mine, *mine)),
                      static_cast<int>(std::count(colors.begin(), colors.end(), *mine))));
  for (std::size_t q = 0; q < colors.size(); ++q) {
    if (colors[q] != *mine) continue;
    part->world_ranks_.push_back(world_ranks_.empty() ? static_cast<int>(q) : world_ranks_[q]);
  }
  return part;
}

Status Comm::in_world(Status status) const {
  if (status || world_ranks_.empty()) return status;
  const std::string& said = status.error().message;
  std::string meant;
  for (std::size_t q = 0; q < world_ranks_.size(); ++q) {
    const std::string word = "rank " + std::to_string(q);
    bool is_named = false;
    for (std::size_t at = said.find(word); at != std::string::npos && !is_named;
         at = said.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      is_named = end == said.size() || said[end] < '0' || said[end] > '9';
    }
    if (!is_named || world_ranks_[q] == static_cast<int>(q)) continue;
    meant += (meant.empty() ? "" : ", ") + word + " is rank " + std::to_string(world_ranks_[q]);
  }
  if (meant.empty()) return status;
  return Error{status.error().code, said + " (in that group; of all ranks, " + meant + ")"};
}

Result<Registration> Comm::register_memory(const View&) { return Registration(); }

Status Comm::do_copy(const View& from, const View& to) {
  if (from.data != to.data && !from.is_empty()) std::memmove(to.data, from.data, from.bytes());
  return {};
}

namespace {

struct Backends {
  std::mutex mutex;
  std::map<std::string, WorldFactory, std::less<>> by_name;
};
Backends& backends() {
  static Backends all;
  return all;
}

}  // namespace

Result<std::unique_ptr<Comm>> make_treering_world();  // treering_comm.cpp

void register_backend(std::string_view name, WorldFactory make) {
  std::lock_guard lock(backends().mutex);
  backends().by_name[std::string(name)] = make;
}

Result<std::unique_ptr<Comm>> make_world(std::string_view backend) {
  if (backend == "treering") return make_treering_world();
  WorldFactory make = nullptr;
  std::string known = "treering";
  {
    std::lock_guard lock(backends().mutex);
    for (const auto& [name, factory] : backends().by_name) {
      known += ", " + name;
      if (name == backend) make = factory;
    }
  }
  if (make != nullptr) return make();
  return Error{TR_UNSUPPORTED, "there is no backend '" + std::string(backend) +
                                   "' in this program; there is: " + known};
}

}  // namespace tr::par
