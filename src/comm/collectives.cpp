#include "comm/collectives.hpp"

#include <algorithm>

#include "comm/checks.hpp"
#include "comm/group.hpp"

// The algorithms that these calls end in are algos/ring.hpp, algos/tree.hpp, algos/direct.hpp and
// their neighbours; Communicator::launch picks one from the registry and runs its schedule.

namespace treering::collectives {
namespace {

const std::byte* bytes_of(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes_of(void* p) { return static_cast<std::byte*>(p); }

Request make(Collective collective, const Context& c, const void* in, void* out,
             std::uint64_t count) {
  Request r;
  r.call.collective = collective;
  r.call.type = c.type;
  r.call.in = bytes_of(in);
  r.call.out = bytes_of(out);
  r.call.count = count;
  r.choice_bytes = count * type_bytes(c.type);
  return r;
}

Status set_op(Request& r, const OpSpec& op, int size) {
  const bool prefix =
      r.call.collective == Collective::kScan || r.call.collective == Collective::kExscan;
  TR_RETURN_IF_ERROR(checks::reduction(op, r.call.type, prefix));
  r.call.op = op.op;
  r.call.divisor = op.average ? static_cast<std::uint32_t>(size) : 1;
  r.call.scaled = op.scaled;
  r.call.factor = op.factor;
  r.call.user = op.user;
  r.commutative = op.commutative;
  return {};
}

Status submit(const Context& c, Request& r) {
  TR_RETURN_IF_ERROR(checks::buffer("sendbuf", r.call.in, r.in_bytes, r.call.type));
  TR_RETURN_IF_ERROR(checks::buffer("recvbuf", r.call.out, r.out_bytes, r.call.type));
  TR_RETURN_IF_ERROR(checks::overlap(r));
  return run_or_keep(c.comm, r, c.stream);
}

// The last call again, blocking, with other buffers? The check of the buffers is all that is left
// to do.
bool is_repeat(const Context& c, Collective collective, const OpSpec& op, const void* in,
               const void* out, std::uint64_t count) {
  const bool plain = c.stream == nullptr && count > 0 && in != nullptr && out != nullptr;
  if (!plain || !c.comm.repeats(collective, c.type, op, 0, count, in == out) || in_group())
    return false;
  const std::uint64_t bytes = count * type_bytes(c.type);
  const auto a = reinterpret_cast<std::uintptr_t>(in), b = reinterpret_cast<std::uintptr_t>(out);
  const bool aligned = ((a | b) & (type_bytes(c.type) - 1)) == 0;
  return aligned && (a == b || a + bytes <= b || b + bytes <= a);
}

// The whole vector on every rank: all_reduce, reduce, broadcast, scan, exscan.
Status submit_vector(const Context& c, Request& r, bool reads, bool writes) {
  TR_RETURN_IF_ERROR(checks::count("count", r.call.count, 1, c.type));
  r.cut = true;
  r.in_bytes = reads ? r.choice_bytes : 0;
  r.out_bytes = writes ? r.choice_bytes : 0;
  r.in_place = reads && writes && r.call.in == r.call.out;
  return submit(c, r);
}

std::uint64_t extent(const std::uint64_t* counts, const std::uint64_t* displs, int n) {
  std::uint64_t end = 0;
  for (int i = 0; i < n; ++i) {
    if (counts[i] > 0) end = std::max(end, displs[i] + counts[i]);
  }
  return end;
}

// An empty table, with the capacity of the last call's.
std::vector<std::uint64_t>& tables_of(const Context& c, Request& r) {
  r.call.tables = c.comm.spare_tables();
  return r.call.tables;
}

// Copies counts and displacements (computed when displs is NULL) behind what `tables` already
// holds, and checks them.
Status add_table(std::vector<std::uint64_t>& tables, const char* name, const std::uint64_t* counts,
                 const std::uint64_t* displs, int n, Type type) {
  if (counts == nullptr) return invalid_argument(std::string(name) + " is NULL");
  std::uint64_t at = 0;
  tables.insert(tables.end(), counts, counts + n);
  for (int i = 0; i < n; ++i) {
    TR_RETURN_IF_ERROR(checks::count(name, counts[i], 1, type));
    const std::uint64_t displ = displs != nullptr ? displs[i] : at;
    TR_RETURN_IF_ERROR(checks::count("a displacement", displ, 1, type));
    tables.push_back(displ);
    at += counts[i];
  }
  return {};
}

Status disjoint(const char* name, const std::uint64_t* counts, const std::uint64_t* displs, int n) {
  std::uint64_t at = 0;
  bool sorted = true;
  for (int i = 0; i < n && sorted; ++i) {
    if (counts[i] == 0) continue;
    sorted = displs[i] >= at;
    at = displs[i] + counts[i];
  }
  if (sorted) return {};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (int i = 0; i < n; ++i) {
    if (counts[i] > 0) parts.emplace_back(displs[i], counts[i]);
  }
  std::sort(parts.begin(), parts.end());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].first < parts[i - 1].first + parts[i - 1].second) {
      return invalid_argument(std::string(name) + ": two parts of the receive buffer overlap");
    }
  }
  return {};
}

}  // namespace

