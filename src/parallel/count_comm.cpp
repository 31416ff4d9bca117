// Ranks that do not exist: the base counts, and nothing is moved.
#include "treering/parallel/comm.hpp"

namespace tr::par {
namespace {

class CountComm final : public Comm {
 public:
  CountComm(int rank, int size) : rank_(rank), size_(size) {}
  const char* backend() const override { return "count"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_dry() const override { return true; }
  Status wait(Mark) override { return {}; }
  Status wait_all() override { return {}; }
  Status set_rank_order(bool) override { return {}; }

 protected:
  Status do_all_reduce(const View&, const View&, Reduction) override { return {}; }
  Status do_reduce_scatter(const View&, const View&) override { return {}; }
  Status do_all_gather(const View&, const View&) override { return {}; }
  Status do_all_to_all(const View&, const View&) override { return {}; }
  Status do_broadcast(const View&, int) override { return {}; }
  Status do_send(const View&, int) override { return {}; }
  Status do_recv(const View&, int) override { return {}; }
  Status do_barrier() override { return {}; }
  Status do_copy(const View&, const View&) override { return {}; }
  Result<std::unique_ptr<Comm>> do_split(int, int new_rank, int new_size) override {
    return make_count_comm(new_rank, new_size);
  }

 private:
  int rank_, size_;
};

}  // namespace

std::unique_ptr<Comm> make_count_comm(int rank, int size) {
  return std::make_unique<CountComm>(rank, size);
}

}  // namespace tr::par
