// Mesh: dp x pp x tp ranks, and a group for each direction.
//
// rank = (d * pp + s) * tp + t: tensor-parallel peers are neighbours, because they talk most, and
// data-parallel replicas are farthest apart (Narayanan et al., "Efficient Large-Scale Language
// Model Training on GPU Clusters Using Megatron-LM", SC 2021).
#pragma once

#include <array>
#include <memory>
#include <string>

#include "treering/parallel/comm.hpp"

namespace tr::par {

struct MeshShape {
  int dp = 1, pp = 1, tp = 1;
  int size() const { return dp * pp * tp; }
};
struct Coordinates {
  int dp = 0, pp = 0, tp = 0;
};
constexpr int rank_of(const MeshShape& shape, const Coordinates& at) {
  return (at.dp * shape.pp + at.pp) * shape.tp + at.tp;
}
constexpr Coordinates coordinates_of(const MeshShape& shape, int rank) {
  return {rank / (shape.pp * shape.tp), rank / shape.tp % shape.pp, rank % shape.tp};
}
// A table of who is where, for people.
std::string to_string(const MeshShape& shape);

class Mesh {
 public:
  // Collective over world. TR_INVALID_ARGUMENT, with the numbers, if dp pp tp is not its size.
  static Result<Mesh> create(std::unique_ptr<Comm> world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& at() const { return at_; }
  int rank() const { return world_->rank(); }

  Comm& world() { return *world_; }
  Comm& dp() { return *dp_; }        // replicas: the same stage and shard
  Comm& tp() { return *tp_; }        // shards of one stage's layers
  Comm& model() { return *model_; }  // one replica's stages and shards: pp x tp ranks
  // Stages of one shard, one group for each direction: with two stages, or with interleaved ones,
  // the next is the previous too, and messages of the two directions must not be taken for each
  // other.
  Comm& pp_forward() { return *pp_forward_; }
  Comm& pp_backward() { return *pp_backward_; }

  Status set_rank_order(bool on);  // on all groups
  // Of all groups together.
  Traffic traffic() const;
  void reset_traffic();

 private:
  Mesh() = default;
  std::array<Comm*, 6> all() const;

  MeshShape shape_;
  Coordinates at_;
  std::unique_ptr<Comm> world_, dp_, tp_, model_, pp_forward_, pp_backward_;
};

}  // namespace tr::par
