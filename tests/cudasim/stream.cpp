// Streams: a thread and a queue each.
#include <pthread.h>
#include <thread>

#include "block.hpp"
#include "grid.hpp"
#include "report.hpp"
#include "runtime.hpp"

namespace cudasim {
namespace {

// Runs the operations of one stream, in order, each after those that it names.
void run_stream(Stream* stream) {
  pthread_setname_np(pthread_self(), "sim-stream");
  Lock lock(runtime().mutex);
  for (;;) {
    stream->wake.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    const OpRef op = stream->queue.front();
    for (const OpRef& earlier : op->after)
      earlier->changed.wait(lock, [&] { return earlier->done; });
    lock.unlock();
    if (op->run) op->run();
    op->run = nullptr;  // what it holds may be large; it ends here, not with the last event
    lock.lock();
    op->after.clear();
    op->done = true;
    op->ended_s = now_s();
    stream->queue.pop_front();
    op->changed.notify_all();
  }
  delete stream;
}

// Handles of default streams are made at their first use.
Stream* legacy_stream(Lock& lock, int device) {
  Device& d = runtime().devices[static_cast<std::size_t>(device)];
  if (d.legacy == nullptr) {
    d.legacy = make_stream(lock, device, cudaStreamDefault, 0);
    d.legacy->is_legacy = true;
    d.legacy->id = 0;  // nobody made it, nobody destroys it
  }
  return d.legacy;
}

Stream* thread_stream(Lock& lock, int device) {
  thread_local std::map<int, Stream*> streams;
  Stream*& stream = streams[device];
  if (stream == nullptr) {
    stream = make_stream(lock, device, cudaStreamDefault, 0);
    stream->id = 0;
  }
  return stream;
}

}  // namespace

Stream* make_stream(Lock&, int device, unsigned flags, int priority) {
  auto* stream = new Stream;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = runtime().next_id++;
  runtime().streams.insert(stream);
  runtime().devices[static_cast<std::size_t>(device)].streams.insert(stream);
  return stream;
}

Stream* find_stream(Lock& lock, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy_stream(lock, current_device());
  if (handle == cudaStreamPerThread) return thread_stream(lock, current_device());
  auto* stream = reinterpret_cast<Stream*>(handle);
  return runtime().streams.count(stream) != 0 ? stream : nullptr;
}

bool is_done(const OpRef& op) { return op == nullptr || op->done; }

// The rules of the legacy default stream: its work waits for all earlier work of the device's
// streams, and theirs for it; not so for non-blocking streams.
OpRef issue(Lock&, Stream& stream, std::function<void()> run, std::vector<OpRef> after) {
  Device& device = runtime().devices[static_cast<std::size_t>(stream.device)];
  if (stream.is_legacy) {
    for (const Stream* other : device.streams) {
      if (other != &stream && (other->flags & cudaStreamNonBlocking) == 0)
        after.push_back(other->last);
    }
  } else if ((stream.flags & cudaStreamNonBlocking) == 0 && device.legacy != nullptr) {
    after.push_back(device.legacy->last);
  }
  std::erase_if(after, [](const OpRef& op) { return is_done(op); });
  auto op = std::make_shared<Op>();
  op->run = std::move(run);
  op->after = std::move(after);
  stream.queue.push_back(op);
  stream.last = op;
  if (!stream.has_thread) {
    stream.has_thread = true;
    std::thread(run_stream, &stream).detach();
  }
  stream.wake.notify_one();
  return op;
}

void wait_for(Lock& lock, const OpRef& op, const char* who) {
  if (is_done(op)) return;
  const Note note(std::string("a host thread waits in ") + who);
  op->changed.wait(lock, [&] { return op->done; });
}

void wait_for_device(Lock& lock, int device, const char* who) {
  std::vector<OpRef> ops;
  for (const Stream* stream : runtime().devices[static_cast<std::size_t>(device)].streams) {
    ops.push_back(stream->last);
  }
  for (const OpRef& op : ops) wait_for(lock, op, who);
}

void load_kernel(Lock& lock, int device, const void* kernel) {
  std::set<const void*>& loaded = runtime().devices[static_cast<std::size_t>(device)].loaded;
  if (!settings().strict || loaded.count(kernel) != 0) return;
  wait_for_device(lock, device, "the first use of a kernel");
  loaded.insert(kernel);
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t handle, std::function<void()> body) {
  return locked_api("cudaLaunchKernel", [&](Lock& lock) {
    Stream* stream = find_stream(lock, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    Runtime& rt = runtime();
    auto work = std::make_shared<Launch>();
    work->number = rt.next_id++;
    work->device = stream->device;
    work->kernel = kernel;
    work->grid = grid;
    work->block = block;
    work->shared_bytes = shared_bytes;
    work->reachable =
        1u << stream->device | rt.devices[static_cast<std::size_t>(stream->device)].peers;
    work->body = std::move(body);
    const auto found = rt.max_shared.find(kernel);
    const std::size_t limit = found != rt.max_shared.end() ? found->second : kSharedPerBlock;
    if (work->blocks() == 0 || work->threads() == 0 || work->threads() > 1024 || block.z > 64 ||
        grid.y > 65535 || grid.z > 65535) {
      return cudaErrorInvalidConfiguration;
    }
    if (shared_bytes > limit) return cudaErrorInvalidValue;
    load_kernel(lock, stream->device, kernel);
    launched.fetch_add(1, std::memory_order_relaxed);
    return submit(lock, *stream, cudaGraphNodeTypeKernel, [work] { run_grid(*work); });
  });
}

}  // namespace cudasim

using namespace cudasim;

namespace {

cudaError_t create_stream(const char* name, cudaStream_t* out, unsigned flags, int priority) {
  return locked_api(name, [&](Lock& lock) {
    if (out == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) {
      return cudaErrorInvalidValue;
    }
    *out = reinterpret_cast<cudaStream_t>(make_stream(lock, current_device(), flags, priority));
    return cudaSuccess;
  });
}

// A stream that captures cannot be waited for; asking breaks the capture.
bool breaks_capture(Stream& stream) {
  if (stream.capture != nullptr) stream.capture->broken = true;
  return stream.capture != nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return create_stream("cudaStreamCreate", out, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return create_stream("cudaStreamCreateWithFlags", out, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return create_stream("cudaStreamCreateWithPriority", out, flags, priority);
}

// Its work goes on to the end.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return with_stream("cudaStreamDestroy", handle, [](Lock&, Stream& stream) {
    if (stream.id == 0) return cudaErrorInvalidResourceHandle;
    if (breaks_capture(stream)) stream.capture->streams.erase(&stream);
    runtime().streams.erase(&stream);
    runtime().devices[static_cast<std::size_t>(stream.device)].streams.erase(&stream);
    stream.closing = true;
    if (stream.has_thread) {
      stream.wake.notify_one();
    } else {
      delete &stream;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_stream("cudaStreamSynchronize", handle, [](Lock& lock, Stream& stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    // For the legacy stream that is also the earlier work of the streams that it waits for.
    const OpRef last = stream.is_legacy ? issue(lock, stream, nullptr) : stream.last;
    wait_for(lock, last, "cudaStreamSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream("cudaStreamQuery", handle, [](Lock&, Stream& stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    return is_done(stream.last) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return with_stream("cudaStreamGetDevice", handle, [&](Lock&, Stream& stream) {
    *device = stream.device;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return with_stream("cudaStreamGetFlags", handle, [&](Lock&, Stream& stream) {
    *flags = stream.flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return with_stream("cudaStreamGetPriority", handle, [&](Lock&, Stream& stream) {
    *priority = stream.priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return with_stream("cudaStreamGetId", handle, [&](Lock&, Stream& stream) {
    *id = stream.id;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream("cudaLaunchHostFunc", handle, [&](Lock& lock, Stream& stream) {
    return submit(lock, stream, cudaGraphNodeTypeHost, [function, data] {
      in_host_function = true;  // it must not call CUDA
      function(data);
      in_host_function = false;
    });
  });
}

cudaError_t cudaDeviceSynchronize() {
  return locked_api("cudaDeviceSynchronize", [](Lock& lock) {
    if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    wait_for_device(lock, current_device(), "cudaDeviceSynchronize");
    return cudaSuccess;
  });
}

}  // extern "C"
