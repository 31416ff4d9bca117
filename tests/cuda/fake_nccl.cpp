// A libnccl.so.2 for the emulator, whose device memory the host may touch: ranks are threads, all
// is done when a call returns. It knows float32 and bytes, and nothing of Treering. It is there to
// test peers/nccl_cuda.cpp. FAKE_NCCL_VERSION: what it says it is.
#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<std::byte>;
constexpr int kOk = 0, kInvalid = 4, kFloat = 7, kAvg = 4, kFirstOwnOp = 100;

struct Id {
  char bytes[128];
};

struct Team {
  explicit Team(int n)
      : size(n), all(n), in(static_cast<std::size_t>(n)), factor(static_cast<std::size_t>(n), 1) {}
  int size;
  std::barrier<> all;
  std::vector<const std::byte*> in;
  std::vector<float> factor;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // by (from, to)
};

struct Comm {
  std::shared_ptr<Team> team;
  int rank = 0;
};

struct Message {
  Comm* comm;
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
  int peer;
};
thread_local std::vector<Message> t_group;

std::size_t size_of(int type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}

// All ranks show their inputs, each makes its result of them, and then stores it.
int together(void* comm, const void* send, void* recv, const std::function<Bytes(Team&)>& make) {
  auto* me = static_cast<Comm*>(comm);
  Team& team = *me->team;
  team.in[static_cast<std::size_t>(me->rank)] = static_cast<const std::byte*>(send);
  team.all.arrive_and_wait();
  const Bytes result = make(team);
  team.all.arrive_and_wait();
  if (!result.empty()) std::memcpy(recv, result.data(), result.size());
  team.all.arrive_and_wait();
  return kOk;
}

// Elements first..first+count of the fold of all inputs. A byte's sum is what a barrier needs.
Bytes fold(Team& team, std::size_t first, std::size_t count, int type, int op) {
  Bytes result(count * size_of(type));
  for (std::size_t i = 0; type == kFloat && i < count; ++i) {
    float sum = 0;
    for (std::size_t r = 0; r < team.in.size(); ++r) {
      float x;
      std::memcpy(&x, team.in[r] + (first + i) * sizeof x, sizeof x);
      sum += op >= kFirstOwnOp ? x * team.factor[r] : x;
    }
    if (op == kAvg) sum /= static_cast<float>(team.size);
    std::memcpy(result.data() + i * sizeof sum, &sum, sizeof sum);
  }
  return result;
}

bool can_fold(int type, int op) {
  return (type == kFloat && (op == 0 || op == kAvg || op >= kFirstOwnOp)) || (type == 0 && op == 0);
}

}  // namespace

extern "C" {
#define FAKE __attribute__((visibility("default")))

FAKE int ncclGetVersion(int* version) {
  const char* text = std::getenv("FAKE_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 23007;
  return kOk;
}
FAKE int ncclGetUniqueId(Id* id) {
  std::memset(id, 7, sizeof *id);
  return kOk;
}
FAKE int ncclCommInitRank(void** comm, int size, Id, int rank) {
  static std::mutex mutex;
  static std::shared_ptr<Team> team;  // a process has one
  const std::lock_guard lock(mutex);
  if (team == nullptr) team = std::make_shared<Team>(size);
  *comm = new Comm{team, rank};
  return kOk;
}
FAKE int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return kOk;
}
FAKE const char* ncclGetErrorString(int) { return "the fake does not do that"; }
FAKE int ncclCommGetAsyncError(void*, int* error) {
  *error = kOk;
  return kOk;
}
FAKE int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, void* comm) {
  auto* me = static_cast<Comm*>(comm);
  if (type != kFloat || residence != 1) return kInvalid;
  std::memcpy(&me->team->factor[static_cast<std::size_t>(me->rank)], scalar, sizeof(float));
  *op = kFirstOwnOp;
  return kOk;
}
FAKE int ncclRedOpDestroy(int, void*) { return kOk; }

FAKE int ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op,
                       void* comm, void*) {
  if (!can_fold(type, op)) return kInvalid;
  return together(comm, send, recv, [&](Team& t) { return fold(t, 0, count, type, op); });
}
FAKE int ncclReduce(const void* send, void* recv, std::size_t count, int type, int op, int root,
                    void* comm, void*) {
  if (!can_fold(type, op)) return kInvalid;
  const bool is_root = static_cast<Comm*>(comm)->rank == root;
  return together(comm, send, recv,
                  [&](Team& t) { return is_root ? fold(t, 0, count, type, op) : Bytes{}; });
}
FAKE int ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op,
                           void* comm, void*) {
  if (!can_fold(type, op)) return kInvalid;
  const auto rank = static_cast<std::size_t>(static_cast<Comm*>(comm)->rank);
  return together(comm, send, recv,
                  [&](Team& t) { return fold(t, rank * count, count, type, op); });
}
FAKE int ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root,
                       void* comm, void*) {
  return together(comm, send, recv, [&](Team& t) {
    const std::byte* from = t.in[static_cast<std::size_t>(root)];
    return Bytes(from, from + count * size_of(type));
  });
}
FAKE int ncclAllGather(const void* send, void* recv, std::size_t count, int type, void* comm,
                       void*) {
  return together(comm, send, recv, [&](Team& t) {
    Bytes result;
    for (const std::byte* from : t.in) {
      result.insert(result.end(), from, from + count * size_of(type));
    }
    return result;
  });
}

FAKE int ncclGroupStart() { return kOk; }
FAKE int ncclSend(const void* from, std::size_t count, int type, int peer, void* comm, void*) {
  t_group.push_back({static_cast<Comm*>(comm), static_cast<const std::byte*>(from), nullptr,
                     count * size_of(type), peer});
  return kOk;
}
FAKE int ncclRecv(void* to, std::size_t count, int type, int peer, void* comm, void*) {
  t_group.push_back({static_cast<Comm*>(comm), nullptr, static_cast<std::byte*>(to),
                     count * size_of(type), peer});
  return kOk;
}
FAKE int ncclGroupEnd() {
  for (const Message& m : t_group) {
    if (m.from == nullptr) continue;
    Team& team = *m.comm->team;
    const std::lock_guard lock(team.mutex);
    team.mail[{m.comm->rank, m.peer}].emplace_back(m.from, m.from + m.bytes);
    team.changed.notify_all();
  }
  for (const Message& m : t_group) {
    if (m.to == nullptr) continue;
    Team& team = *m.comm->team;
    std::unique_lock lock(team.mutex);
    std::deque<Bytes>& box = team.mail[{m.peer, m.comm->rank}];
    team.changed.wait(lock, [&] { return !box.empty(); });
    std::memcpy(m.to, box.front().data(), m.bytes);
    box.pop_front();
  }
  t_group.clear();
  return kOk;
}
}