Status all_reduce(const Context& c, const void* in, void* out, std::uint64_t count,
                  const OpSpec& op) {
  if (is_repeat(c, Collective::kAllReduce, op, in, out, count)) return c.comm.run_again(in, out);
  Request r = make(Collective::kAllReduce, c, in, out, count);
  TR_RETURN_IF_ERROR(set_op(r, op, c.comm.size()));
  return submit_vector(c, r, true, true);
}

Status reduce(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op,
              int root) {
  TR_RETURN_IF_ERROR(checks::rank("root", root, c.comm.size()));
  Request r = make(Collective::kReduce, c, in, c.comm.rank() == root ? out : nullptr, count);
  r.call.root = root;
  TR_RETURN_IF_ERROR(set_op(r, op, c.comm.size()));
  return submit_vector(c, r, true, c.comm.rank() == root);
}

Status broadcast(const Context& c, const void* in, void* out, std::uint64_t count, int root) {
  TR_RETURN_IF_ERROR(checks::rank("root", root, c.comm.size()));
  Request r = make(Collective::kBroadcast, c, c.comm.rank() == root ? in : nullptr, out, count);
  r.call.root = root;
  return submit_vector(c, r, c.comm.rank() == root, true);
}

Status scan(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op) {
  Request r = make(Collective::kScan, c, in, out, count);
  TR_RETURN_IF_ERROR(set_op(r, op, c.comm.size()));
  return submit_vector(c, r, true, true);
}

Status exscan(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op) {
  Request r = make(Collective::kExscan, c, in, out, count);
  TR_RETURN_IF_ERROR(set_op(r, op, c.comm.size()));
  return submit_vector(c, r, true, true);
}

Status all_gather(const Context& c, const void* in, void* out, std::uint64_t count) {
  const int n = c.comm.size();
  TR_RETURN_IF_ERROR(checks::count("sendcount", count, n, c.type));
  Request r = make(Collective::kAllGather, c, in, out, count);
  r.call.in_part = Partition::alone(count);
  r.call.out_part = Partition::equal(count, n);
  r.in_bytes = r.choice_bytes;
  r.out_bytes = r.choice_bytes * n;
  r.in_place = count > 0 && r.call.in == r.call.out + r.choice_bytes * c.comm.rank();
  return submit(c, r);
}

Status reduce_scatter(const Context& c, const void* in, void* out, std::uint64_t count,
                      const OpSpec& op) {
  const int n = c.comm.size();
  TR_RETURN_IF_ERROR(checks::count("recvcount", count, n, c.type));
  Request r = make(Collective::kReduceScatter, c, in, out, count);
  TR_RETURN_IF_ERROR(set_op(r, op, n));
  r.call.in_part = Partition::equal(count, n);
  r.call.out_part = Partition::alone(count);
  r.in_bytes = r.choice_bytes * n;
  r.out_bytes = r.choice_bytes;
  r.in_place = count > 0 && r.call.out == r.call.in + r.choice_bytes * c.comm.rank();
  return submit(c, r);
}

Status gather(const Context& c, const void* in, void* out, std::uint64_t count, int root) {
  const int n = c.comm.size();
  const bool is_root = c.comm.rank() == root;
  TR_RETURN_IF_ERROR(checks::rank("root", root, n));
  TR_RETURN_IF_ERROR(checks::count("sendcount", count, n, c.type));
  Request r = make(Collective::kGather, c, in, is_root ? out : nullptr, count);
  r.call.root = root;
  r.call.in_part = Partition::alone(count);
  r.call.out_part = Partition::equal(count, n);
  r.in_bytes = r.choice_bytes;
  r.out_bytes = is_root ? r.choice_bytes * n : 0;
  r.in_place = is_root && count > 0 && r.call.in == r.call.out + r.choice_bytes * root;
  return submit(c, r);
}

Status scatter(const Context& c, const void* in, void* out, std::uint64_t count, int root) {
  const int n = c.comm.size();
  const bool is_root = c.comm.rank() == root;
  TR_RETURN_IF_ERROR(checks::rank("root", root, n));
  TR_RETURN_IF_ERROR(checks::count("recvcount", count, n, c.type));
  Request r = make(Collective::kScatter, c, is_root ? in : nullptr, out, count);
  r.call.root = root;
  r.call.wire_is_in = true;
  r.call.in_part = Partition::equal(count, n);
  r.call.out_part = Partition::alone(count);
  r.in_bytes = is_root ? r.choice_bytes * n : 0;
  r.out_bytes = r.choice_bytes;
  r.in_place = is_root && count > 0 && r.call.out == r.call.in + r.choice_bytes * root;
  return submit(c, r);
}

