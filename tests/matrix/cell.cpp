#include "matrix/cell.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/numeric.hpp"
#include "core/partition.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr std::size_t kGuardBytes = 128;
constexpr std::byte kGuard{0xA5}, kOld{0x5A};  // kOld: in receive buffers before the call

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

// Affine maps x -> a x + b over 16-bit integers, packed; composing them is associative and does not
// commute.
void compose(void* acc, const void* in, std::size_t count, tr_type_t, void*) {
  auto* f = static_cast<std::uint32_t*>(acc);
  const auto* g = static_cast<const std::uint32_t*>(in);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t a = f[i] >> 16, b = f[i] & 0xFFFF, c = g[i] >> 16, d = g[i] & 0xFFFF;
    f[i] = (a * c & 0xFFFF) << 16 | ((a * d + b) & 0xFFFF);
  }
}
void compose_for_oracle(void* acc, const void* in, std::size_t count, int type, void* user) {
  compose(acc, in, count, static_cast<tr_type_t>(type), user);
}

// A buffer between guards, `shift` elements past a cache line, and what the host has of it.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t shift_bytes, Arena* arena)
      : bytes_(bytes),
        store_bytes_(bytes + shift_bytes + 2 * kGuardBytes + 64),
        own_(arena == nullptr ? take_memory(store_bytes_) : nullptr),
        store_(arena == nullptr ? own_.get() : arena->take(store_bytes_)),
        host_(store_bytes_, kGuard) {
    const auto base = reinterpret_cast<std::uintptr_t>(store_) + kGuardBytes;
    offset_ = (base + 63) / 64 * 64 - base + kGuardBytes + shift_bytes;
    std::fill_n(host(), bytes, kOld);
  }
  std::byte* data() { return store_ + offset_; }  // for the library
  std::byte* host() { return host_.data() + offset_; }
  std::size_t bytes() const { return bytes_; }
  void store() { put(store_, host_.data(), store_bytes_); }
  void load() { get(host_.data(), store_, store_bytes_); }
  bool guards_intact() const {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    const std::byte* const begin = host_.data();
    return std::all_of(begin, begin + offset_, is_guard) &&
           std::all_of(begin + offset_ + bytes_, begin + store_bytes_, is_guard);
  }

 private:
  std::size_t bytes_;
  std::size_t store_bytes_;
  Memory own_;
  std::byte* store_;
  std::vector<std::byte> host_;
  std::size_t offset_ = 0;
};

void store_real(std::byte* at, Type type, double v) {
  const auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  switch (type) {
    case Type::kFloat64:
      return put(v);
    case Type::kFloat32:
      return put(static_cast<float>(v));
    case Type::kFloat16:
      return put(float16_from_float32(static_cast<float>(v)));
    case Type::kBfloat16:
      return put(bfloat16_from_float32(static_cast<float>(v)));
    case Type::kFloat8E4m3:
      return put(float8_e4m3_from_float32(static_cast<float>(v)));
    case Type::kFloat8E5m2:
      return put(float8_e5m2_from_float32(static_cast<float>(v)));
    default:
      return;
  }
}

// Rank's input: random bits for integers, reals of a few magnitudes for floats, so that rounding
// happens and order matters.
std::vector<std::byte> make_input(const Cell& cell, int rank, std::uint64_t elems) {
  const std::size_t size = type_bytes(cell.type);
  std::vector<std::byte> data(elems * size);
  for (std::uint64_t i = 0; i < elems; ++i) {
    const std::uint64_t h = mix(cell.seed ^ mix(static_cast<std::uint64_t>(rank) << 40 ^ i));
    std::byte* at = data.data() + i * size;
    if (!is_float(cell.type)) {
      std::memcpy(at, &h, size);
      continue;
    }
    double v =
        std::ldexp(1.0 + static_cast<double>(h % 4096) / 4096, static_cast<int>(h >> 16 & 7) - 4);
    if ((h >> 24 & 1) != 0) v = -v;
    if (cell.specials) {
      constexpr double kSpecials[] = {NAN, HUGE_VAL, -HUGE_VAL, -0.0, 0.0};
      const std::uint64_t which = h >> 32 & 31;
      if (which < std::size(kSpecials)) v = kSpecials[which];
    }
    store_real(at, cell.type, v);
  }
  return data;
}

