// Groups by measured distance, for where nothing is described: ranks, machines or cores whose
// mutual distances are alike and clearly shorter than those to others.
#pragma once

#include <cstddef>
#include <vector>

namespace treering::topo {

struct Level {
  double distance = 0;             // the farthest within a group
  std::vector<std::size_t> group;  // of each member, numbered from 0 in order
  std::size_t groups = 0;
};

// distances: n x n, row by row; of the two directions the longer counts, 0 is unknown. The levels
// at which there are several groups and fewer than members, the finest first. A level ends where
// the next longer distance is at least kGap times as long: less is noise.
std::vector<Level> group_by_distance(const std::vector<double>& distances, std::size_t n);
inline constexpr double kGap = 1.4;

}  // namespace treering::topo