Status all_to_all(const Context& c, const void* in, void* out, std::uint64_t count) {
  const int n = c.comm.size();
  TR_RETURN_IF_ERROR(checks::count("count", count, n, c.type));
  Request r = make(Collective::kAllToAll, c, in, out, count);
  r.call.in_part = r.call.out_part = Partition::equal(count, n);
  r.in_bytes = r.out_bytes = r.choice_bytes * n;
  r.in_place = r.call.in == r.call.out;
  return submit(c, r);
}

// One byte of the communicator's own.
Status barrier(const Context& c) {
  std::byte* token = c.comm.barrier_byte();
  Request r = make(Collective::kBarrier, {c.comm, Type::kUint8, c.stream}, token, token + 1, 1);
  r.call.in_part = r.call.out_part = Partition::alone(1);
  return run_or_keep(c.comm, r, c.stream);
}

Request send_request(const void* in, std::uint64_t count, Type type, int peer) {
  Request r;
  r.call.collective = Collective::kSendRecv;
  r.call.type = type;
  r.call.root = peer;
  r.call.count = count;
  r.call.in = bytes_of(in);
  r.call.is_send = true;
  r.call.in_part = Partition::alone(count);
  r.in_bytes = count * type_bytes(type);
  return r;
}

Request recv_request(void* out, std::uint64_t count, Type type, int peer) {
  Request r;
  r.call.collective = Collective::kSendRecv;
  r.call.type = type;
  r.call.root = peer;
  r.call.count = count;
  r.call.out = bytes_of(out);
  r.call.out_part = Partition::alone(count);
  r.out_bytes = count * type_bytes(type);
  return r;
}

Status send(const Context& c, const void* in, std::uint64_t count, int peer) {
  TR_RETURN_IF_ERROR(checks::rank("peer", peer, c.comm.size()));
  TR_RETURN_IF_ERROR(checks::count("count", count, 1, c.type));
  if (peer == c.comm.rank() && !in_group()) {
    return invalid_usage("a rank can send to itself only in a group that also has the receive");
  }
  Request r = send_request(in, count, c.type, peer);
  return submit(c, r);
}

Status recv(const Context& c, void* out, std::uint64_t count, int peer) {
  TR_RETURN_IF_ERROR(checks::rank("peer", peer, c.comm.size()));
  TR_RETURN_IF_ERROR(checks::count("count", count, 1, c.type));
  if (peer == c.comm.rank() && !in_group()) {
    return invalid_usage("a rank can receive from itself only in a group that also has the send");
  }
  Request r = recv_request(out, count, c.type, peer);
  return submit(c, r);
}

Status all_gather_v(const Context& c, const void* in, void* out, const std::uint64_t* counts,
                    const std::uint64_t* displs) {
  const int n = c.comm.size(), me = c.comm.rank();
  Request r = make(Collective::kAllGather, c, in, out, 0);
  std::vector<std::uint64_t>& t = tables_of(c, r);
  TR_RETURN_IF_ERROR(add_table(t, "recvcounts", counts, displs, n, c.type));
  TR_RETURN_IF_ERROR(disjoint("displs", t.data(), t.data() + n, n));
  r.uneven = true;
  r.call.count = t[me];
  r.call.in_part = Partition::alone_varying(t.data());
  r.call.out_part = Partition::varying(t.data(), t.data() + n);
  r.in_bytes = t[me] * type_bytes(c.type);
  r.out_bytes = extent(t.data(), t.data() + n, n) * type_bytes(c.type);
  r.in_place = t[me] > 0 && r.call.in == r.call.out + t[n + me] * type_bytes(c.type);
  return submit(c, r);
}

Status reduce_scatter_v(const Context& c, const void* in, void* out, const std::uint64_t* counts,
                        const OpSpec& op) {
  const int n = c.comm.size(), me = c.comm.rank();
  Request r = make(Collective::kReduceScatter, c, in, out, 0);
  TR_RETURN_IF_ERROR(set_op(r, op, n));
  std::vector<std::uint64_t>& t = tables_of(c, r);
  TR_RETURN_IF_ERROR(add_table(t, "recvcounts", counts, nullptr, n, c.type));
  r.uneven = true;
  r.call.count = t[me];
  r.call.in_part = Partition::varying(t.data(), t.data() + n);
  r.call.out_part = Partition::alone_varying(t.data());
  r.in_bytes = extent(t.data(), t.data() + n, n) * type_bytes(c.type);
  r.out_bytes = t[me] * type_bytes(c.type);
  r.in_place = t[me] > 0 && r.call.out == r.call.in + t[n + me] * type_bytes(c.type);
  return submit(c, r);
}