// Where chunks lie in the buffers of every rank.
struct Layout {
  bool cut = false, in_alone = false, out_alone = false;
  std::vector<std::uint64_t> counts, displs;   // of the parts; displs leave gaps in v-variants
  std::vector<std::uint64_t> to_me, to_me_at;  // all_to_all_v: what each rank sends to `rank`
  std::uint64_t in_elems = 0, out_elems = 0;   // of this rank's buffers
};

std::uint64_t part(const Cell& cell, int i) {
  if (!cell.uneven) return cell.count;
  const std::uint64_t h = mix(cell.seed ^ 77 ^ static_cast<std::uint64_t>(i) << 20);
  return h % 5 == 0 || cell.count == 0 ? 0 : h % (cell.count + 1);
}

// What rank `src` sends to rank `dst`; symmetric in place, as all_to_all_v demands there.
std::uint64_t pair_count(const Cell& cell, int src, int dst) {
  if (cell.in_place && src > dst) std::swap(src, dst);
  return part(cell, src * 64 + dst);
}

void place(const Cell& cell, const std::vector<std::uint64_t>& counts,
           std::vector<std::uint64_t>* displs, std::uint64_t* extent) {
  *extent = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    displs->push_back(*extent + (cell.uneven ? mix(cell.seed + i) % 3 : 0));
    *extent = displs->back() + counts[i];
  }
}

bool is_cut(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduce || c == Collective::kBroadcast ||
         c == Collective::kScan || c == Collective::kExscan;
}

// The layout of rank `r`'s buffers.
Layout layout_of(const Cell& cell, int r, int n) {
  Layout l;
  const Collective c = cell.algorithm->collective;
  l.cut = is_cut(c);
  if (l.cut) {
    l.in_elems = l.out_elems = cell.count;
    return l;
  }
  if (c == Collective::kAllToAll) {
    for (int q = 0; q < n; ++q) l.counts.push_back(pair_count(cell, r, q));
    for (int q = 0; q < n; ++q) l.to_me.push_back(pair_count(cell, q, r));
    place(cell, l.counts, &l.displs, &l.in_elems);
    place(cell, l.to_me, &l.to_me_at, &l.out_elems);
    return l;
  }
  for (int q = 0; q < n; ++q) l.counts.push_back(part(cell, q));
  std::uint64_t extent = 0;
  // reduce_scatter_v has no displacements: parts lie one after another.
  Cell packed = cell;
  packed.uneven = cell.uneven && c != Collective::kReduceScatter;
  place(packed, l.counts, &l.displs, &extent);
  l.in_alone = c == Collective::kAllGather || c == Collective::kGather;
  l.out_alone = c == Collective::kReduceScatter || c == Collective::kScatter;
  l.in_elems = l.in_alone ? l.counts[r] : extent;
  l.out_elems = l.out_alone ? l.counts[r] : extent;
  return l;
}

algos::OraclePart in_part(const Layout& l, const Partition& cut, int chunk) {
  if (l.cut) return {cut.offset(chunk), cut.elems(chunk)};
  if (l.in_alone) return {0, l.counts[chunk]};
  return {l.displs[chunk], l.counts[chunk]};
}

algos::OraclePart out_part(const Cell& cell, const Layout& l, const Partition& cut, int chunk) {
  if (l.cut) return {cut.offset(chunk), cut.elems(chunk)};
  if (l.out_alone) return {0, l.counts[chunk]};
  if (cell.algorithm->collective == Collective::kAllToAll)
    return {l.to_me_at[chunk], l.to_me[chunk]};
  return {l.displs[chunk], l.counts[chunk]};
}

