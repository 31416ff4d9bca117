// What `treering doctor` finds on this machine, before anybody says what it means. Plain data:
// tests judge machines that nobody has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace treering::doctor {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct Limit {
  std::uint64_t soft = kUnlimited;
  std::uint64_t hard = kUnlimited;
};

struct Interface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  bool is_virtual = false;             // a bridge, veth, tun or docker interface
  std::vector<std::string> addresses;  // as numbers; IPv6 link-local ones with %scope
};

// A TCP connection of this machine to itself by one of its addresses.
struct PortTrial {
  std::string address;
  int port = 0;
  std::string error;  // empty: a byte went there and back
};

struct Gpu {
  std::string bus_id;
  std::string model;
  bool mig = false;
  std::vector<bool> reaches;  // by GPU
};

struct RdmaPort {
  std::string device;
  std::string state;  // "4: ACTIVE"
};

struct Facts {
  std::string treering, kernel, libc, host_name;

  std::string memory_file_error;  // empty: a memfd can be made, sealed and mapped
  bool pidfd_works = true;
  std::uint64_t shm_bytes = 0;                 // of /dev/shm; 0: there is none
  std::uint64_t available_bytes = kUnlimited;  // MemAvailable
  std::uint64_t cgroup_bytes = kUnlimited;     // left of the control group's limit

  Limit open_files, locked_bytes, address_bytes, processes;

  int cpus = 1;          // online
  int allowed_cpus = 1;  // of this process
  double cpu_quota = 0;  // of the control group, in CPUs; 0: none
  int runnable = 0;      // threads that want a CPU now

  std::vector<Interface> interfaces;
  std::string name_error;                   // why the host name cannot be resolved; empty: it can
  std::vector<std::string> name_addresses;  // what it resolves to
  std::vector<PortTrial> trials;

  std::string clock_source;  // empty: unknown
  double clock_ns = 0;       // what reading the clock costs
  bool clock_is_synchronized = true;

  bool has_nvidia_device = false;  // a GPU's device file or PCI function
  std::string nvml_error;          // why the driver cannot be asked
  std::vector<Gpu> gpus;
  std::vector<RdmaPort> rdma;

  std::vector<std::string> unknown_variables;  // TR_... that mean nothing
  std::string bad_setting;                     // what load_config says; empty: fine
};

// Takes about a second at most. store_port: also tried; 0: none.
Facts gather(int store_port);

enum class Level { kFine, kNote, kProblem };
const char* level_name(Level level);

struct Finding {
  std::string check;  // "shared memory"
  Level level = Level::kFine;
  std::string text;    // one sentence: what is
  std::string advice;  // what to do; empty if nothing
};

// ranks: that are to run on this machine.
std::vector<Finding> judge(const Facts& facts, int ranks);

std::string to_text(const std::vector<Finding>& findings);
std::string to_json(const Facts& facts, const std::vector<Finding>& findings);

}  // namespace treering::doctor