Status gather_v(const Context& c, const void* in, std::uint64_t count, void* out,
                const std::uint64_t* counts, const std::uint64_t* displs, int root) {
  const int n = c.comm.size();
  const bool is_root = c.comm.rank() == root;
  TR_RETURN_IF_ERROR(checks::rank("root", root, n));
  TR_RETURN_IF_ERROR(checks::count("sendcount", count, 1, c.type));
  Request r = make(Collective::kGather, c, in, is_root ? out : nullptr, 0);
  r.uneven = true;
  r.call.root = root;
  r.call.count = count;
  r.call.in_part = r.call.out_part = Partition::alone(count);
  r.in_bytes = count * type_bytes(c.type);
  if (is_root) {
    std::vector<std::uint64_t>& t = tables_of(c, r);
    TR_RETURN_IF_ERROR(add_table(t, "recvcounts", counts, displs, n, c.type));
    TR_RETURN_IF_ERROR(disjoint("displs", t.data(), t.data() + n, n));
    if (t[root] != count) {
      return invalid_argument("recvcounts[root] is " + std::to_string(t[root]) +
                              ", but the root's own sendcount is " + std::to_string(count));
    }
    r.call.out_part = Partition::varying(t.data(), t.data() + n);
    r.out_bytes = extent(t.data(), t.data() + n, n) * type_bytes(c.type);
    r.in_place = count > 0 && r.call.in == r.call.out + t[n + root] * type_bytes(c.type);
  }
  return submit(c, r);
}

Status scatter_v(const Context& c, const void* in, const std::uint64_t* counts,
                 const std::uint64_t* displs, void* out, std::uint64_t count, int root) {
  const int n = c.comm.size();
  const bool is_root = c.comm.rank() == root;
  TR_RETURN_IF_ERROR(checks::rank("root", root, n));
  TR_RETURN_IF_ERROR(checks::count("recvcount", count, 1, c.type));
  Request r = make(Collective::kScatter, c, is_root ? in : nullptr, out, 0);
  r.uneven = true;
  r.call.root = root;
  r.call.count = count;
  r.call.in_part = r.call.out_part = Partition::alone(count);
  r.out_bytes = count * type_bytes(c.type);
  if (is_root) {
    std::vector<std::uint64_t>& t = tables_of(c, r);
    TR_RETURN_IF_ERROR(add_table(t, "sendcounts", counts, displs, n, c.type));
    if (t[root] != count) {
      return invalid_argument("sendcounts[root] is " + std::to_string(t[root]) +
                              ", but the root's own recvcount is " + std::to_string(count));
    }
    r.call.in_part = Partition::varying(t.data(), t.data() + n);
    r.in_bytes = extent(t.data(), t.data() + n, n) * type_bytes(c.type);
    r.in_place = count > 0 && r.call.out == r.call.in + t[n + root] * type_bytes(c.type);
  }
  return submit(c, r);
}

Status all_to_all_v(const Context& c, const void* in, const std::uint64_t* sendcounts,
                    const std::uint64_t* sdispls, void* out, const std::uint64_t* recvcounts,
                    const std::uint64_t* rdispls) {
  const int n = c.comm.size(), me = c.comm.rank();
  Request r = make(Collective::kAllToAll, c, in, out, 0);
  std::vector<std::uint64_t>& t = tables_of(c, r);
  TR_RETURN_IF_ERROR(add_table(t, "sendcounts", sendcounts, sdispls, n, c.type));
  TR_RETURN_IF_ERROR(add_table(t, "recvcounts", recvcounts, rdispls, n, c.type));
  const std::uint64_t *sc = t.data(), *sd = sc + n, *rc = sd + n, *rd = rc + n;
  TR_RETURN_IF_ERROR(disjoint("rdispls", rc, rd, n));
  if (sc[me] != rc[me]) {
    return invalid_argument("rank " + std::to_string(me) + " sends itself " +
                            std::to_string(sc[me]) + " elements but expects " +
                            std::to_string(rc[me]));
  }
  r.uneven = true;
  r.call.in_part = Partition::varying(sc, sd);
  r.call.out_part = Partition::varying(rc, rd);
  r.in_bytes = extent(sc, sd, n) * type_bytes(c.type);
  r.out_bytes = extent(rc, rd, n) * type_bytes(c.type);
  r.in_place = r.call.in == r.call.out && r.in_bytes > 0;
  if (r.in_place && !(std::equal(sc, sd, rc) && std::equal(sd, sd + n, rd))) {
    return invalid_argument("in place, send and receive counts and displacements must be equal");
  }
  return submit(c, r);
}

}  // namespace treering::collectives