double factor_of(int rank) { return rank % 2 == 0 ? 0.5 : -1.25; }

bool same_element(const std::byte* a, const std::byte* b, Type type) {
  if (std::memcmp(a, b, type_bytes(type)) == 0) return true;
  // The payload of a float32 or float64 NaN is the CPU's own.
  if (type == Type::kFloat32) {
    float x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return std::isnan(x) && std::isnan(y);
  }
  if (type == Type::kFloat64) {
    double x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return std::isnan(x) && std::isnan(y);
  }
  return false;
}

tr_result_t make_op(const Cell& cell, int rank, tr_op_t* op) {
  switch (cell.op) {
    case CellOp::kSum:
      *op = TR_SUM;
      return TR_SUCCESS;
    case CellOp::kProd:
      *op = TR_PROD;
      return TR_SUCCESS;
    case CellOp::kMin:
      *op = TR_MIN;
      return TR_SUCCESS;
    case CellOp::kMax:
      *op = TR_MAX;
      return TR_SUCCESS;
    case CellOp::kAvg:
      *op = TR_AVG;
      return TR_SUCCESS;
    case CellOp::kPremulSum:
      return tr_op_create_premul_sum(op, factor_of(rank));
    case CellOp::kCompose:
      return tr_op_create(op, compose, 0, nullptr);
  }
  return TR_INTERNAL_ERROR;
}

algos::OracleCall oracle_call(const Cell& cell, int n) {
  algos::OracleCall call;
  call.type = cell.type;
  constexpr RedOp kOps[] = {RedOp::kSum, RedOp::kProd, RedOp::kMin, RedOp::kMax,
                            RedOp::kSum, RedOp::kSum,  RedOp::kUser};
  call.op = kOps[static_cast<int>(cell.op)];
  if (cell.op == CellOp::kAvg) call.divisor = static_cast<std::uint32_t>(n);
  if (cell.op == CellOp::kPremulSum) {
    for (int r = 0; r < n; ++r) call.scales.push_back(factor_of(r));
  }
  call.combine = compose_for_oracle;
  return call;
}

tr_result_t call_library(const Cell& cell, const Layout& l, const void* in, void* out, tr_op_t op,
                         int me, tr_comm_t comm, tr_stream_t stream) {
  const auto type = static_cast<tr_type_t>(cell.type);
  const std::uint64_t* counts = l.counts.data();
  const std::uint64_t* displs = l.displs.data();
  switch (cell.algorithm->collective) {
    case Collective::kAllReduce:
      return tr_all_reduce(in, out, cell.count, type, op, comm, stream);
    case Collective::kReduce:
      return tr_reduce(in, out, cell.count, type, op, cell.root, comm, stream);
    case Collective::kBroadcast:
      return tr_broadcast(in, out, cell.count, type, cell.root, comm, stream);
    case Collective::kScan:
      return tr_scan(in, out, cell.count, type, op, comm, stream);
    case Collective::kExscan:
      return tr_exscan(in, out, cell.count, type, op, comm, stream);
    case Collective::kAllGather:
      return cell.uneven ? tr_all_gather_v(in, out, counts, displs, type, comm, stream)
                         : tr_all_gather(in, out, cell.count, type, comm, stream);
    case Collective::kReduceScatter:
      return cell.uneven ? tr_reduce_scatter_v(in, out, counts, type, op, comm, stream)
                         : tr_reduce_scatter(in, out, cell.count, type, op, comm, stream);
    case Collective::kGather:
      return cell.uneven
                 ? tr_gather_v(in, counts[me], out, counts, displs, type, cell.root, comm, stream)
                 : tr_gather(in, out, cell.count, type, cell.root, comm, stream);
    case Collective::kScatter:
      return cell.uneven
                 ? tr_scatter_v(in, counts, displs, out, counts[me], type, cell.root, comm, stream)
                 : tr_scatter(in, out, cell.count, type, cell.root, comm, stream);
    case Collective::kAllToAll:
      return cell.uneven ? tr_all_to_all_v(in, counts, displs, out, l.to_me.data(),
                                           l.to_me_at.data(), type, comm, stream)
                         : tr_all_to_all(in, out, cell.count, type, comm, stream);
    default:
      return TR_INTERNAL_ERROR;
  }
}

