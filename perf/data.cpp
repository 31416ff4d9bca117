#include "perf/data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "perf/numbers.hpp"

namespace treering::perf {
namespace {

// Sebastiano Vigna's splitmix64 finaliser: every bit of the result depends on every bit of x.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

// A number in [0, bound) from 64 random bits (Lemire's multiplication).
std::uint64_t below(std::uint64_t random, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random) * bound) >> 64);
}

// What bounds the inputs of a type.
struct Range {
  int precision;    // bits of the significand, the leading one included
  int low, high;    // of the element's power of two: 2^precision * 2^high is still finite
  int prod_budget;  // so many factors of 2 (or of 1/2) stay within the normal numbers
};
template <class T>
constexpr Range range_of() {
  if constexpr (std::is_same_v<T, double>) return {53, -20, 20, 200};
  if constexpr (std::is_same_v<T, float>) return {24, -20, 20, 60};
  if constexpr (std::is_same_v<T, Bfloat16>) return {8, -20, 20, 60};
  if constexpr (std::is_same_v<T, Float16>) return {11, -10, 4, 12};
  if constexpr (std::is_same_v<T, Float8E4m3>) return {4, -4, 4, 5};
  return {3, -8, 10, 12};  // Float8E5m2
}

// The inputs of a reduction over elements of type T.
template <class T>
class Inputs {
 public:
  Inputs(RedOp redop, int ranks, std::uint64_t seed, Rules rules, bool specials)
      : redop_(redop),
        ranks_(static_cast<std::uint64_t>(ranks)),
        seed_(seed),
        rules_(rules),
        specials_(specials) {
    if constexpr (std::is_integral_v<T>) {
      // Half of uint64 is enough, and largest_ + 1 does not wrap.
      constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
      budget_ = std::min(static_cast<std::uint64_t>(std::numeric_limits<T>::max()), kMax);
    } else {
      budget_ = 1ull << range_of<T>().precision;
      if (redop == RedOp::kPremulSum) budget_ /= 2;
    }
    largest_ = budget_ / ranks_;
  }

  std::uint64_t element(std::uint64_t elem) const { return mix(seed_ + (elem + 1) * kGolden); }

  // What `rank` gives to the element whose hash is `hash`.
  T value(std::uint64_t hash, int rank) const {
    const std::uint64_t own = mix(hash + (static_cast<std::uint64_t>(rank) + 1) * kGolden);
    if constexpr (std::is_integral_v<T>) {
      const bool adds = redop_ != RedOp::kMin && redop_ != RedOp::kMax;
      if (rules_ == Rules::kCommon && adds) return small_integer(hash, own, rank);
      return static_cast<T>(redop_ == RedOp::kProd ? own | 1 : own);
    } else {
      if (specials_ && (hash & 7) == 0) return special(hash, own, rank);
      return from_double<T>(number(hash, own, rank));
    }
  }

 private:
  // The place of a rank in the element's own order of ranks.
  std::uint64_t turn_of(std::uint64_t hash, int rank) const {
    return (static_cast<std::uint64_t>(rank) + (hash >> 8)) % ranks_;
  }

  // Sums and products of these never overflow.
  T small_integer(std::uint64_t hash, std::uint64_t own, int rank) const {
    const bool is_negative = std::is_signed_v<T> && (own & 1) != 0;
    std::uint64_t magnitude = 0;
    if (redop_ == RedOp::kProd) {
      constexpr std::uint64_t kTwos = std::numeric_limits<T>::digits - 1;
      magnitude = turn_of(hash, rank) < kTwos ? 1 + (own >> 63) : 1;
    } else if (largest_ == 0) {
      magnitude = turn_of(hash, rank) < budget_ ? 1 : 0;
    } else {
      magnitude = below(own, largest_ + 1);
    }
    return static_cast<T>(is_negative ? 0 - magnitude : magnitude);
  }

  double number(std::uint64_t hash, std::uint64_t own, int rank) const {
    constexpr Range kRange = range_of<T>();
    const double unit =
        power_of_two(kRange.low + static_cast<int>((hash >> 40) % (kRange.high - kRange.low + 1)));
    const std::uint64_t turn = turn_of(hash, rank);
    switch (redop_) {
      case RedOp::kProd: {
        if (turn >= static_cast<std::uint64_t>(kRange.prod_budget)) return 1.0;
        const double factor = power_of_two(static_cast<int>(below(own, 3)) - 1);
        return ((own & 1) != 0 ? -factor : factor) * (turn == 0 ? 1.5 : 1.0);
      }
      case RedOp::kMin:
      case RedOp::kMax: {
        const std::uint64_t magnitude = 1 + below(own, (1ull << kRange.precision) - 1);
        return ((own & 1) != 0 ? -1.0 : 1.0) * static_cast<double>(magnitude) * unit;
      }
      default: {
        if (largest_ == 0) return turn < budget_ ? ((own & 1) != 0 ? -unit : unit) : 0.0;
        const auto k = static_cast<std::int64_t>(below(own, 2 * largest_ + 1));
        return static_cast<double>(k - static_cast<std::int64_t>(largest_)) * unit;
      }
    }
  }

