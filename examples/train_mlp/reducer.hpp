// Sums gradients over the ranks while the backward pass still runs.
//
// The gradient vector is cut into buckets in the order in which the backward pass finishes it:
// large enough that an all-reduce runs at full bandwidth, small enough that the first can start
// early (Li et al., "PyTorch Distributed", VLDB 2020). Buckets are launched strictly by index,
// never by who happens to be ready: all ranks must issue their collectives in one order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "treering/treering.hpp"

#include "compute/device.hpp"
#include "train_mlp/mlp.hpp"

namespace train {

struct ReducerOptions {
  std::size_t bucket_bytes = 25u << 20;       // a bucket is closed before it would grow over this
  std::size_t first_bucket_bytes = 1u << 20;  // small, so that communication starts early
  bool overlap = true;  // false: everything after the backward pass, on the calling thread
};

// Elements [begin, end) of the parameter vector: whole layers, at least one.
struct Bucket {
  std::size_t begin = 0, end = 0;
  int last_layer = 0;  // the layer whose gradients complete it
};
std::vector<Bucket> make_buckets(const Net& net, const ReducerOptions& options);

class Reducer {
 public:
  // Collective over comm, which must outlive the reducer, as must device.
  static tr::Result<Reducer> create(tr::Communicator& comm, compute::Device& device, const Net& net,
                                    const ReducerOptions& options);

  // One step: the backward pass writes here, in the device's memory, and calls layer_done() for
  // each layer, last layer first; after finish() the vector holds the sum over ranks.
  std::span<float> gradients() { return gradients_.span(); }
  void layer_done(int layer);
  tr::Status finish();

  // Collective. Seconds that the same all-reduces take with nothing beside them (median of
  // `repeats`): the yardstick for overlap. Call it between steps.
  tr::Result<double> seconds_alone(int repeats);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Since the last reset_counters().
  double exposed_seconds() const { return exposed_seconds_; }  // the caller stood still
  int launched_early() const { return launched_early_; }  // buckets, before the backward pass ended
  void reset_counters() { exposed_seconds_ = 0.0, launched_early_ = 0; }

 private:
  Reducer(tr::Communicator& comm, compute::Device& device, std::vector<Bucket> buckets,
          bool overlap, tr::Stream stream, compute::Array<float> gradients, tr::Window window);
  tr::Status launch(const Bucket& bucket, tr::StreamRef stream);

  tr::Communicator* comm_;
  compute::Device* device_;
  std::vector<Bucket> buckets_;
  bool overlap_;
  compute::Array<float> gradients_;
  tr::Window window_;     // destroyed before gradients_
  tr::Stream stream_;     // destroyed, and so drained, before window_
  std::size_t next_ = 0;  // bucket to launch
  tr::Status launched_;   // the first launch of this step that failed, if one did
  double exposed_seconds_ = 0.0;
  int launched_early_ = 0;
};

}  // namespace train
