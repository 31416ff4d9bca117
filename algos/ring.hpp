// Ring algorithms: every rank receives from its left neighbour and sends to its right one.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 2009. n ranks; the vector is cut into n chunks; rank r ends the
// reduce-scatter with chunk r. Bytes that each rank sends for a vector of S bytes: reduce-scatter
// and all-gather (n-1)/n S, all-reduce 2(n-1)/n S; broadcast and reduce S.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::ring {

// n-1 steps. Rank r sends chunk r-1 first: chunk c starts one rank to the right of rank c, goes all
// the way around, one rank richer at each hop, and comes home to rank c complete.
template <class P>
TR_HD void reduce_scatter(P& p) {
  const int n = p.size(), r = p.rank();
  const auto left = p.from(mod(r - 1, n));
  const auto right = p.to(mod(r + 1, n));
  p.send(mod(r - 1, n), right);
  for (int i = 2; i < n; ++i) p.recv_reduce_send(left, mod(r - i, n), right);
  p.recv_reduce_copy(left, r, Last::kYes);
}

// n-1 steps. Every chunk travels once around.
template <class P>
TR_HD void all_gather(P& p) {
  const int n = p.size(), r = p.rank();
  const auto left = p.from(mod(r - 1, n));
  const auto right = p.to(mod(r + 1, n));
  p.send(r, right);
  p.copy(r);
  for (int i = 1; i < n - 1; ++i) p.recv_copy_send(left, mod(r - i, n), right);
  p.recv(left, mod(r + 1, n));
}

// Reduce-scatter, then all-gather, joined at the step that completes the own chunk: 2(n-1) steps.
template <class P>
TR_HD void all_reduce(P& p) {
  const int n = p.size(), r = p.rank();
  const auto left = p.from(mod(r - 1, n));
  const auto right = p.to(mod(r + 1, n));
  p.send(mod(r - 1, n), right);
  for (int i = 2; i < n; ++i) p.recv_reduce_send(left, mod(r - i, n), right);
  p.recv_reduce_copy_send(left, r, right, Last::kYes);
  for (int i = 1; i < n - 1; ++i) p.recv_copy_send(left, mod(r - i, n), right);
  p.recv(left, mod(r + 1, n));
}

// A chain that starts at root; rounds follow each other down the chain (pipelined).
template <class P>
TR_HD void broadcast(P& p) {
  const int n = p.size(), r = p.rank(), distance = mod(r - p.root(), n);
  const auto left = p.from(mod(r - 1, n));
  const auto right = p.to(mod(r + 1, n));
  if (distance == 0) {
    p.send(0, right);
    p.copy(0);
  } else if (distance < n - 1) {
    p.recv_copy_send(left, 0, right);
  } else {
    p.recv(left, 0);
  }
}

// A chain that ends at root.
template <class P>
TR_HD void reduce(P& p) {
  const int n = p.size(), r = p.rank(), distance = mod(r - p.root() - 1, n);
  const auto left = p.from(mod(r - 1, n));
  const auto right = p.to(mod(r + 1, n));
  if (distance == 0) {
    p.send(0, right);
  } else if (distance < n - 1) {
    p.recv_reduce_send(left, 0, right);
  } else {
    p.recv_reduce_copy(left, 0, Last::kYes);
  }
}

}  // namespace treering::algos::ring