  T special(std::uint64_t hash, std::uint64_t own, int rank) const {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const std::uint64_t first = (hash >> 8) % ranks_;
    const bool is_first = static_cast<std::uint64_t>(rank) == first;
    const bool is_second = static_cast<std::uint64_t>(rank) == (first + 1) % ranks_;
    const std::uint64_t kind = hash >> 56;
    const double other = number(hash, own, rank);
    double value = other;
    if (redop_ == RedOp::kMin || redop_ == RedOp::kMax) {
      const double infinity = (hash & 8) != 0 ? kInf : -kInf;
      switch (rules_ == Rules::kCommon ? 0 : kind % 4) {
        case 0:
          value = is_first ? infinity : other;
          break;
        case 1:
          value = is_first ? kNan : other;
          break;
        case 2:
          value = is_first ? kNan : is_second ? infinity : other;
          break;
        default:
          value = is_first ? -0.0 : 0.0;
          break;
      }
    } else if (redop_ == RedOp::kProd) {
      switch (kind % 3) {
        case 0:
          value = is_first ? kNan : other;
          break;
        case 1:
          value = is_first ? kInf : other;
          break;
        default:
          value = is_first ? kInf : is_second ? 0.0 : other;
          break;
      }
    } else {
      // Overflow for sum only: an average may or may not be rounded before it is divided.
      switch (kind % (redop_ == RedOp::kSum ? 5 : 4)) {
        case 0:
          value = is_first ? kNan : other;
          break;
        case 1:
          value = is_first ? kInf : other;
          break;
        case 2:
          value = is_first ? kInf : is_second ? -kInf : other;
          break;
        case 3:
          value = -0.0;
          break;
        default:
          return is_first || is_second ? max_finite<T>() : from_double<T>(0.0);
      }
    }
    return from_double<T>(value);
  }

  RedOp redop_;
  std::uint64_t ranks_;
  std::uint64_t seed_;
  Rules rules_;
  bool specials_;
  std::uint64_t budget_ = 0;   // the multiples of all ranks together
  std::uint64_t largest_ = 0;  // of one rank; 0: more ranks than budget
};

// NaN wins, and -0 is less than +0.
double min_of(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// The fold over ranks [first, last) of one element, exactly, rounded once.
template <class T>
T fold(const Inputs<T>& inputs, std::uint64_t elem, RedOp redop, int first, int last, int ranks) {
  const std::uint64_t hash = inputs.element(elem);
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    T result = inputs.value(hash, first);
    for (int rank = first + 1; rank < last; ++rank) {
      const T value = inputs.value(hash, rank);
      // 64-bit arithmetic: narrower products would be promoted to int, whose overflow is undefined.
      const auto wide = static_cast<std::uint64_t>(static_cast<Unsigned>(result));
      const auto wide_value = static_cast<std::uint64_t>(static_cast<Unsigned>(value));
      switch (redop) {
        case RedOp::kProd:
          result = static_cast<T>(wide * wide_value);
          break;
        case RedOp::kMin:
          result = std::min(result, value);
          break;
        case RedOp::kMax:
          result = std::max(result, value);
          break;
        default:
          result = static_cast<T>(wide + wide_value);
          break;
      }
    }
    if (redop != RedOp::kAvg) return result;
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(static_cast<std::int64_t>(result) / ranks);
    return static_cast<T>(static_cast<std::uint64_t>(result) / static_cast<std::uint64_t>(ranks));
  } else {
    const auto value_of = [&](int rank) {
      const double value = to_double(inputs.value(hash, rank));
      return redop == RedOp::kPremulSum ? value * premul_factor(rank) : value;
    };
    double result = value_of(first);
    for (int rank = first + 1; rank < last; ++rank) {
      const double value = value_of(rank);
      switch (redop) {
        case RedOp::kProd:
          result *= value;
          break;
        case RedOp::kMin:
          result = min_of(result, value);
          break;
        case RedOp::kMax:
          result = -min_of(-result, -value);
          break;
        default:
          result += value;
          break;
      }
    }
    return from_double<T>(redop == RedOp::kAvg ? result / ranks : result);
  }
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(to_double(value));
  }
}

// The numbers of a format in ascending order have consecutive places; both zeros have place 0.
template <class T>
std::int64_t place_of(T value) {
  using Bits = std::conditional_t<
      sizeof(T) == 1, std::int8_t,
      std::conditional_t<sizeof(T) == 2, std::int16_t,
                         std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>>;
  Bits bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits < 0 ? std::numeric_limits<Bits>::min() - std::int64_t{bits} : std::int64_t{bits};
}

template <class T>
bool is_right(T got, T expected, const Case& what) {
  if (std::memcmp(&got, &expected, sizeof(T)) == 0) return true;
  if (!reduces(what.op)) return false;
  if (is_nan(got) || is_nan(expected)) return is_nan(got) && is_nan(expected);
  if (what.redop != RedOp::kAvg || std::is_integral_v<T>) return false;
  // As unsigned numbers, since the places of -x and x may be more than an int64 apart.
  const std::int64_t low = std::min(place_of(got), place_of(expected));
  const std::int64_t high = std::max(place_of(got), place_of(expected));
  return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) <= 1;
}

