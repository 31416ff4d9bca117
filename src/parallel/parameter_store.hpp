// ParameterStore, as all its parts see it: store_create.cpp, parameter_store.cpp (what layers
// call), store_reduce.cpp (gradients), store_step.cpp (the optimizer, pieces, hashes).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "treering/parallel/parameters.hpp"

#include "parallel/bucket_layout.hpp"

namespace tr::par {

class BucketStore final : public ParameterStore {
 public:
  BucketStore(Comm& dp, Comm& tp, Compute& compute, const Model& model,
              std::vector<ParameterSpec> mine, const StoreOptions& options)
      : dp_(dp),
        tp_(tp),
        compute_(compute),
        model_(model),
        mine_(std::move(mine)),
        options_(options),
        wide_(accumulator_of(options.type)) {}
  ~BucketStore() override;
  Status start();  // the rest of create

  Status initialize(std::uint64_t seed) override;
  const std::vector<BucketInfo>& buckets() const override { return infos_; }

  Status prefetch(int layer) override;
  Status acquire(int layer) override;
  void release(int layer) override;
  View parameter(int number) override;
  Result<View> gradient(int number) override;
  Status ready(int layer) override;
  Status ready_empty() override;

  Status finish() override;
  Result<double> gradient_norm(Comm& model) override;
  Result<std::string> find_not_finite() override;
  Status step(double factor) override;
  Status drop_gradients() override;
  void set_learning_rate(double lr) override;
  std::int64_t steps() const override { return steps_; }

  std::vector<Piece> pieces() override;
  GradientHook* hook() const override { return options_.hook; }
  Status set_steps(std::int64_t steps) override;
  Status publish_parameters() override;
  Result<std::uint64_t> hash() override;

 private:
  struct Bucket {
    BucketLayout layout;
    Tensor parameters;      // whole; with zero 3 this replica's slice
    Tensor gathered;        // zero 3: whole, from prefetch or acquire to the last release
    Tensor gradients;       // whole; with zero 2 and 3 from the first gradient to the reduction
    Tensor gradient_slice;  // zero 2 and 3
    Tensor master;          // empty where the parameters are of the accumulator's type
    Tensor m, v;
    Registration parameters_held, gradients_held;  // end before their tensors
    Comm::Mark gather_mark = 0, reduce_mark = 0, publish_mark = 0;
    int holders = 0;          // acquires without a release
    int not_ready = 0;        // layers
    bool is_reduced = false;  // or on its way: gradients may not change any more
  };
  struct Location {
    Bucket* bucket = nullptr;
    const Place* place = nullptr;
  };
  // Where a bucket's slice begins that this replica optimizes, and how long it is.
  struct Slice {
    std::int64_t first = 0, count = 0;
  };

  // store_create.cpp
  Status check_options() const;
  Status check_replicas_agree();
  Status allocate(Bucket& bucket);
  Status initialize_one(Bucket& bucket, const Place& place, std::uint64_t seed);

  bool is_sharded() const { return options_.zero >= 1; }
  Slice slice_of(const Bucket& bucket, int replica) const;
  Slice my_slice(const Bucket& bucket) const { return slice_of(bucket, dp_.rank()); }
  View parameter_slice(const Bucket& bucket) const;
  View gradient_slice(const Bucket& bucket) const;
  View master(const Bucket& bucket) const;
  Result<Tensor> make(Use use, std::int64_t elements, DType type) const {
    return Tensor::make(compute_.memory(), use, 1, elements, type);
  }
  Result<Bucket*> bucket_of_layer(int layer, const char* call);
  Result<Location> locate(int number, const char* call);

  // parameter_store.cpp
  Status start_gather(Bucket& bucket);
  Status wait_gather(Bucket& bucket);
  Status make_gradients(Bucket& bucket);

  // store_reduce.cpp
  Status mark_ready(int layer);
  Status reduce(Bucket& bucket);
  Status reduce_now(Bucket& bucket);
  Status reduce_partials(Bucket& bucket);
  Status even_out(Bucket& bucket);
  Status end_reduction(Bucket& bucket);
  Status end_early_reductions();
  Status launch_rest_and_wait();
  Status all_were_ready();
  Result<std::string> look_for_not_finite(const Bucket& bucket);
  Result<double> sum_of_squares(const Bucket& bucket, const View& slice, Slice where);

  // store_step.cpp
  Status update(Bucket& bucket, double factor);
  Status publish(Bucket& bucket);
  Status begin_next_step();

  Comm& dp_;
  Comm& tp_;
  Compute& compute_;
  const Model model_;
  const std::vector<ParameterSpec> mine_;
  StoreOptions options_;
  const DType wide_;               // of gradients and optimizer state
  std::unique_ptr<Comm> control_;  // dp's ranks: what is not gradients and parameters
  std::vector<Bucket> buckets_;
  std::vector<BucketInfo> infos_;
  std::map<int, Bucket*> by_layer_;
  std::map<int, Location> by_number_;
  std::map<int, bool> is_ready_;  // by layer

  std::size_t next_ = 0;  // bucket to reduce
  bool is_finished_ = false;
  std::string not_finite_;  // the first that check_finite found
  std::int64_t steps_ = 0;
};

}  // namespace tr::par
