#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "block.hpp"
#include "control.hpp"
#include "lazy.hpp"
#include "report.hpp"

namespace cudasim {

thread_local bool in_host_function = false;
std::atomic<std::uint64_t> launched{0};

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

long number_from(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::strtol(value, nullptr, 10) : otherwise;
}

// "cudaMalloc:3,cudaEventCreate:1:46"
void read_failures(Runtime& rt, const std::string& list) {
  std::stringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    std::stringstream fields(item);
    std::string name, nth = "1", error = "0";
    std::getline(fields, name, ':');
    std::getline(fields, nth, ':');
    std::getline(fields, error, ':');
    auto code = static_cast<cudaError_t>(std::atoi(error.c_str()));
    if (code == cudaSuccess) {
      code = name.find("Alloc") != std::string::npos || name.find("alloc") != std::string::npos
                 ? cudaErrorMemoryAllocation
                 : cudaErrorUnknown;
    }
    rt.failures[name] = {std::atoi(nth.c_str()), code};
  }
}

// "0-1:no-access,2-3:loses"
void read_between(Settings& s, const std::string& list) {
  static const std::map<std::string, Between> words = {{"no-access", Between::kNoAccess},
                                                       {"no-handles", Between::kNoHandles},
                                                       {"loses", Between::kLoses},
                                                       {"hangs", Between::kHangs}};
  std::stringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    int a = -1, b = -1;
    char word[16] = {};
    const int fields = std::sscanf(item.c_str(), "%d-%d:%15s", &a, &b, word);
    const auto found = words.find(word);
    if (fields != 3 || std::min(a, b) < 0 || std::max(a, b) >= kMaxDevices ||
        found == words.end()) {
      std::fprintf(stderr, "cudasim: CUDASIM_BETWEEN has \"%s\"\n", item.c_str());
      std::abort();
    }
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    s.between[i][j] = s.between[j][i] = found->second;
  }
}

std::size_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()); }

}  // namespace

namespace {

Settings* read_settings() {
  auto* s = new Settings;
  s->devices =
      static_cast<int>(std::min<long>(number_from("CUDASIM_DEVICES", s->devices), kMaxDevices));
  s->sms = static_cast<int>(std::max<long>(number_from("CUDASIM_SMS", s->sms), 1));
  s->memory_mib =
      static_cast<std::size_t>(number_from("CUDASIM_MEMORY_MIB", static_cast<long>(s->memory_mib)));
  s->seed = static_cast<std::uint64_t>(number_from("CUDASIM_SEED", 0));
  if (const char* hang = std::getenv("CUDASIM_HANG_S")) s->hang_s = std::atof(hang);
  s->peer = number_from("CUDASIM_PEER", 1) != 0;
  s->nvlink = number_from("CUDASIM_NVLINK", 1) != 0;
  s->vmm = number_from("CUDASIM_VMM", 1) != 0;
  if (const char* between = std::getenv("CUDASIM_BETWEEN")) read_between(*s, between);
  s->mem_ops = number_from("CUDASIM_MEM_OPS", 1) != 0;
  s->strict = number_from("CUDASIM_STRICT", 0) != 0;
  if (const char* fail = std::getenv("CUDASIM_FAIL")) s->fail = fail;
  return s;
}

Runtime* start_runtime() {
  auto* rt = new Runtime;
  rt->process = getpid();
  rt->devices.resize(static_cast<std::size_t>(std::max(settings().devices, 0)));
  read_failures(*rt, settings().fail);
  rlimit files{};  // each allocation is a file
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  return rt;
}

constinit Lazy<Settings> the_settings(read_settings);
constinit Lazy<Runtime> the_runtime(start_runtime);

}  // namespace

Settings& settings() { return the_settings.get(); }
Runtime& runtime() { return the_runtime.get(); }

cudaError_t enter(const char* name) {
  Runtime& rt = runtime();
  if (settings().devices < 0) return cudaErrorInsufficientDriver;
  if (settings().devices == 0) return cudaErrorNoDevice;
  if (rt.process != getpid()) return cudaErrorInitializationError;
  if (in_host_function) return cudaErrorNotPermitted;
  const Lock lock(rt.mutex);
  const auto found = rt.failures.find(name);
  if (found == rt.failures.end() || --found->second.first > 0) return cudaSuccess;
  const cudaError_t error = found->second.second;
  rt.failures.erase(found);
  return error;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void fail_call(const std::string& name, int nth, cudaError_t error) {
  const Lock lock(runtime().mutex);
  if (nth <= 0) {
    runtime().failures.erase(name);
  } else {
    runtime().failures[name] = {nth, error};
  }
}

void set_seed(std::uint64_t seed) { settings().seed = seed; }
void set_nvlink(bool nvlink) { settings().nvlink = nvlink; }
void set_vmm(bool vmm) { settings().vmm = vmm; }

void set_between(int device, int other, Between what) {
  const auto a = static_cast<std::size_t>(device), b = static_cast<std::size_t>(other);
  settings().between[a][b] = settings().between[b][a] = what;
}
std::atomic<Between>& between(int device, int other) {
  return settings().between[static_cast<std::size_t>(device)][static_cast<std::size_t>(other)];
}
bool has_access(int device, int other) {
  return device == other || (settings().peer && between(device, other) != Between::kNoAccess);
}
void set_mem_ops(bool mem_ops) { settings().mem_ops = mem_ops; }

std::uint64_t launches() { return launched.load(std::memory_order_relaxed); }

Live live() {
  Lock lock(runtime().mutex);
  Runtime& rt = runtime();
  Live out;
  out.allocations = live_allocations(lock);
  for (const Stream* stream : rt.streams) out.streams += stream->id != 0 ? 1 : 0;
  out.events = rt.events.size();
  out.graphs = rt.graphs.size() + rt.execs.size();
  return out;
}

int current_device() { return device_of_thread; }

cudaError_t unsafe_call(Lock&) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool is_forbidden = false;
  for (auto& [id, capture] : runtime().captures) {
    const bool mine = capture->thread == this_thread();
    const bool counts = mine ? capture->mode != cudaStreamCaptureModeRelaxed
                             : capture->mode == cudaStreamCaptureModeGlobal &&
                                   thread_mode == cudaStreamCaptureModeGlobal;
    if (!counts) continue;
    capture->broken = true;
    is_forbidden = true;
  }
  return is_forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

std::size_t capture_thread() { return this_thread(); }

}  // namespace cudasim

using namespace cudasim;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", [&] {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [&] {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    device_of_thread = device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", [&] {
    *device = device_of_thread;
    return cudaSuccess;
  });
}

}  // extern "C"
