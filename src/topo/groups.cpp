#include "topo/groups.hpp"

#include <algorithm>
#include <numeric>

namespace treering::topo {
namespace {

// Single linkage: members nearer than `most` are in one group.
Level level_at(const std::vector<double>& distances, std::size_t n, double most) {
  std::vector<std::size_t> leader(n);
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](std::size_t i) {
    while (leader[i] != i) i = leader[i] = leader[leader[i]];
    return i;
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      const double distance = distances[i * n + j];
      if (distance <= 0 || distance > most) continue;
      const std::size_t a = find(i), b = find(j);
      leader[std::max(a, b)] = std::min(a, b);
    }
  }
  Level level;
  level.distance = most;
  level.group.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    level.group[i] = find(i) == i ? level.groups++ : level.group[find(i)];
  }
  return level;
}

}  // namespace

std::vector<Level> group_by_distance(const std::vector<double>& distances, std::size_t n) {
  std::vector<double> longer(distances);
  std::vector<double> sorted;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      longer[i * n + j] = std::max(distances[i * n + j], distances[j * n + i]);
      if (longer[i * n + j] > 0) sorted.push_back(longer[i * n + j]);
    }
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<Level> levels;
  for (std::size_t i = 0; i + 1 < sorted.size(); ++i) {
    if (sorted[i + 1] < sorted[i] * kGap) continue;
    Level level = level_at(longer, n, sorted[i]);
    const bool says = level.groups > 1 && level.groups < n;
    if (says && (levels.empty() || level.groups < levels.back().groups)) {
      levels.push_back(std::move(level));
    }
  }
  return levels;
}

}  // namespace treering::topo
