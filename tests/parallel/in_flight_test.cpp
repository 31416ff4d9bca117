// What is under way may not be touched: gradients of a bucket that is being reduced, buffers of a
// change of layout that is replaced by another.
#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "treering/parallel/layout.hpp"

#include "ranks.hpp"
#include "tiny_net.hpp"

namespace {

using namespace partest;
using namespace tr::par;

// Every ZeRO stage, with and without overlap and hook: from a bucket's reduction on nobody gets its
// gradient, until the sum is whole; other buckets' gradients are there all the time.
TEST(InFlight, AGradientIsNotHandedOutWhileItsBucketIsReduced) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool is_compressed : {false, true}) {
      if (is_compressed && zero > 0) continue;
      on_ranks(2, [&](std::unique_ptr<Comm> dp) {
        const auto compute = must(make_host_compute("ref"));
        const auto alone = make_count_comm(0, 1);
        const auto hook = make_bf16_hook();
        StoreOptions options{.zero = zero};
        options.first_bucket_bytes = options.bucket_bytes = 1;  // a bucket a layer
        if (is_compressed) options.hook = hook.get();
        const StorePtr store = tiny_store(*dp, *alone, *compute, options);
        for (int step = 0; step < 2; ++step) {
          for (const int number : {0, 1, 2, 3}) EXPECT_TRUE(store->gradient(number));
          must(store->ready(1));  // parameters 2 and 3
          for (const int number : {2, 3}) {
            const auto refused = store->gradient(number);
            ASSERT_FALSE(refused) << "zero " << zero;
            EXPECT_EQ(refused.error().code, TR_INVALID_USAGE);
            EXPECT_NE(refused.error().message.find("layer 1"), std::string::npos);
          }
          for (const int number : {0, 1}) EXPECT_TRUE(store->gradient(number));
          must(store->ready(0));
          EXPECT_FALSE(store->gradient(0));
          must(store->finish());
          // The reduced sum is there where it is whole.
          EXPECT_EQ(store->gradient(0).ok(), zero <= 1);
          must(store->step(1.0));
        }
      });
    }
  }
}

// A group whose operations end when they are waited for, and not before; it notes how much memory
// there was then.
class LateComm final : public Comm {
 public:
  explicit LateComm(Memory& memory) : memory_(memory) {}
  const char* backend() const override { return "late"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  tr::Status wait(Mark) override {
    bytes_at_wait.push_back(memory_.bytes());
    return {};
  }
  tr::Status wait_all() override { return {}; }
  tr::Status set_rank_order(bool) override { return {}; }
  std::vector<std::int64_t> bytes_at_wait;

 protected:
  tr::Status do_all_reduce(const View&, const View&, Reduction) override { return {}; }
  tr::Status do_reduce_scatter(const View&, const View&) override { return {}; }
  tr::Status do_all_gather(const View&, const View&) override { return {}; }
  tr::Status do_all_to_all(const View&, const View&) override { return {}; }
  tr::Status do_broadcast(const View&, int) override { return {}; }
  tr::Status do_send(const View&, int) override { return {}; }
  tr::Status do_recv(const View&, int) override { return {}; }
  tr::Status do_barrier() override { return {}; }
  tr::Result<std::unique_ptr<Comm>> do_split(int, int, int) override { return {nullptr}; }

 private:
  Memory& memory_;
};

TEST(InFlight, ARelayoutThatIsReplacedEndsBeforeItsBuffersGo) {
  const Layout kLayouts[] = {Layout::kReplicated, Layout::kColumns, Layout::kRows,
                             Layout::kPartial};
  int moved = 0;
  for (const Layout from : kLayouts) {
    for (const Layout to : kLayouts) {
      if (to == Layout::kPartial) continue;
      const auto compute = must(make_host_compute("ref"));
      LateComm tp(compute->memory());
      const auto start = [&](std::int64_t rows, Layout is, Layout wanted) {
        Tensor x = must(Tensor::make(compute->memory(), Use::kBuffers, rows, 8, DType::kFloat32));
        must(compute->fill(x.view(), 1.0));
        return must(Relayout::start(tp, *compute, Spread{std::move(x), is}, wanted, Use::kBuffers));
      };
      Relayout change = start(64, from, to);
      const std::int64_t under_way = compute->memory().bytes();
      Relayout next = start(2, Layout::kReplicated, Layout::kReplicated);
      const std::int64_t with_next = compute->memory().bytes();
      change = std::move(next);
      for (const std::int64_t bytes : tp.bytes_at_wait) {
        ++moved;
        EXPECT_EQ(bytes, with_next) << name_of(from) << " to " << name_of(to);
      }
      EXPECT_EQ(compute->memory().bytes(), with_next - under_way) << "and then they do go";
      const Spread last = must(std::move(change).finish());
      EXPECT_EQ(last.tensor.view().rows, 2);
    }
  }
  EXPECT_GE(moved, 6) << "changes that move something";
}

}  // namespace
