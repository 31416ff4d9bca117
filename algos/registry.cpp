#include "algos/registry.hpp"

#include <algorithm>
#include <utility>

#include "algos/barrier.hpp"
#include "algos/binomial.hpp"
#include "algos/bruck.hpp"
#include "algos/chain.hpp"
#include "algos/direct.hpp"
#include "algos/leaders.hpp"
#include "algos/local.hpp"
#include "algos/pairwise.hpp"
#include "algos/recursive.hpp"
#include "algos/ring.hpp"
#include "algos/tree.hpp"
#include "algos/two_level.hpp"
#include "algos/window.hpp"

namespace treering::algos {
namespace {

int whole(int) { return 1; }
int two_halves(int) { return 2; }
int per_rank(int size) { return size; }

bool one_rank(int size) { return size == 1; }
bool several_ranks(int size) { return size >= 2; }
bool by_hosts(int) { return false; }

int one_each(const Hosts&) { return 1; }
int two_each(const Hosts&) { return 2; }
int per_member(const Hosts& hosts) { return hosts.first[hosts.count]; }
// Of the smallest host: its members own that many rings each.
int turns(const Hosts& hosts) {
  int least = hosts.most;
  for (int h = 0; h < hosts.count; ++h) least = std::min(least, hosts.members_of(h));
  return (hosts.most + least - 1) / least;
}
int per_ring_and_host(const Hosts& hosts) { return hosts.most * hosts.count; }

// What an algorithm can do, one bit per bool of Algorithm.
enum Traits : unsigned {
  kPlain = 0,
  kOrder = 1,      // keeps_order
  kFixed = 2 | 1,  // order_is_fixed, and so keeps_order
  kInPlace = 4,    // in_place
  kWindows = 8,    // windows
  kUneven = 16,    // uneven
  kCasts = 32,     // casts
};

constexpr Algorithm row(const char* name, Collective collective, void (*trace)(TracePrims&),
                        int (*chunks)(int), bool (*supports)(int), unsigned traits,
                        const char* source, const char* formula,
                        int (*chunks_on)(const Hosts&) = nullptr,
                        int (*rings_a_link)(const Hosts&) = nullptr) {
  return {.name = name,
          .collective = collective,
          .trace = trace,
          .chunks = chunks,
          .supports = supports,
          .keeps_order = (traits & 1) != 0,
          .order_is_fixed = (traits & 2) != 0,
          .in_place = (traits & kInPlace) != 0,
          .windows = (traits & kWindows) != 0,
          .casts = (traits & (kCasts | kWindows)) != 0,
          .uneven = (traits & kUneven) != 0,
          .source = source,
          .formula = formula,
          .chunks_on = chunks_on,
          .rings_a_link = rings_a_link};
}

// One that needs to know the hosts.
constexpr Algorithm on_hosts(const char* name, Collective collective, void (*trace)(TracePrims&),
                             int (*chunks)(const Hosts&), unsigned traits, const char* source,
                             const char* formula, int (*rings_a_link)(const Hosts&) = nullptr) {
  return row(name, collective, trace, per_rank, by_hosts, traits, source, formula, chunks,
             rings_a_link);
}

using C = Collective;
using P = TracePrims;

constexpr const char* kFolklore = "folklore";
constexpr const char* kRing =
    "Patarasuk, Yuan 2009: Bandwidth optimal all-reduce algorithms for clusters of workstations";
constexpr const char* kTree =
    "Sanders, Speck, Traeff 2009: Two-tree algorithms for full bandwidth broadcast, reduction and "
    "scan";
constexpr const char* kRecursive =
    "Thakur, Rabenseifner, Gropp 2005: Optimization of collective communication operations in "
    "MPICH";
constexpr const char* kBruck =
    "Bruck et al. 1997: Efficient algorithms for all-to-all communications in message-passing "
    "systems";
constexpr const char* kBinomial =
    "Chan et al. 2007: Collective communication: theory, practice, and experience";
constexpr const char* kTwoLevel =
    "Jia et al. 2018: Highly scalable deep learning training system with mixed-precision";
constexpr const char* kBarrier =
    "Hensgen, Finkel, Manber 1988: Two algorithms for barrier synchronization";

// Formulas: S is the bytes of the vector, of all parts together where the caller cuts it; n the
// ranks. "once" is what is written to a one-to-many link and read by all. H is the hosts, p the
// ranks of each.
constexpr Algorithm kAlgorithms[] = {
    row("local", C::kAllReduce, local::fold<P>, whole, one_rank, kFixed | kInPlace, kFolklore,
        "nothing is sent"),
    row("ring", C::kAllReduce, ring::all_reduce<P>, per_rank, several_ranks, kInPlace, kRing,
        "2(n-1)/n S, 2(n-1) steps"),
    row("tree", C::kAllReduce, tree::all_reduce<P>, two_halves, several_ranks, kOrder | kInPlace,
        kTree, "at most 2 S, 2 log2 n steps, pipelined"),
    row("halving_doubling", C::kAllReduce, halving_doubling_all_reduce<P>, largest_power_of_two,
        several_ranks, kOrder | kInPlace, kRecursive,
        "2(m-1)/m S for the largest power of two m <= n, and S in each pair beyond, 2 log2 m (+ 2) "
        "steps"),
    row("recursive_doubling", C::kAllReduce, recursive_doubling_all_reduce<P>, whole, several_ranks,
        kOrder | kInPlace, kRecursive,
        "S log2 m for the largest power of two m <= n, and S in each pair beyond, log2 m (+ 2) "
        "steps"),
    row("one_shot", C::kAllReduce, direct::one_shot_all_reduce<P>, whole, several_ranks,
        kFixed | kInPlace | kCasts, kFolklore, "S once, 1 step"),
    row("two_shot", C::kAllReduce, direct::two_shot_all_reduce<P>, per_rank, several_ranks,
        kFixed | kInPlace | kCasts, kFolklore, "(n-1)/n S, then S/n once, 2 steps"),
    row("window", C::kAllReduce, window::two_shot_all_reduce<P>, per_rank, several_ranks,
        kFixed | kInPlace | kWindows, kFolklore,
        "S read and S written in place, 1 step between 2 signals"),
    row("window_one_shot", C::kAllReduce, window::one_shot_all_reduce<P>, whole, several_ranks,
        kFixed | kWindows, kFolklore, "(n-1) S read in place, 1 step between 2 signals"),
    row("direct", C::kAllReduce, direct::all_reduce<P>, per_rank, several_ranks, kFixed | kInPlace,
        kFolklore, "2(n-1)/n S, 2 steps"),
    on_hosts("two_level", C::kAllReduce, two_level::all_reduce<P>, per_ring_and_host, kInPlace,
             kTwoLevel, "2(H-1)/H S/p between hosts, and 2(p-1)/p S inside, 2(H-1) + 2 steps",
             turns),
    on_hosts("two_level_tree", C::kAllReduce, two_level::tree_all_reduce<P>, two_each,
             kOrder | kInPlace, kTree,
             "at most 2 S between hosts by their leaders, 2 log2 H + 2 steps, pipelined"),
    on_hosts("two_level_doubling", C::kAllReduce, two_level::doubling_all_reduce<P>, one_each,
             kOrder | kInPlace, kRecursive,
             "S log2 H between hosts by their leaders, log2 H + 2 steps"),

    row("local", C::kReduce, local::fold<P>, whole, one_rank, kFixed | kInPlace, kFolklore,
        "nothing is sent"),
    row("ring", C::kReduce, ring::reduce<P>, whole, several_ranks, kInPlace, kRing,
        "S, n-1 steps, pipelined"),
    row("tree", C::kReduce, tree::reduce<P>, two_halves, several_ranks, kInPlace, kTree,
        "S, log2 n + 1 steps, pipelined"),
    row("direct", C::kReduce, direct::reduce<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S, 1 step"),
    row("chain", C::kReduce, chain::reduce<P>, whole, several_ranks, kOrder | kInPlace, kFolklore,
        "S, n steps, pipelined"),
    on_hosts("two_level", C::kReduce, two_level::tree_reduce<P>, two_each, kInPlace, kTree,
             "S between hosts by their leaders, log2 H + 2 steps, pipelined"),

    row("local", C::kBroadcast, local::move<P>, whole, one_rank, kInPlace, kFolklore,
        "nothing is sent"),
    row("ring", C::kBroadcast, ring::broadcast<P>, whole, several_ranks, kInPlace, kRing,
        "S, n-1 steps, pipelined"),
    row("tree", C::kBroadcast, tree::broadcast<P>, two_halves, several_ranks, kInPlace, kTree,
        "S, log2 n + 1 steps, pipelined"),
    row("binomial", C::kBroadcast, binomial::broadcast<P>, whole, several_ranks, kInPlace,
        kBinomial, "S log2 n by root, log2 n steps"),
    row("direct", C::kBroadcast, direct::broadcast<P>, whole, several_ranks, kInPlace | kCasts,
        kFolklore, "S once, 1 step"),
    row("window", C::kBroadcast, window::broadcast<P>, per_rank, several_ranks, kInPlace | kWindows,
        kFolklore, "S read in place, 2 steps between 3 signals"),
    on_hosts("two_level", C::kBroadcast, two_level::tree_broadcast<P>, two_each, kInPlace, kTree,
             "S between hosts by their leaders, log2 H + 2 steps, pipelined"),

    row("local", C::kAllGather, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore,
        "nothing is sent"),
    row("ring", C::kAllGather, ring::all_gather<P>, per_rank, several_ranks, kInPlace | kUneven,
        kRing, "(n-1)/n S, n-1 steps"),
    row("bruck", C::kAllGather, bruck::all_gather<P>, per_rank, several_ranks, kInPlace | kUneven,
        kBruck, "(n-1)/n S, log2 n steps"),
    row("direct", C::kAllGather, direct::all_gather<P>, per_rank, several_ranks,
        kInPlace | kUneven | kCasts, kFolklore, "S/n once, 1 step"),
    row("window", C::kAllGather, window::all_gather<P>, per_rank, several_ranks,
        kInPlace | kWindows | kUneven, kFolklore,
        "(n-1)/n S read in place, 1 step between 2 signals"),
    on_hosts("two_level", C::kAllGather, two_level::all_gather<P>, per_member, kInPlace | kUneven,
             kTwoLevel, "(H-1)/H S/p between hosts, and (p-1)/p S inside, H steps", turns),

    row("local", C::kReduceScatter, local::fold<P>, per_rank, one_rank, kFixed | kInPlace | kUneven,
        kFolklore, "nothing is sent"),
    row("ring", C::kReduceScatter, ring::reduce_scatter<P>, per_rank, several_ranks,
        kInPlace | kUneven, kRing, "(n-1)/n S, n-1 steps"),
    row("direct", C::kReduceScatter, direct::reduce_scatter<P>, per_rank, several_ranks,
        kFixed | kInPlace | kUneven, kFolklore, "(n-1)/n S, 1 step"),
    row("window", C::kReduceScatter, window::reduce_scatter<P>, per_rank, several_ranks,
        kFixed | kInPlace | kWindows | kUneven, kFolklore,
        "S read in place, 1 step between 2 signals"),
    on_hosts("two_level", C::kReduceScatter, two_level::reduce_scatter<P>, per_member,
             kInPlace | kUneven, kTwoLevel,
             "(H-1)/H S/p between hosts, and (p-1)/p S inside, H steps", turns),

    row("local", C::kGather, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore,
        "nothing is sent"),
    row("binomial", C::kGather, binomial::gather<P>, per_rank, several_ranks, kInPlace, kBinomial,
        "at most S/2, log2 n steps"),
    row("direct", C::kGather, direct::gather<P>, per_rank, several_ranks, kInPlace | kUneven,
        kFolklore, "S/n, 1 step"),
    row("window", C::kGather, window::gather<P>, per_rank, several_ranks, kInPlace | kWindows,
        kFolklore, "(n-1)/n S read in place by root, 1 step between 2 signals"),

    row("local", C::kScatter, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore,
        "nothing is sent"),
    row("binomial", C::kScatter, binomial::scatter<P>, per_rank, several_ranks, kInPlace, kBinomial,
        "(n-1)/n S by root, log2 n steps"),
    row("direct", C::kScatter, direct::scatter<P>, per_rank, several_ranks, kInPlace | kUneven,
        kFolklore, "(n-1)/n S by root, 1 step"),
    row("window", C::kScatter, window::scatter<P>, per_rank, several_ranks, kInPlace | kWindows,
        kFolklore, "(n-1)/n S written in place by root, 1 step between 2 signals"),

    row("local", C::kAllToAll, local::move<P>, per_rank, one_rank, kInPlace | kUneven, kFolklore,
        "nothing is sent"),
    row("pairwise", C::kAllToAll, pairwise::all_to_all<P>, per_rank, several_ranks,
        kInPlace | kUneven, kFolklore, "(n-1)/n S, 1 step of n-1 messages"),
    row("bruck", C::kAllToAll, bruck::all_to_all<P>, per_rank, several_ranks, kPlain, kBruck,
        "about S/2 log2 n, log2 n steps"),
    row("window", C::kAllToAll, window::all_to_all<P>, per_rank, several_ranks, kWindows, kFolklore,
        "(n-1)/n S read in place, 1 step between 2 signals"),

    row("local", C::kBarrier, local::nothing<P>, whole, one_rank, kInPlace, kFolklore,
        "nothing is sent"),
    row("dissemination", C::kBarrier, barrier::dissemination<P>, whole, several_ranks, kInPlace,
        kBarrier, "log2 n messages, log2 n steps"),
    row("direct", C::kBarrier, barrier::direct<P>, whole, several_ranks, kInPlace | kCasts,
        kFolklore, "1 message once, 1 step"),

    row("local", C::kScan, local::fold<P>, whole, one_rank, kFixed | kInPlace, kFolklore,
        "nothing is sent"),
    row("chain", C::kScan, chain::scan<P>, whole, several_ranks, kOrder | kInPlace, kFolklore,
        "S, n-1 steps, pipelined"),
    row("direct", C::kScan, direct::scan<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S to each higher rank, 1 step"),

    row("local", C::kExscan, local::nothing<P>, whole, one_rank, kFixed | kInPlace, kFolklore,
        "nothing is sent"),
    row("chain", C::kExscan, chain::exscan<P>, whole, several_ranks, kOrder | kInPlace, kFolklore,
        "S, n-1 steps, pipelined"),
    row("direct", C::kExscan, direct::exscan<P>, whole, several_ranks, kFixed | kInPlace, kFolklore,
        "S to each higher rank, 1 step"),
};

}  // namespace

std::span<const Algorithm> all_algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == collective && a.name == name) return &a;
  }
  return nullptr;
}