class Running final : public RunningCell {
 public:
  Running(const Cell& cell, int rank, int size, Oracles& oracles, Arena* arena)
      : cell_(cell),
        rank_(rank),
        mine_(layout_of(cell, rank, size)),
        input_(make_input(cell, rank, mine_.in_elems)),
        in_(mine_.in_elems * elem_, (cell.shift_in + skew_) * elem_, arena),
        out_(mine_.out_elems * elem_, (cell.shift_out + 2 * skew_) * elem_, arena) {
    place();
    expected_.assign(written().host(), written().host() + written().bytes());
    const algos::Oracle* oracle = oracles.find(cell, size, &error_);
    if (oracle != nullptr) expect(*oracle, size);
    in_.store();
    out_.store();
  }
  std::string call(tr_comm_t comm, tr_stream_t stream) override;
  std::string wrong() override;

 private:
  // In place, the smaller buffer is a part of the larger one.
  void place() {
    std::copy(input_.begin(), input_.end(), in_.host());
    sendbuf_ = in_.data();
    recvbuf_ = out_.data();
    if (!in_place_) return;
    if (mine_.out_alone) {
      recvbuf_ = in_.data() + mine_.displs[rank_] * elem_;
    } else {
      const std::size_t at = mine_.in_alone ? mine_.displs[rank_] * elem_ : 0;
      sendbuf_ = out_.data() + at;
      std::copy(input_.begin(), input_.end(), out_.host() + at);
    }
  }
  void expect(const algos::Oracle& oracle, int size);
  Buffer& written() { return in_place_ && mine_.out_alone ? in_ : out_; }

  const Cell cell_;
  const int rank_;
  const Layout mine_;
  const Collective collective_ = cell_.algorithm->collective;
  const std::size_t elem_ = type_bytes(cell_.type);
  const bool reads_ =
      (collective_ != Collective::kBroadcast && collective_ != Collective::kScatter) ||
      rank_ == cell_.root;
  const bool writes_ = (collective_ != Collective::kReduce && collective_ != Collective::kGather) ||
                       rank_ == cell_.root;
  const bool in_place_ = cell_.in_place && reads_ && writes_;
  const int skew_ = cell_.skewed ? rank_ : 0;
  const std::vector<std::byte> input_;
  Buffer in_, out_;
  const std::byte* sendbuf_ = nullptr;
  std::byte* recvbuf_ = nullptr;
  std::vector<std::byte> expected_;  // of written()
  std::string error_;
};

void Running::expect(const algos::Oracle& oracle, int size) {
  std::vector<Layout> layouts;
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < size; ++r) {
    layouts.push_back(layout_of(cell_, r, size));
    inputs.push_back(make_input(cell_, r, layouts.back().in_elems));
  }
  std::byte* const expected_out = expected_.data() + (recvbuf_ - written().data());
  const int chunks = mine_.cut ? algos::chunk_count(*cell_.algorithm, size, cell_.hosts) : size;
  const Partition cut = Partition::cut(cell_.count, chunks, 64 / elem_);
  const algos::OracleCall oracle_args = oracle_call(cell_, size);
  for (int chunk = 0; chunk < chunks && writes_; ++chunk) {
    const algos::Expr e = oracle.out(rank_, chunk);
    if (e == algos::kNoExpr) continue;
    const algos::OraclePart to = out_part(cell_, mine_, cut, chunk);
    const auto leaf = [&](int r, int of) {
      return inputs[r].data() + in_part(layouts[r], cut, of).offset * elem_;
    };
    const std::vector<std::byte> bytes = oracle.evaluate(e, oracle_args, leaf, to.elems);
    std::copy(bytes.begin(), bytes.end(), expected_out + to.offset * elem_);
  }
}

