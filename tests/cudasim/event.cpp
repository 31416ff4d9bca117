// Events: the operation that they were recorded with.
#include "block.hpp"
#include "runtime.hpp"

using namespace cudasim;

namespace {

Event* find_event(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return runtime().events.count(event) != 0 ? event : nullptr;
}

template <class F>
cudaError_t with_event(const char* name, cudaEvent_t handle, F f) {
  return locked_api(name, [&](Lock& lock) {
    Event* event = find_event(handle);
    return event != nullptr ? f(lock, *event) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t create_event(const char* name, cudaEvent_t* out, unsigned flags) {
  return locked_api(name, [&](Lock&) {
    if ((flags & cudaEventInterprocess) != 0) return cudaErrorNotSupported;
    auto* event = new Event;
    event->device = current_device();
    event->flags = flags;
    runtime().events.insert(event);
    *out = reinterpret_cast<cudaEvent_t>(event);
    return cudaSuccess;
  });
}

cudaError_t record(const char* name, cudaEvent_t handle, cudaStream_t stream_handle) {
  return with_event(name, handle, [&](Lock& lock, Event& event) {
    Stream* stream = find_stream(lock, stream_handle);
    if (stream == nullptr || stream->device != event.device) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
      event.capture_id = stream->capture->id;
      event.nodes = stream->frontier;
      return cudaSuccess;
    }
    event.capture_id = 0;
    event.op = issue(lock, *stream, nullptr);
    return cudaSuccess;
  });
}

// Joins the capture that the event was recorded in.
cudaError_t wait_captured(Stream& stream, const Event& event) {
  const auto found = runtime().captures.find(event.capture_id);
  if (found == runtime().captures.end()) return cudaErrorStreamCaptureIsolation;
  Capture& capture = *found->second;
  if (stream.capture != nullptr && stream.capture != &capture) return cudaErrorStreamCaptureMerge;
  if (stream.is_legacy) return cudaErrorStreamCaptureImplicit;
  if (stream.capture == nullptr) {
    stream.capture = &capture;
    stream.frontier.clear();
    capture.streams.insert(&stream);
  }
  stream.frontier.insert(stream.frontier.end(), event.nodes.begin(), event.nodes.end());
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return create_event("cudaEventCreate", out, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return create_event("cudaEventCreateWithFlags", out, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return with_event("cudaEventDestroy", handle, [](Lock&, Event& event) {
    runtime().events.erase(&event);
    delete &event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return record("cudaEventRecord", handle, stream);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordDefault) return remember(cudaErrorNotSupported);
  return record("cudaEventRecordWithFlags", handle, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  return with_event("cudaStreamWaitEvent", event_handle, [&](Lock& lock, Event& event) {
    Stream* stream = find_stream(lock, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorNotSupported;
    if (event.capture_id != 0) return wait_captured(*stream, event);
    if (stream->capture != nullptr) {
      stream->capture->broken = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (!is_done(event.op)) issue(lock, *stream, nullptr, {event.op});
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return with_event("cudaEventSynchronize", handle, [](Lock& lock, Event& event) {
    if (event.capture_id != 0) return cudaErrorCapturedEvent;
    const OpRef op = event.op;  // it may be recorded again meanwhile
    wait_for(lock, op, "cudaEventSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return with_event("cudaEventQuery", handle, [](Lock&, Event& event) {
    if (event.capture_id != 0) return cudaErrorCapturedEvent;
    return is_done(event.op) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return locked_api("cudaEventElapsedTime", [&](Lock&) {
    const Event* start = find_event(start_handle);
    const Event* end = find_event(end_handle);
    if (start == nullptr || end == nullptr || start->op == nullptr || end->op == nullptr ||
        ((start->flags | end->flags) & cudaEventDisableTiming) != 0) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start->op->done || !end->op->done) return cudaErrorNotReady;
    *ms = static_cast<float>((end->op->ended_s - start->op->ended_s) * 1e3);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return remember(cudaErrorNotSupported);
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return remember(cudaErrorNotSupported);
}

}  // extern "C"
