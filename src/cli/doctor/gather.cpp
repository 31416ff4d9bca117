// The machine itself: memory, limits, CPUs, clock, devices.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/doctor/facts.hpp"
#include "cli/doctor/network.hpp"
#include "core/config.hpp"
#include "core/unique_fd.hpp"
#include "topo/nvml.hpp"

namespace treering::doctor {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What the library does with memory, once, small.
std::string try_memory_file() {
  constexpr std::size_t kBytes = 1 << 20;
  const UniqueFd fd(::memfd_create("treering-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return std::string("memfd_create: ") + std::strerror(errno);
  if (::ftruncate(fd.get(), kBytes) != 0) return std::string("ftruncate: ") + std::strerror(errno);
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return std::string("mmap: ") + std::strerror(errno);
  // Asks for the pages instead of touching them: too little memory is then an error, not a signal.
  const bool resident = ::madvise(at, kBytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
  const int error = errno;
  ::munmap(at, kBytes);
  return resident ? "" : std::string("madvise: ") + std::strerror(error);
}

bool try_pidfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return fd.valid();
}

Limit limit_of(int resource) {
  rlimit r{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &r) != 0) return {};
  const auto value = [](rlim_t v) {
    return v == RLIM_INFINITY ? kUnlimited : static_cast<std::uint64_t>(v);
  };
  return {value(r.rlim_cur), value(r.rlim_max)};
}

std::uint64_t kib_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value << 10;
  }
  return kUnlimited;
}

// The number in a control file of this process's group (version 2) or of the root of a container.
std::optional<std::string> cgroup_line(const std::string& name) {
  std::string group;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (const std::string& folder : {"/sys/fs/cgroup" + group, std::string("/sys/fs/cgroup")}) {
    std::string line = first_line(folder + "/" + name);
    if (!line.empty()) return line;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const std::optional<std::string>& line) {
  std::uint64_t value = 0;
  if (!line || !(std::istringstream(*line) >> value)) return std::nullopt;  // "max"
  return value;
}

void gather_memory(Facts& f) {
  f.memory_file_error = try_memory_file();
  f.pidfd_works = try_pidfd();
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0)
    f.shm_bytes = static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize;
  f.available_bytes = kib_of("/proc/meminfo", "MemAvailable:");
  const auto most = number_in(cgroup_line("memory.max"));
  const auto used = number_in(cgroup_line("memory.current"));
  if (most && used) f.cgroup_bytes = *most > *used ? *most - *used : 0;
  f.open_files = limit_of(RLIMIT_NOFILE);
  f.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  f.address_bytes = limit_of(RLIMIT_AS);
  f.processes = limit_of(RLIMIT_NPROC);
}

void gather_cpus(Facts& f) {
  f.cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  f.allowed_cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : f.cpus;
  if (const auto line = cgroup_line("cpu.max")) {
    double quota = 0, period = 0;
    std::istringstream words(*line);
    if (words >> quota >> period && period > 0) f.cpu_quota = quota / period;
  }
  // "0.20 0.18 0.12 1/80 11206": threads that run or want to, this one among them.
  std::string load = first_line("/proc/loadavg");
  std::istringstream words(load);
  double ignored = 0;
  int runnable = 0;
  if (words >> ignored >> ignored >> ignored >> runnable) f.runnable = runnable - 1;
}

void gather_clock(Facts& f) {
  f.clock_source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  using Clock = std::chrono::steady_clock;
  constexpr int kReads = 2000;
  const Clock::time_point begin = Clock::now();
  Clock::time_point end = begin;
  for (int i = 0; i < kReads; ++i) end = Clock::now();
  f.clock_ns = std::chrono::duration<double, std::nano>(end - begin).count() / kReads;
  timex t{};
  f.clock_is_synchronized = ::adjtimex(&t) != TIME_ERROR;
}

void gather_devices(Facts& f) {
  std::error_code ignored;
  f.has_nvidia_device = fs::exists("/dev/nvidiactl", ignored);
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", ignored)) {
    const bool is_display = first_line(entry.path() / "class").starts_with("0x03");
    f.has_nvidia_device |= is_display && first_line(entry.path() / "vendor") == "0x10de";
  }
  const Result<std::vector<topo::NvmlGpu>> gpus = topo::query_nvml("libnvidia-ml.so.1");
  if (gpus.ok()) {
    for (const topo::NvmlGpu& gpu : gpus.value())
      f.gpus.push_back({gpu.bus_id, gpu.model, gpu.mig, gpu.reaches});
  } else {
    f.nvml_error = gpus.status().message();
  }
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      f.rdma.push_back({device.path().filename().string() + ":" + port.path().filename().string(),
                        first_line(port.path() / "state")});
    }
  }
}

}  // namespace

Facts gather(int store_port) {
  Facts f;
  utsname name{};
  if (::uname(&name) == 0) {
    f.kernel = name.release;
    f.host_name = name.nodename;
  }
  f.libc = ::gnu_get_libc_version();
  gather_memory(f);
  gather_cpus(f);
  gather_clock(f);
  gather_network(f, store_port);
  gather_devices(f);
  f.unknown_variables = unknown_env_vars();
  if (const auto config = load_config(); !config.ok()) f.bad_setting = config.status().message();
  return f;
}

}  // namespace treering::doctor
