#include "algos/program.hpp"

namespace treering::algos {

Program make_program(const Algorithm& algorithm, int size, int root, bool in_place,
                     const HostMap* hosts) {
  Program program;
  program.collective = algorithm.collective;
  program.root = root;
  program.chunks = chunk_count(algorithm, size, hosts);
  program.in_place = in_place;
  program.keeps_order = keeps_order(algorithm, hosts);
  program.order_is_fixed = algorithm.order_is_fixed;
  program.uneven = algorithm.uneven;
  program.ranks.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    program.ranks.push_back(record(algorithm, rank, size, root, hosts));
  }
  return program;
}

bool has_in(const Program& program, int rank, int chunk) {
  switch (program.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == program.root;
    case Collective::kAllGather:
    case Collective::kGather:
      return chunk == rank;
    default:
      return true;
  }
}

bool has_out(const Program& program, int rank, int chunk) {
  switch (program.collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return rank == program.root;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return chunk == rank;
    case Collective::kExscan:
      return rank > 0;
    default:
      return true;
  }
}

bool folds(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kScan:
    case Collective::kExscan:
      return true;
    default:
      return false;
  }
}

}  // namespace treering::algos
