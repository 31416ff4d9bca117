#include "treering/parallel/mesh.hpp"

#include <utility>
#include <vector>

#include "parallel/try.hpp"

namespace tr::par {
namespace {

// The group of `world` in which everybody agrees on what `key` says of a place.
template <class Key>
Result<std::unique_ptr<Comm>> group(Comm& world, const MeshShape& shape, const Key& key) {
  std::vector<int> colors;
  for (int rank = 0; rank < shape.size(); ++rank) {
    colors.push_back(rank_of(shape, key(coordinates_of(shape, rank))));
  }
  return world.split(colors);
}

}  // namespace

std::string to_string(const MeshShape& shape) {
  std::string text = "dp " + std::to_string(shape.dp) + " x pp " + std::to_string(shape.pp) +
                     " x tp " + std::to_string(shape.tp) + ", ranks by place:\n";
  for (int d = 0; d < shape.dp; ++d) {
    for (int s = 0; s < shape.pp; ++s) {
      text += "  replica " + std::to_string(d) + ", stage " + std::to_string(s) + ":";
      for (int t = 0; t < shape.tp; ++t) {
        text += " " + std::to_string(rank_of(shape, {d, s, t}));
      }
      text += "\n";
    }
  }
  return text;
}

Result<Mesh> Mesh::create(std::unique_ptr<Comm> world, const MeshShape& shape) {
  const bool is_positive = shape.dp > 0 && shape.pp > 0 && shape.tp > 0;
  if (!is_positive || shape.size() != world->size()) {
    return Error{TR_INVALID_ARGUMENT,
                 "dp " + std::to_string(shape.dp) + " x pp " + std::to_string(shape.pp) + " x tp " +
                     std::to_string(shape.tp) + " makes " + std::to_string(shape.size()) +
                     " ranks, but there are " + std::to_string(world->size())};
  }
  Mesh mesh;
  mesh.shape_ = shape;
  mesh.at_ = coordinates_of(shape, world->rank());
  using At = Coordinates;
  TRY_ASSIGN(mesh.dp_, group(*world, shape, [](At at) { return At{0, at.pp, at.tp}; }));
  TRY_ASSIGN(mesh.tp_, group(*world, shape, [](At at) { return At{at.dp, at.pp, 0}; }));
  TRY_ASSIGN(mesh.model_, group(*world, shape, [](At at) { return At{at.dp, 0, 0}; }));
  const auto shard = [](At at) { return At{at.dp, 0, at.tp}; };
  TRY_ASSIGN(mesh.pp_forward_, group(*world, shape, shard));
  TRY_ASSIGN(mesh.pp_backward_, group(*world, shape, shard));
  TRY(mesh.pp_forward_->open_messages());
  TRY(mesh.pp_backward_->open_messages());
  mesh.world_ = std::move(world);
  constexpr const char* kNames[] = {"world", "dp", "tp", "model", "pp", "pp"};  // as all() has them
  for (std::size_t i = 0; i < mesh.all().size(); ++i) mesh.all()[i]->set_name(kNames[i]);
  return mesh;
}

Status Mesh::set_rank_order(bool on) {
  for (Comm* comm : all()) TRY(comm->set_rank_order(on));
  return {};
}

Traffic Mesh::traffic() const {
  Traffic sum;
  for (const Comm* comm : all()) sum += comm->traffic();
  return sum;
}

void Mesh::reset_traffic() {
  for (Comm* comm : all()) comm->reset_traffic();
}

std::array<Comm*, 6> Mesh::all() const {
  return {world_.get(), dp_.get(), tp_.get(), model_.get(), pp_forward_.get(), pp_backward_.get()};
}

}  // namespace tr::par
