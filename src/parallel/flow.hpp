// On which streams the treering backend puts its operations, and how it waits for them: on the
// host, or on a GPU.
#pragma once

#include <memory>

#include "treering/parallel/comm.hpp"

namespace tr::par {

class Flow {
 public:
  using Mark = Comm::Mark;
  enum class Kind : bool { kCollective, kMessage };

  virtual ~Flow() = default;
  // A stream for one operation, which end() follows once that is enqueued. What was computed before
  // comes before it.
  virtual Result<tr_stream_t> begin(Kind kind) = 0;
  virtual Status end(Mark mark) = 0;
  // As Comm's.
  virtual Status wait(Mark mark) = 0;
  virtual Status wait_all() = 0;
  // What is left of a collective in a group of one.
  virtual Status copy(const View& from, const View& to) = 0;
};

Result<std::unique_ptr<Flow>> make_host_flow();

// Operations on device memory are ordered with this CUDA stream, on which somebody computes, and
// the host waits for none of them. TR_UNSUPPORTED in a build without CUDA.
Result<std::unique_ptr<Flow>> make_cuda_flow(void* compute_stream);
bool is_device_memory(const void* data);

}  // namespace tr::par
