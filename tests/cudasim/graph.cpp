// Stream capture and graphs.
#include <algorithm>

#include "runtime.hpp"

namespace cudasim {

cudaError_t submit(Lock& lock, Stream& stream, cudaGraphNodeType type, std::function<void()> run,
                   OpRef* op) {
  if (stream.capture != nullptr) {
    if (stream.capture->broken) return cudaErrorStreamCaptureInvalidated;
    std::vector<Node>& nodes = stream.capture->graph->nodes;
    std::sort(stream.frontier.begin(), stream.frontier.end());
    stream.frontier.erase(std::unique(stream.frontier.begin(), stream.frontier.end()),
                          stream.frontier.end());
    nodes.push_back({type, std::move(run), stream.frontier});
    stream.frontier = {nodes.size() - 1};
    return cudaSuccess;
  }
  if (stream.is_legacy) {  // it would have to wait for streams that only capture
    for (const Stream* other : runtime().devices[static_cast<std::size_t>(stream.device)].streams) {
      if (other->capture != nullptr && (other->flags & cudaStreamNonBlocking) == 0) {
        other->capture->broken = true;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  OpRef issued = issue(lock, stream, std::move(run));
  if (op != nullptr) *op = std::move(issued);
  return cudaSuccess;
}

namespace {

// Nodes to streams: each goes on where one that it comes after ended, or opens a stream.
void assign_lanes(Lock& lock, GraphExec& exec, int device) {
  std::vector<std::size_t> lane_end;  // the last node of each lane
  for (std::size_t i = 0; i < exec.graph.nodes.size(); ++i) {
    std::size_t lane = lane_end.size();
    for (const std::size_t before : exec.graph.nodes[i].after) {
      if (lane_end[exec.lane_of[before]] == before) lane = exec.lane_of[before];
    }
    if (lane == lane_end.size()) {
      lane_end.push_back(i);
      Stream* stream = make_stream(lock, device, cudaStreamNonBlocking, 0);
      stream->id = 0;
      runtime().streams.erase(stream);  // not the user's
      exec.lanes.push_back(stream);
    }
    lane_end[lane] = i;
    exec.lane_of.push_back(lane);
  }
}

void launch_graph(Lock& lock, GraphExec& exec, Stream& stream) {
  const OpRef begin = issue(lock, stream, nullptr, {exec.last});  // no two launches side by side
  std::vector<OpRef> ops;
  std::vector<OpRef> ends;
  for (std::size_t i = 0; i < exec.graph.nodes.size(); ++i) {
    const Node& node = exec.graph.nodes[i];
    std::vector<OpRef> after = {begin};
    for (const std::size_t before : node.after) after.push_back(ops[before]);
    ops.push_back(issue(lock, *exec.lanes[exec.lane_of[i]], node.run, std::move(after)));
  }
  for (const Stream* lane : exec.lanes) ends.push_back(lane->last);
  exec.last = issue(lock, stream, nullptr, std::move(ends));
}

void end_capture(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  runtime().captures.erase(capture.id);
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return with_stream("cudaStreamBeginCapture", handle, [&](Lock&, Stream& stream) {
    if (stream.is_legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream.capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_unique<Capture>();
    capture->id = runtime().next_id++;
    capture->origin = &stream;
    capture->mode = mode;
    capture->thread = capture_thread();
    capture->graph = std::make_unique<Graph>();
    capture->streams = {&stream};
    stream.capture = capture.get();
    stream.frontier.clear();
    runtime().captures[capture->id] = std::move(capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  return with_stream("cudaStreamEndCapture", handle, [&](Lock&, Stream& stream) {
    *out = nullptr;
    if (stream.capture == nullptr) return cudaErrorIllegalState;
    Capture& capture = *stream.capture;
    if (capture.origin != &stream) return cudaErrorStreamCaptureUnmatched;
    if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != capture_thread()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    cudaError_t error = capture.broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    // Every branch must have come back: its last node is one that the origin's end comes after.
    std::vector<bool> joined(capture.graph->nodes.size());
    for (const std::size_t node : stream.frontier) joined[node] = true;
    for (std::size_t i = joined.size(); i-- > 0;) {
      if (!joined[i]) continue;
      for (const std::size_t before : capture.graph->nodes[i].after) joined[before] = true;
    }
    for (const Stream* branch : capture.streams) {
      for (const std::size_t node : branch->frontier) {
        if (!joined[node] && error == cudaSuccess) error = cudaErrorStreamCaptureUnjoined;
      }
    }
    if (error == cudaSuccess) {
      Graph* graph = capture.graph.release();
      runtime().graphs.insert(graph);
      *out = reinterpret_cast<cudaGraph_t>(graph);
    }
    end_capture(capture);
    return error;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return with_stream("cudaStreamIsCapturing", handle, [&](Lock&, Stream& stream) {
    *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone
              : stream.capture->broken  ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

// The id only; the graph under construction cannot be reached from outside.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  if (graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr) {
    return remember(cudaErrorNotSupported);
  }
  const cudaError_t error = cudaStreamIsCapturing(handle, status);
  if (error != cudaSuccess || id == nullptr || *status == cudaStreamCaptureStatusNone) return error;
  return with_stream("cudaStreamGetCaptureInfo", handle, [&](Lock&, Stream& stream) {
    *id = stream.capture != nullptr ? stream.capture->id : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return locked_api("cudaGraphGetNodes", [&](Lock&) {
    auto* graph = reinterpret_cast<Graph*>(handle);
    if (runtime().graphs.count(graph) == 0) return cudaErrorInvalidValue;
    if (nodes != nullptr) return cudaErrorNotSupported;
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t handle, unsigned long long) {
  return locked_api("cudaGraphInstantiate", [&](Lock& lock) {
    auto* graph = reinterpret_cast<Graph*>(handle);
    if (runtime().graphs.count(graph) == 0) return cudaErrorInvalidValue;
    auto* exec = new GraphExec;
    exec->graph = *graph;
    assign_lanes(lock, *exec, current_device());
    runtime().execs.insert(exec);
    *out = reinterpret_cast<cudaGraphExec_t>(exec);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return remember(cudaSuccess); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return with_stream("cudaGraphLaunch", stream_handle, [&](Lock& lock, Stream& stream) {
    auto* exec = reinterpret_cast<GraphExec*>(handle);
    if (runtime().execs.count(exec) == 0) return cudaErrorInvalidValue;
    if (stream.capture != nullptr) {
      stream.capture->broken = true;  // a graph inside a graph: not emulated
      return cudaErrorNotSupported;
    }
    launch_graph(lock, *exec, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return locked_api("cudaGraphDestroy", [&](Lock&) {
    auto* graph = reinterpret_cast<Graph*>(handle);
    if (runtime().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

// Launches that were issued go on to their end.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return locked_api("cudaGraphExecDestroy", [&](Lock&) {
    auto* exec = reinterpret_cast<GraphExec*>(handle);
    if (runtime().execs.erase(exec) == 0) return cudaErrorInvalidValue;
    for (Stream* lane : exec->lanes) {
      runtime().devices[static_cast<std::size_t>(lane->device)].streams.erase(lane);
      lane->closing = true;
      if (lane->has_thread) {
        lane->wake.notify_one();
      } else {
        delete lane;
      }
    }
    delete exec;
    return cudaSuccess;
  });
}

}  // extern "C"
