// Mesh: who is where, and that the groups are the right ranks.
#include "treering/parallel/mesh.hpp"

#include <gtest/gtest.h>
#include <vector>

#include "./ranks.hpp"
#include "matrices.hpp"

namespace {

using partest::must;
using partest::on_ranks;
using tr::par::Comm;
using tr::par::DType;
using tr::par::Mesh;
using tr::par::MeshShape;
using Floats = std::vector<float>;

// The world ranks of a group, as its ranks tell each other.
Floats members(Comm& group, int world_rank) {
  Floats all(static_cast<std::size_t>(group.size()));
  float mine = static_cast<float>(world_rank);
  must(group.wait(
      must(group.all_gather(tr::par::view_of(&mine, 1, 1, DType::kFloat32),
                            tr::par::view_of(all.data(), 1, group.size(), DType::kFloat32)))));
  return all;
}

TEST(Mesh, GroupsOfTwoByTwoByTwo) {
  on_ranks(8, [](std::unique_ptr<Comm> world) {
    const int r = world->rank();
    Mesh mesh = must(Mesh::create(std::move(world), {2, 2, 2}));
    EXPECT_EQ(mesh.at().dp, r / 4);
    EXPECT_EQ(mesh.at().pp, r / 2 % 2);
    EXPECT_EQ(mesh.at().tp, r % 2);
    const float tp0 = static_cast<float>(r - r % 2), dp0 = static_cast<float>(r % 4);
    const float pp0 = static_cast<float>(r - r / 2 % 2 * 2), model0 = static_cast<float>(r / 4 * 4);
    EXPECT_EQ(members(mesh.tp(), r), (Floats{tp0, tp0 + 1}));
    EXPECT_EQ(members(mesh.dp(), r), (Floats{dp0, dp0 + 4}));
    EXPECT_EQ(members(mesh.pp_forward(), r), (Floats{pp0, pp0 + 2}));
    EXPECT_EQ(members(mesh.pp_backward(), r), (Floats{pp0, pp0 + 2}));
    EXPECT_EQ(members(mesh.model(), r), (Floats{model0, model0 + 1, model0 + 2, model0 + 3}));
    // Of all groups: 4 all-gathers of one float to one peer, and one to three.
    EXPECT_EQ(mesh.traffic().bytes(), 4 * 4 + 3 * 4);
    mesh.reset_traffic();
    EXPECT_EQ(mesh.traffic().bytes(), 0);
    must(mesh.set_rank_order(true));
  });
}

TEST(Mesh, NamesNumbersThatDoNotFit) {
  const auto made = Mesh::create(tr::par::make_count_comm(0, 6), {2, 2, 2});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, TR_INVALID_ARGUMENT);
  EXPECT_EQ(made.error().message, "dp 2 x pp 2 x tp 2 makes 8 ranks, but there are 6");
  EXPECT_FALSE(Mesh::create(tr::par::make_count_comm(0, 1), {-1, -1, 1}));
}

TEST(Mesh, CountsRanksThatDoNotExist) {
  const Mesh mesh = must(Mesh::create(tr::par::make_count_comm(301, 512), {8, 4, 16}));
  EXPECT_EQ(mesh.at().dp, 4);
  EXPECT_EQ(mesh.at().pp, 2);
  EXPECT_EQ(mesh.at().tp, 13);
}

TEST(Mesh, Prints) {
  EXPECT_EQ(tr::par::to_string(MeshShape{2, 1, 2}),
            "dp 2 x pp 1 x tp 2, ranks by place:\n"
            "  replica 0, stage 0: 0 1\n"
            "  replica 1, stage 0: 2 3\n");
}

}  // namespace
