// A backend of Comm in the processes of its own launcher: every operation, on numbers that any
// order sums exactly. Prints "ok" once on each rank, or what was wrong.
#include <cstdio>
#include <string>
#include <vector>

#include "treering/parallel/mesh.hpp"

namespace {

using namespace tr::par;
using Floats = std::vector<float>;

View view(Floats& x) {
  return view_of(x.data(), 1, static_cast<std::int64_t>(x.size()), DType::kFloat32);
}

int fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

#define DO(call)                                                                  \
  do {                                                                            \
    if (auto answered = (call); !answered) return fail(answered.error().message); \
  } while (false)
#define EXPECT(got, expected)                                                                    \
  do {                                                                                           \
    if ((got) != (expected)) return fail("wrong: " #got " at line " + std::to_string(__LINE__)); \
  } while (false)

int check(Comm& comm) {
  const int n = comm.size(), r = comm.rank();
  const auto f = static_cast<float>(r), all_ranks = static_cast<float>(n * (n - 1) / 2);
  for (const std::size_t part : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
    const std::size_t whole = part * static_cast<std::size_t>(n);
    Floats x(whole, f), sum(whole), own(part), gathered(whole), turned(whole);
    DO(comm.all_reduce(view(x), view(sum)));
    DO(comm.reduce_scatter(view(x), view(own)));
    // Uses what the one before leaves, and is not waited for between.
    DO(comm.all_gather(view(own), view(gathered)));
    DO(comm.all_to_all(view(x), view(turned)));
    DO(comm.wait_all());
    EXPECT(sum, Floats(whole, all_ranks));
    EXPECT(gathered, Floats(whole, all_ranks));
    for (std::size_t i = 0; i < whole; ++i) EXPECT(turned[i], static_cast<float>(i / part));
    // In place, and the largest.
    DO(comm.all_reduce(view(x), view(x), Reduction::kMax));
    DO(comm.wait_all());
    EXPECT(x, Floats(whole, static_cast<float>(n - 1)));
    const View mine =
        view(sum).columns(r * static_cast<std::int64_t>(part), static_cast<std::int64_t>(part));
    DO(comm.reduce_scatter(view(sum), mine));
    DO(comm.all_gather(mine, view(sum)));
    DO(comm.wait_all());
    EXPECT(sum, Floats(whole, all_ranks * static_cast<float>(n)));
    DO(comm.broadcast(view(n > 1 && r == 1 ? gathered : x), n > 1 ? 1 : 0));
    DO(comm.wait_all());
    if (n > 1) EXPECT(x[0], r == 1 ? static_cast<float>(n - 1) : all_ranks);
    if (n == 1) continue;
    // Around a ring, sends first, two in flight each way.
    Floats left(part), left_too(part);
    DO(comm.send(view(own), (r + 1) % n));
    DO(comm.send(view(left), (r + 1) % n));
    Floats first(part), second(part);
    DO(comm.recv(view(first), (r + n - 1) % n));
    DO(comm.recv(view(second), (r + n - 1) % n));
    DO(comm.wait_all());
    EXPECT(first, own);
    EXPECT(second, left);
  }
  DO(comm.barrier());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto world = make_world(argc > 1 ? argv[1] : "treering");
  if (!world) return fail(world.error().message);
  const int n = world.value()->size();
  if (const int bad = check(*world.value())) return bad;
  auto mesh = Mesh::create(std::move(world).value(), {n, 1, 1});
  if (!mesh) return fail(mesh.error().message);
  if (const int bad = check(mesh.value().dp())) return bad;
  if (const int bad = check(mesh.value().tp())) return bad;
  std::printf("ok\n");
  return 0;
}
