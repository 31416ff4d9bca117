#include "train_mlp/reducer.hpp"

#include <algorithm>
#include <utility>

#include "train_mlp/clock.hpp"

namespace train {

std::vector<Bucket> make_buckets(const Net& net, const ReducerOptions& options) {
  std::vector<Bucket> buckets;
  for (int l = static_cast<int>(net.layers.size()) - 1; l >= 0; --l) {
    const std::size_t begin = net.layers[l].weight_at;
    const std::size_t end = begin + net.layers[l].parameters();
    const std::size_t cap = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    const bool fits = !buckets.empty() && (end - buckets.back().begin) * sizeof(float) <= cap;
    if (fits) {
      buckets.back().end = end;
      buckets.back().last_layer = l;
    } else {
      buckets.push_back({begin, end, l});
    }
  }
  return buckets;
}

Reducer::Reducer(tr::Communicator& comm, compute::Device& device, std::vector<Bucket> buckets,
                 bool overlap, tr::Stream stream, compute::Array<float> gradients,
                 tr::Window window)
    : comm_(&comm),
      device_(&device),
      buckets_(std::move(buckets)),
      overlap_(overlap),
      gradients_(std::move(gradients)),
      window_(std::move(window)),
      stream_(std::move(stream)) {}

tr::Result<Reducer> Reducer::create(tr::Communicator& comm, compute::Device& device, const Net& net,
                                    const ReducerOptions& options) {
  auto stream =
      device.is_host() ? tr::Stream::create() : tr::Stream::from_cuda(device.side_stream());
  if (!stream) return stream.error();
  auto gradients = compute::Array<float>::make(device, net.parameters());
  if (!gradients) return gradients.error();
  gradients.value().clear();
  tr::Window window;
  if (device.is_host()) {
    // Registered, the vector is reduced where it lies, without copies through slots.
    auto registered = comm.register_buffer(gradients.value());
    if (!registered) return registered.error();
    window = std::move(registered).value();
  }
  return Reducer(comm, device, make_buckets(net, options), options.overlap,
                 std::move(stream).value(), std::move(gradients).value(), std::move(window));
}

tr::Status Reducer::launch(const Bucket& bucket, tr::StreamRef stream) {
  const auto slice = gradients_.span().subspan(bucket.begin, bucket.end - bucket.begin);
  return comm_->all_reduce(slice, tr::kSum, stream);
}

void Reducer::layer_done(int layer) {
  if (!overlap_) return;
  while (launched_.ok() && next_ < buckets_.size() && buckets_[next_].last_layer >= layer) {
    device_->fork();  // after the kernels that compute these gradients
    launched_ = launch(buckets_[next_++], stream_);
    if (layer > 0) ++launched_early_;
  }
}

tr::Status Reducer::finish() {
  if (auto s = device_->synchronize(); !s) return s;
  Stopwatch watch;
  for (; launched_.ok() && next_ < buckets_.size(); ++next_) {
    launched_ = launch(buckets_[next_], overlap_ ? tr::StreamRef(stream_) : tr::StreamRef());
  }
  tr::Status done = stream_.synchronize();
  exposed_seconds_ += watch.lap();
  next_ = 0;
  tr::Status launched = std::exchange(launched_, {});
  return launched.ok() ? done : launched;
}

tr::Result<double> Reducer::seconds_alone(int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    if (auto s = comm_->barrier(); !s) return s.error();
    Stopwatch watch;
    if (auto s = finish(); !s) return s.error();
    times.push_back(watch.lap());
  }
  reset_counters();
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[repeats / 2];
}

}  // namespace train
