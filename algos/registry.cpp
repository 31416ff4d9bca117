#include "algos/registry.hpp"

#include <utility>

#include "algos/direct.hpp"
#include "algos/local.hpp"
#include "algos/ring.hpp"
#include "algos/window.hpp"

namespace treering::algos {
namespace {

int whole(int) { return 1; }
int per_rank(int size) { return size; }

bool one_rank(int size) { return size == 1; }
bool several_ranks(int size) { return size >= 2; }

// What an algorithm can do, one bit per bool of Algorithm.
enum Traits : unsigned {
  kPlain = 0,
  kOrder = 1,      // keeps_order
  kFixed = 2 | 1,  // order_is_fixed, and so keeps_order
  kInPlace = 4,    // in_place
  kWindows = 8,    // windows
  kUneven = 16,    // uneven
};

constexpr Algorithm row(const char* name, Collective collective, void (*trace)(TracePrims&),
                        int (*chunks)(int), bool (*supports)(int), unsigned traits,
                        const char* source, const char* formula) {
  return {.name = name,
          .collective = collective,
          .trace = trace,
          .chunks = chunks,
          .supports = supports,
          .keeps_order = (traits & 1) != 0,
          .order_is_fixed = (traits & 2) != 0,
          .in_place = (traits & kInPlace) != 0,
          .windows = (traits & kWindows) != 0,
          .uneven = (traits & kUneven) != 0,
          .source = source,
          .formula = formula};
}

using C = Collective;
using P = TracePrims;

constexpr const char* kFolklore = "folklore";
constexpr const char* kNothing = "nothing is sent";
constexpr const char* kRing = "Patarasuk, Yuan 2009: Bandwidth optimal all-reduce algorithms";

// S: bytes of the vector (of all parts together where the caller cuts it), n: ranks.
// clang-format off
constexpr Algorithm kAlgorithms[] = {
    row("local", C::kAllReduce, local::fold<P>, whole, one_rank, kFixed | kInPlace | kUneven, kFolklore, kNothing),
    row("ring", C::kAllReduce, ring::all_reduce<P>, per_rank, several_ranks, kInPlace, kRing,
        "2(n-1)/n S, 2(n-1) steps"),
    row("one_shot", C::kAllReduce, direct::one_shot_all_reduce<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S to all at once, 1 step"),
    row("two_shot", C::kAllReduce, direct::two_shot_all_reduce<P>, per_rank, several_ranks, kFixed | kInPlace, kFolklore,
        "(n-1)/n S and S/n to all at once, 2 steps"),
    row("window", C::kAllReduce, window::two_shot_all_reduce<P>, per_rank, several_ranks, kFixed | kInPlace | kWindows,
        kFolklore, "S read and S written in place, 1 step between 2 signals"),

    row("local", C::kReduce, local::fold<P>, whole, one_rank, kFixed | kInPlace | kUneven, kFolklore, kNothing),
    row("ring", C::kReduce, ring::reduce<P>, whole, several_ranks, kInPlace, kRing, "S, n-1 steps, pipelined"),
    row("direct", C::kReduce, direct::reduce<P>, whole, several_ranks, kFixed | kInPlace, kFolklore, "S, 1 step"),

    row("local", C::kBroadcast, local::move<P>, whole, one_rank, kInPlace | kUneven, kFolklore, kNothing),
    row("ring", C::kBroadcast, ring::broadcast<P>, whole, several_ranks, kInPlace, kRing, "S, n-1 steps, pipelined"),
    row("direct", C::kBroadcast, direct::broadcast<P>, whole, several_ranks, kInPlace, kFolklore,
        "S to all at once, 1 step"),

    row("local", C::kAllGather, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore, kNothing),
    row("ring", C::kAllGather, ring::all_gather<P>, per_rank, several_ranks, kInPlace | kUneven, kRing,
        "(n-1)/n S, n-1 steps"),
    row("direct", C::kAllGather, direct::all_gather<P>, per_rank, several_ranks, kInPlace | kUneven, kFolklore,
        "S/n to all at once, 1 step"),
    row("window", C::kAllGather, window::all_gather<P>, per_rank, several_ranks, kInPlace | kWindows | kUneven, kFolklore,
        "(n-1)/n S read in place, 1 step between 2 signals"),

    row("local", C::kReduceScatter, local::fold<P>, per_rank, one_rank, kFixed | kInPlace | kUneven, kFolklore, kNothing),
    row("ring", C::kReduceScatter, ring::reduce_scatter<P>, per_rank, several_ranks, kInPlace | kUneven, kRing,
        "(n-1)/n S, n-1 steps"),
    row("direct", C::kReduceScatter, direct::reduce_scatter<P>, per_rank, several_ranks, kFixed | kInPlace | kUneven,
        kFolklore, "(n-1)/n S, 1 step"),
    row("window", C::kReduceScatter, window::reduce_scatter<P>, per_rank, several_ranks,
        kFixed | kInPlace | kWindows | kUneven, kFolklore, "S read in place, 1 step between 2 signals"),

    row("local", C::kGather, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore, kNothing),
    row("direct", C::kGather, direct::gather<P>, per_rank, several_ranks, kInPlace | kUneven, kFolklore, "S/n, 1 step"),

    row("local", C::kScatter, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore, kNothing),
    row("direct", C::kScatter, direct::scatter<P>, per_rank, several_ranks, kInPlace | kUneven, kFolklore,
        "(n-1)/n S by root, 1 step"),

    row("local", C::kAllToAll, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore, kNothing),

    row("local", C::kBarrier, local::nothing<P>, whole, one_rank, kInPlace, kFolklore, kNothing),

    row("local", C::kScan, local::fold<P>, whole, one_rank, kFixed | kInPlace, kFolklore, kNothing),
    row("direct", C::kScan, direct::scan<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S to each higher rank, 1 step"),

    row("local", C::kExscan, local::nothing<P>, whole, one_rank, kFixed | kInPlace, kFolklore, kNothing),
    row("direct", C::kExscan, direct::exscan<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S to each higher rank, 1 step"),
};
// clang-format on

}  // namespace

std::span<const Algorithm> all_algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == collective && a.name == name) return &a;
  }
  return nullptr;
}

std::string algorithm_names(Collective collective, int size) {
  std::string names;
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective != collective || !a.supports(size)) continue;
    if (!names.empty()) names += ", ";
    names += a.name;
  }
  return names;
}

Schedule record(const Algorithm& algorithm, int rank, int size, int root) {
  TracePrims prims(rank, size, root);
  algorithm.trace(prims);
  return std::move(prims).take();
}

}  // namespace treering::algos