std::uint64_t moved_bits(std::uint64_t seed, int rank, std::uint64_t elem) {
  return mix(mix(seed + (static_cast<std::uint64_t>(rank) + 1) * kGolden) + (elem + 1) * kGolden);
}

template <class T>
void store_bits(std::uint64_t bits, T* out) {
  std::memcpy(out, &bits, sizeof(T));  // the low bytes: only little-endian machines are supported
}

}  // namespace

double premul_factor(int rank) { return rank % 2 == 0 ? 1.0 : 2.0; }

std::vector<Block> result_blocks(const Case& what, int ranks, int rank) {
  const std::uint64_t count = what.count;
  const auto n = static_cast<std::uint64_t>(ranks);
  const auto own = static_cast<std::uint64_t>(rank) * count;
  const bool at_root = rank == what.root;
  std::vector<Block> blocks;
  switch (what.op) {
    case Op::kBarrier:
      break;
    case Op::kAllReduce:
      return {{0, 0, ranks, 0, count}};
    case Op::kReduce:
      if (at_root) return {{0, 0, ranks, 0, count}};
      break;
    case Op::kReduceScatter:
      return {{0, 0, ranks, own, count}};
    case Op::kScan:
      return {{0, 0, rank + 1, 0, count}};
    case Op::kExscan:
      if (rank > 0) return {{0, 0, rank, 0, count}};
      break;
    case Op::kBroadcast:
      return {{0, what.root, what.root + 1, 0, count}};
    case Op::kScatter:
      return {{0, what.root, what.root + 1, own, count}};
    case Op::kSendRecv: {
      const int from = (rank + ranks - 1) % ranks;
      return {{0, from, from + 1, 0, count}};
    }
    case Op::kGather:
      if (!at_root) break;
      [[fallthrough]];
    case Op::kAllGather:
      for (std::uint64_t r = 0; r < n; ++r) {
        blocks.push_back({r * count, static_cast<int>(r), static_cast<int>(r) + 1, 0, count});
      }
      break;
    case Op::kAllToAll:
      for (std::uint64_t r = 0; r < n; ++r) {
        blocks.push_back({r * count, static_cast<int>(r), static_cast<int>(r) + 1, own, count});
      }
      break;
  }
  return blocks;
}

Pattern::Pattern(const Case& what, int ranks, std::uint64_t seed, Rules rules, bool specials)
    : what_(what), ranks_(ranks), seed_(mix(seed + kGolden)), rules_(rules), specials_(specials) {}

void Pattern::fill(int rank, void* send) const {
  with_type(what_.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = static_cast<T*>(send);
    const std::uint64_t elems = send_elems(what_, ranks_);
    if (reduces(what_.op)) {
      const Inputs<T> inputs(what_.redop, ranks_, seed_, rules_, specials_);
      for (std::uint64_t i = 0; i < elems; ++i) out[i] = inputs.value(inputs.element(i), rank);
    } else {
      for (std::uint64_t i = 0; i < elems; ++i) store_bits(moved_bits(seed_, rank, i), out + i);
    }
  });
}

template <class T>
void Pattern::expect_elems(const Block& block, std::uint64_t begin, std::uint64_t elems,
                           T* out) const {
  const std::uint64_t from = block.from_elem + begin;
  if (reduces(what_.op)) {
    const Inputs<T> inputs(what_.redop, ranks_, seed_, rules_, specials_);
    for (std::uint64_t i = 0; i < elems; ++i) {
      out[i] = fold(inputs, from + i, what_.redop, block.first_rank, block.last_rank, ranks_);
    }
  } else {
    for (std::uint64_t i = 0; i < elems; ++i) {
      store_bits(moved_bits(seed_, block.first_rank, from + i), out + i);
    }
  }
}

void Pattern::expect(int rank, void* recv) const {
  with_type(what_.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const Block& block : result_blocks(what_, ranks_, rank)) {
      expect_elems<T>(block, 0, block.elems, static_cast<T*>(recv) + block.to_elem);
    }
  });
}

std::uint64_t Pattern::count_wrong(int rank, const void* recv) const {
  return with_type(what_.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr std::uint64_t kPiece =
        1024;  // elements expected at a time: stays in the first-level cache
    std::array<T, kPiece> expected;
    std::uint64_t wrong = 0;
    for (const Block& block : result_blocks(what_, ranks_, rank)) {
      for (std::uint64_t begin = 0; begin < block.elems; begin += kPiece) {
        const std::uint64_t elems = std::min(kPiece, block.elems - begin);
        expect_elems<T>(block, begin, elems, expected.data());
        const T* got = static_cast<const T*>(recv) + block.to_elem + begin;
        if (std::memcmp(got, expected.data(), elems * sizeof(T)) == 0) continue;
        for (std::uint64_t i = 0; i < elems; ++i) {
          if (!is_right(got[i], expected[i], what_)) ++wrong;
        }
      }
    }
    return wrong;
  });
}

}  // namespace treering::perf