const char* why_unsupported(const Algorithm& algorithm, int size, const HostMap* hosts) {
  const bool several = hosts != nullptr && hosts->hosts() > 1;
  if (algorithm.needs_hosts()) {
    if (!several) return "it is for several hosts, and all ranks are on one";
    return hosts->ranks() == size ? nullptr : "the hosts have another number of ranks";
  }
  if (!algorithm.supports(size)) return "it does not support this number of ranks";
  if (!several || !algorithm.casts) return nullptr;
  return algorithm.windows ? "it uses registered windows, which reach the ranks of one host only"
                           : "it uses one-to-many links, which reach the ranks of one host only";
}

bool supports(const Algorithm& algorithm, int size, const HostMap* hosts) {
  return why_unsupported(algorithm, size, hosts) == nullptr;
}

bool keeps_order(const Algorithm& algorithm, const HostMap* hosts) {
  if (!algorithm.keeps_order || !algorithm.needs_hosts()) return algorithm.keeps_order;
  return hosts != nullptr && hosts->contiguous();
}

int chunk_count(const Algorithm& algorithm, int size, const HostMap* hosts) {
  return algorithm.needs_hosts() ? algorithm.chunks_on(hosts->view()) : algorithm.chunks(size);
}

int enough_slots(const Algorithm& algorithm, int slices, const HostMap* hosts) {
  const int rings = algorithm.rings_a_link != nullptr ? algorithm.rings_a_link(hosts->view()) : 1;
  return rings * slices + 1;
}

std::string algorithm_names(Collective collective, int size,
                            const std::function<bool(const char* name)>& exists,
                            const HostMap* hosts) {
  std::string names;
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective != collective || !supports(a, size, hosts) || (exists && !exists(a.name))) {
      continue;
    }
    if (!names.empty()) names += ", ";
    names += a.name;
  }
  return names;
}

Schedule record(const Algorithm& algorithm, int rank, int size, int root, const HostMap* hosts) {
  TracePrims prims(rank, size, root, hosts != nullptr ? hosts->view() : Hosts{});
  algorithm.trace(prims);
  return std::move(prims).take();
}

}  // namespace treering::algos