std::string Running::call(tr_comm_t comm, tr_stream_t stream) {
  if (!error_.empty()) return error_;
  tr_op_t op = TR_SUM;
  if (const tr_result_t r = make_op(cell_, rank_, &op); r != TR_SUCCESS)
    return failure("operator", r);
  const tr_result_t result = call_library(cell_, mine_, reads_ ? sendbuf_ : nullptr,
                                          writes_ ? recvbuf_ : nullptr, op, rank_, comm, stream);
  if (op >= TR_NUM_BUILTIN_OPS) (void)tr_op_destroy(op);
  return result == TR_SUCCESS ? "" : failure("call", result);
}

std::string Running::wrong() {
  in_.load();
  out_.load();
  if (!in_.guards_intact() || !out_.guards_intact()) return "wrote outside a buffer";
  if (!in_place_ && !std::equal(input_.begin(), input_.end(), in_.host()))
    return "changed the send buffer";
  const std::byte* const got = written().host();
  for (std::size_t i = 0; i < written().bytes(); i += elem_) {
    if (same_element(got + i, expected_.data() + i, cell_.type)) continue;
    unsigned long long is = 0, want = 0;
    std::memcpy(&is, got + i, elem_);
    std::memcpy(&want, expected_.data() + i, elem_);
    char text[128];
    std::snprintf(text, sizeof text, "element %zu is %llx, not %llx", i / elem_, is, want);
    return text;
  }
  return {};
}

}  // namespace

std::string to_string(const Cell& cell) {
  constexpr const char* kOps[] = {"sum", "prod", "min", "max", "avg", "premul_sum", "compose"};
  return std::string(collective_name(cell.algorithm->collective)) + (cell.uneven ? "_v " : " ") +
         cell.algorithm->name + " count " + std::to_string(cell.count) + " " +
         type_name(cell.type) + " " + kOps[static_cast<int>(cell.op)] + " root " +
         std::to_string(cell.root) + (cell.in_place ? " in place" : "") +
         (cell.specials ? " specials" : "") + " shifts " + std::to_string(cell.shift_in) + "," +
         std::to_string(cell.shift_out) + (cell.skewed ? " skewed" : "") + " seed " +
         std::to_string(cell.seed);
}

const algos::Oracle* Oracles::find(const Cell& cell, int size, std::string* error) {
  const algos::Algorithm& algorithm = *cell.algorithm;
  for (const Entry& e : entries_) {
    if (e.algorithm == &algorithm && e.size == size && e.root == cell.root) return e.oracle.get();
  }
  Result<algos::Oracle> made =
      algos::Oracle::make(algos::make_program(algorithm, size, cell.root, false, cell.hosts));
  if (!made.ok()) {
    *error = made.status().message();
    return nullptr;
  }
  entries_.push_back(
      {&algorithm, size, cell.root, std::make_unique<algos::Oracle>(std::move(made).value())});
  return entries_.back().oracle.get();
}

std::unique_ptr<RunningCell> RunningCell::make(const Cell& cell, int rank, int size,
                                               Oracles& oracles, Arena* arena) {
  return std::make_unique<Running>(cell, rank, size, oracles, arena);
}

std::string run_cell(const Cell& cell, tr_comm_t comm, int rank, int size, Oracles& oracles,
                     Arena* arena) {
  if (arena != nullptr) arena->reset();
  const auto running = RunningCell::make(cell, rank, size, oracles, arena);
  const std::string failed = running->call(comm, nullptr);
  return failed.empty() ? running->wrong() : failed;
}

}  // namespace treering::test
