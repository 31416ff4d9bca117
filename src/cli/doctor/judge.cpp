// What the facts mean, and what to do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/doctor/facts.hpp"

namespace treering::doctor {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kMiB * kKiB;
// Of the default links: what a pair of ranks keeps resident, and what all of a rank's may become.
constexpr std::uint64_t kBytesAPair = 768 * kKiB;
// Descriptors of a rank that are not for a peer: its program's, the store's, memory files.
constexpr std::uint64_t kOtherFiles = 32;

std::string size_text(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  char text[32];
  const double value = static_cast<double>(bytes);
  if (bytes >= kGiB) {
    std::snprintf(text, sizeof text, "%.1f GiB", value / kGiB);
  } else {
    std::snprintf(text, sizeof text, "%.0f KiB", value / kKiB);
  }
  return text;
}

std::string count_text(std::uint64_t count) {
  return count == kUnlimited ? "unlimited" : std::to_string(count);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

class Judge {
 public:
  Judge(const Facts& facts, int ranks) : f_(facts), ranks_(static_cast<std::uint64_t>(ranks)) {}

  std::vector<Finding> run() {
    versions();
    memory();
    limits();
    cpus();
    network();
    clock();
    gpus();
    rdma();
    settings();
    return std::move(findings_);
  }

 private:
  void say(const char* check, Level level, std::string text, std::string advice = {}) {
    findings_.push_back({check, level, std::move(text), std::move(advice)});
  }
  void fine(const char* check, std::string text) { say(check, Level::kFine, std::move(text)); }
  void note(const char* check, std::string text, std::string advice) {
    say(check, Level::kNote, std::move(text), std::move(advice));
  }
  void problem(const char* check, std::string text, std::string advice) {
    say(check, Level::kProblem, std::move(text), std::move(advice));
  }

  void versions() {
    fine("versions", "treering " + f_.treering + ", Linux " + f_.kernel + ", glibc " + f_.libc);
  }

  void memory() {
    if (f_.memory_file_error.empty()) {
      fine("shared memory", "memory files (memfd) can be made, sealed and mapped; /dev/shm (" +
                                size_text(f_.shm_bytes) + ") is not needed");
    } else {
      problem("shared memory", "a memory file cannot be used: " + f_.memory_file_error,
              "ranks of one machine talk through memfds: allow memfd_create in the container's "
              "seccomp profile, and give it memory (docker --memory)");
    }
    if (!f_.pidfd_works) {
      note("processes", "pidfd_open does not work (a kernel before 5.3, or a seccomp profile)",
           "nothing need be done: connections tell of a rank's end instead, one descriptor each");
    }
    const std::uint64_t pairs = ranks_ * (ranks_ - 1) / 2;
    const std::uint64_t need = pairs * kBytesAPair;
    const std::uint64_t have = std::min(f_.available_bytes, f_.cgroup_bytes);
    const bool by_group = f_.cgroup_bytes < f_.available_bytes;
    const std::string text = size_text(have) + " of memory are free" +
                             (by_group ? " in this control group" : "") + "; links of " +
                             std::to_string(ranks_) + " ranks may take " + size_text(need);
    if (have < need) {
      problem("memory", text,
              by_group
                  ? "raise the control group's limit (docker --memory, systemd MemoryMax), or "
                    "set TR_LINK_BYTES=32K and TR_CAST_BYTES=64K on all ranks"
                  : "start fewer ranks here, or set TR_LINK_BYTES=32K and TR_CAST_BYTES=64K on "
                    "all ranks");
    } else {
      fine("memory", text);
    }
  }

  void limits() {
    const std::uint64_t files = kOtherFiles + 2 * ranks_;
    const std::string files_text = "open files: " + count_text(f_.open_files.soft) +
                                   " of at most " + count_text(f_.open_files.hard) + "; " +
                                   std::to_string(ranks_) + " ranks need about " +
                                   std::to_string(files) + " each";
    if (f_.open_files.soft < files) {
      problem("limit of open files", files_text,
              f_.open_files.hard >= files
                  ? "ulimit -n " +
                        std::to_string(std::min<std::uint64_t>(f_.open_files.hard, 65536)) +
                        " before the start"
                  : "raise the hard limit (nofile in /etc/security/limits.conf, docker --ulimit "
                    "nofile=65536), log in anew");
    } else {
      fine("limit of open files", files_text);
    }
    constexpr std::uint64_t kLocked = 64 * kMiB;
    const std::string locked = "locked memory: " + size_text(f_.locked_bytes.soft);
    if (f_.locked_bytes.soft >= kLocked) {
      fine("limit of locked memory", locked);
    } else if (f_.rdma.empty()) {
      fine("limit of locked memory", locked + "; only RDMA would need more");
    } else {
      problem("limit of locked memory",
              locked + ", too little to register memory with RDMA devices",
              "memlock unlimited in /etc/security/limits.conf (docker --ulimit memlock=-1), log in "
              "anew");
    }
    const std::uint64_t addresses = kGiB + ranks_ * ranks_ * kMiB;
    if (f_.address_bytes.soft < addresses) {
      problem("limit of address space",
              "address space: " + size_text(f_.address_bytes.soft) + "; segments of " +
                  std::to_string(ranks_) + " ranks may need " + size_text(addresses),
              "ulimit -v unlimited before the start");
    } else {
      fine("limit of address space", "address space: " + size_text(f_.address_bytes.soft));
    }
    const std::uint64_t threads = 4 * ranks_ + 16;
    if (f_.processes.soft < threads) {
      problem("limit of processes",
              "processes and threads of this user: at most " + count_text(f_.processes.soft),
              "ulimit -u " + std::to_string(threads * 4) + " or more before the start");
    } else {
      fine("limit of processes",
           "processes and threads of this user: " + count_text(f_.processes.soft));
    }
  }

  void cpus() {
    const std::string text =
        std::to_string(f_.allowed_cpus) + " of " + std::to_string(f_.cpus) + " CPUs may be used";
    if (f_.cpu_quota > 0 &&
        f_.cpu_quota < static_cast<double>(std::min<std::uint64_t>(
                           ranks_, static_cast<std::uint64_t>(f_.allowed_cpus)))) {
      char quota[32];
      std::snprintf(quota, sizeof quota, "%.2f", f_.cpu_quota);
      note("CPUs", text + ", but the control group gets the time of " + quota + " only",
           "ranks that have used it up stop for tens of milliseconds: raise the quota (docker "
           "--cpus, CPUQuota)");
    } else {
      fine("CPUs", text);
    }
    if (ranks_ > static_cast<std::uint64_t>(f_.allowed_cpus)) {
      note("ranks and CPUs",
           std::to_string(ranks_) + " ranks share " + std::to_string(f_.allowed_cpus) + " CPUs",
           "it works, at the speed of switches between them; start as many ranks as CPUs, or check "
           "the CPU set (taskset -p, the batch system's binding)");
    }
    const int spare = f_.allowed_cpus - f_.runnable;
    if (f_.runnable > 0 && spare < static_cast<int>(std::min<std::uint64_t>(
                                       ranks_, static_cast<std::uint64_t>(f_.allowed_cpus)))) {
      note("load",
           std::to_string(f_.runnable) + " other threads want to run on " +
               std::to_string(f_.cpus) + " CPUs",
           "small operations wait for whoever has the core: end the others, or keep them off these "
           "CPUs");
    }
  }

  void network() {
    std::vector<std::string> usable, down;
    for (const Interface& i : f_.interfaces) {
      if (i.is_loopback) continue;
      if (!i.is_up) {
        down.push_back(i.name);
      } else if (!i.addresses.empty()) {
        usable.push_back(i.name + (i.is_virtual ? " (virtual)" : "") + " " + joined(i.addresses));
      }
    }
    if (usable.empty()) {
      note("interfaces", "no interface but loopback is up",
           "jobs on this machine alone work; for several hosts bring an interface up");
    } else {
      fine("interfaces", joined(usable) + (down.empty() ? "" : "; down: " + joined(down)));
    }
    const bool all_loopback =
        !f_.name_addresses.empty() &&
        std::all_of(f_.name_addresses.begin(), f_.name_addresses.end(),
                    [](const std::string& a) { return a.starts_with("127.") || a == "::1"; });
    if (!f_.name_error.empty()) {
      note("host name",
           "the host name \"" + f_.host_name + "\" cannot be resolved: " + f_.name_error,
           "Treering does not need it; other programs do: add a line for it to /etc/hosts");
    } else if (all_loopback) {
      note("host name",
           "the host name \"" + f_.host_name + "\" means " + joined(f_.name_addresses) +
               ", which other hosts cannot reach",
           "give other hosts an address of an interface, not this name (Debian writes 127.0.1.1 "
           "into "
           "/etc/hosts)");
    } else {
      fine("host name", "\"" + f_.host_name + "\" is " + joined(f_.name_addresses));
    }
    std::vector<std::string> failed;
    for (const PortTrial& t : f_.trials) {
      if (!t.error.empty())
        failed.push_back(t.address + " port " + std::to_string(t.port) + ": " + t.error);
    }
    if (failed.empty()) {
      fine("ports", std::to_string(f_.trials.size()) +
                        " connections of this machine to itself worked; whether other hosts get "
                        "through, only they can tell");
    } else {
      problem("ports", "TCP connections of this machine to itself failed: " + joined(failed),
              "let TCP pass between the ranks (nft list ruleset, iptables -L -n show the rules); a "
              "port in use is freed by its owner: ss -ltnp");
    }
  }

  void clock() {
    char cost[32];
    std::snprintf(cost, sizeof cost, "%.0f ns", f_.clock_ns);
    const std::string text = "clock source " +
                             (f_.clock_source.empty() ? "unknown" : f_.clock_source) + ", " + cost +
                             " a look";
    constexpr double kSlowNs = 500;
    if (f_.clock_ns > kSlowNs) {
      note("clock", text + ": a look at the clock is a system call here",
           "waits become coarser; where the machine has a stable tsc, boot with clocksource=tsc");
    } else {
      fine("clock", text);
    }
    if (!f_.clock_is_synchronized) {
      note("time", "the clock is not synchronized by NTP",
           "no harm to operations; times in logs of several hosts will not fit together (chrony, "
           "systemd-timesyncd)");
    }
  }

  void gpus() {
    if (f_.gpus.empty() && !f_.has_nvidia_device) {
      fine("GPUs", "none");
      return;
    }
    if (f_.gpus.empty()) {
      problem("GPUs",
              "there is an NVIDIA device, but the driver cannot be asked: " +
                  (f_.nvml_error.empty() ? std::string("it knows no GPU") : f_.nvml_error),
              "install the driver that fits the kernel; in a container: --gpus all and the NVIDIA "
              "container toolkit");
      return;
    }
    std::vector<std::string> names, apart, mig;
    for (std::size_t i = 0; i < f_.gpus.size(); ++i) {
      const Gpu& gpu = f_.gpus[i];
      names.push_back(gpu.model + " " + gpu.bus_id);
      if (gpu.mig) mig.push_back(gpu.bus_id);
      for (std::size_t j = 0; j < gpu.reaches.size() && j < f_.gpus.size(); ++j) {
        if (i != j && !gpu.reaches[j])
          apart.push_back(std::to_string(i) + " -> " + std::to_string(j));
      }
    }
    fine("GPUs", joined(names));
    if (!mig.empty()) {
      note("GPU instances", "cut into instances (MIG): " + joined(mig),
           "instances do not reach each other's memory; ranks on them talk through the host");
    }
    if (!apart.empty()) {
      problem("GPU peer access", "GPUs that do not reach each other's memory: " + joined(apart),
              "ranks on them talk through pinned host memory, slower; switch off ACS and IOMMU "
              "translation for them in the BIOS, or put them below one PCIe root");
    }
  }

  void rdma() {
    std::vector<std::string> up, down;
    for (const RdmaPort& port : f_.rdma)
      (port.state.find("ACTIVE") != std::string::npos ? up : down)
          .push_back(port.device + (port.state.empty() ? "" : " (" + port.state + ")"));
    if (f_.rdma.empty()) fine("RDMA", "no devices");
    if (!up.empty()) fine("RDMA", joined(up));
    if (!down.empty()) {
      note("RDMA ports", "not active: " + joined(down),
           "check the cable, and the subnet manager of InfiniBand (ibstat)");
    }
  }

  void settings() {
    if (!f_.bad_setting.empty()) {
      problem("settings", f_.bad_setting, "correct or unset it; treering env lists all");
    }
    if (!f_.unknown_variables.empty()) {
      problem("settings", "no such setting: " + joined(f_.unknown_variables),
              "correct the name or unset it; treering env lists all");
    }
  }

  const Facts& f_;
  const std::uint64_t ranks_;
  std::vector<Finding> findings_;
};

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::kFine:
      return "fine";
    case Level::kNote:
      return "note";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

std::vector<Finding> judge(const Facts& facts, int ranks) { return Judge(facts, ranks).run(); }

}  // namespace treering::doctor
