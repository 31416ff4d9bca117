// What must hold for any plan of rings and trees, found without the search's own arithmetic: loads
// are added up here hop by hop, in each direction; bounds are maximal flows and brute force.
#pragma once

#include <string>

#include "tests/topo/util.hpp"
#include "topo/search.hpp"

namespace treering::topo {

// No more than this reaches all members from all others, whatever the rings: the smallest cut
// between any two members (and the other machines), by Dinic's maximal flow over the links.
// direct_only: over NVLink and xGMI between GPUs alone.
double cut_bound(const Graph& graph, const RingPlan& plan, bool outside);

// Rings are permutations over paths that exist, in pairs; nothing carries more than it can; what
// is said to be full is full; the sum is the sum.
void expect_sound_rings(const Graph& graph, const RingPlan& plan, bool outside);

// The prices cost what the bound says, and no tour costs less than 1: looked for by trying all
// orders. Up to 9 members.
void expect_proof(const Graph& graph, const RingPlan& plan, bool outside);

// Whether NVLink and xGMI alone close a ring (or a chain), by trying all orders.
bool direct_ring_exists(const Graph& graph, const std::vector<NodeId>& members, bool chain);

void expect_sound_trees(const Graph& graph, const RingPlan& rings, const TreePlan& plan,
                        int machines);

void expect_same(const RingPlan& a, const RingPlan& b);

}  // namespace treering::topo
