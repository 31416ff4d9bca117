// Whose environment is this? One row per launcher, in order of precedence: a launcher that was
// itself started by another one (treering run under srun, torchrun under mpirun) comes first.
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/host_list.hpp"

namespace treering {
namespace {

struct Launcher {
  const char* name;
  const char* rank;  // required, and the trace of the launcher together with `size`
  const char* size;
  const char* local_rank;                  // optional
  const char* local_size;                  // optional; smaller than the size: several hosts
  const char* hosts;                       // optional; more than one: several hosts
  const char* first_host;                  // optional: where rank 0 is; a list of Slurm's kind
  std::initializer_list<const char*> job;  // what tells jobs apart, as far as set
};

const Launcher kLaunchers[] = {
    {"treering run",
     "TR_RANK",
     "TR_SIZE",
     "TR_LOCAL_RANK",
     "TR_LOCAL_SIZE",
     nullptr,
     "MASTER_ADDR",
     {}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     nullptr,
     "MASTER_ADDR",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     "MASTER_ADDR",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     nullptr,
     "MASTER_ADDR",
     {"PMI_JOBID"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_STEP_NUM_NODES",
     "SLURM_STEP_NODELIST",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

// -1: not set.
struct Numbers {
  int rank = -1;
  int size = -1;
  int local_rank = -1;
  int local_size = -1;
  int hosts = -1;
};

std::string setting(const char* name, int value) {
  return std::string(name) + "=" + std::to_string(value);
}

std::string_view value_of(const char* name) {
  const char* text = name != nullptr ? std::getenv(name) : nullptr;
  return text != nullptr ? text : "";
}

Status read_number(const char* name, int& value, int min, int max) {
  const std::string_view text = value_of(name);
  if (text.empty()) return {};
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > max) {
    return invalid_argument("environment variable " + std::string(name) + " is \"" +
                            std::string(text) + "\", but must be a number from " +
                            std::to_string(min) + " to " + std::to_string(max));
  }
  value = number;
  return {};
}

Result<Numbers> read_numbers(const Launcher& launcher, const Config& config) {
  Numbers numbers;
  if (&launcher == &kLaunchers[0]) {  // our own variables: load_config has read them
    numbers.rank = static_cast<int>(config.rank);
    numbers.size = static_cast<int>(config.size);
    numbers.local_rank = static_cast<int>(config.local_rank);
    numbers.local_size = static_cast<int>(config.local_size);
    return numbers;
  }
  TR_RETURN_IF_ERROR(read_number(launcher.rank, numbers.rank, 0, kMaxRanks - 1));
  TR_RETURN_IF_ERROR(read_number(launcher.size, numbers.size, 1, kMaxRanks));
  TR_RETURN_IF_ERROR(read_number(launcher.local_rank, numbers.local_rank, 0, kMaxRanks - 1));
  TR_RETURN_IF_ERROR(read_number(launcher.local_size, numbers.local_size, 1, kMaxRanks));
  TR_RETURN_IF_ERROR(read_number(launcher.hosts, numbers.hosts, 1, kMaxRanks));
  return numbers;
}

bool was_started_with(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return text.starts_with(name + "=") || text.find('\0' + name + "=") != std::string::npos;
}

pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  text.erase(0, text.rfind(')') + 1);  // the name in front may hold anything; then " S 123 ..."
  pid_t parent = 0;
  if (text.size() > 3) std::from_chars(text.data() + 3, text.data() + text.size(), parent);
  return parent;
}

// The nearest ancestor that was not given a rank itself: what started the ranks. For launchers that
// give their jobs no name (MPICH's hydra); shells between it and the rank do not matter.
std::string launching_process(const char* rank_variable) {
  pid_t pid = ::getppid();
  while (pid > 1 && was_started_with(pid, rank_variable)) pid = parent_of(pid);
  return "process " + std::to_string(pid);
}

// MASTER_ADDR, which a user may set under any launcher, goes before what the launcher says.
std::string host_of_rank_0(const Launcher& launcher) {
  if (const std::string_view master = value_of("MASTER_ADDR"); !master.empty()) {
    return std::string(master);
  }
  return first_of_host_list(value_of(launcher.first_host));
}

Status check_numbers(const Launcher& launcher, const Numbers& n) {
  if (n.rank < 0 || n.size < 0) {
    const std::string set =
        n.rank >= 0 ? setting(launcher.rank, n.rank) : setting(launcher.size, n.size);
    return invalid_argument(set + " is set but " + (n.rank >= 0 ? launcher.size : launcher.rank) +
                            " is not: " + launcher.name +
                            " sets both; set the other one or unset this one");
  }
  const auto contradiction = [](const std::string& a, const std::string& b) {
    return invalid_argument(a + " and " + b + " contradict each other");
  };
  const std::string size = setting(launcher.size, n.size);
  if (n.rank >= n.size) return contradiction(setting(launcher.rank, n.rank), size);
  if (n.local_size > n.size) return contradiction(setting(launcher.local_size, n.local_size), size);
  if (n.local_rank >= n.size)
    return contradiction(setting(launcher.local_rank, n.local_rank), size);
  return {};
}

}  // namespace

Result<LaunchEnv> launch_env(const Config& config) {
  LaunchEnv env;
  env.source = "none";
  for (const Launcher& launcher : kLaunchers) {
    TR_ASSIGN_OR_RETURN(const Numbers numbers, read_numbers(launcher, config));
    // SLURM_NTASKS alone is no trace: an allocation has it before any srun.
    const bool is_trace = numbers.size >= 0 && std::string_view(launcher.size) != "SLURM_NTASKS";
    if (numbers.rank < 0 && !is_trace) continue;
    TR_RETURN_IF_ERROR(check_numbers(launcher, numbers));
    env.source = launcher.name;
    env.rank = numbers.rank;
    env.size = numbers.size;
    env.local_rank = numbers.local_rank >= 0 ? numbers.local_rank : numbers.rank;
    env.several_hosts =
        numbers.hosts > 1 || (numbers.local_size >= 0 && numbers.local_size < numbers.size);
    env.local_size = numbers.local_size >= 0 ? numbers.local_size
                     : env.several_hosts     ? 0
                                             : numbers.size;
    env.host_of_rank_0 = host_of_rank_0(launcher);
    for (const char* name : launcher.job) {
      const std::string_view value = value_of(name);
      if (value.empty()) continue;
      env.job += (env.job.empty() ? "" : " ") + std::string(name) + "=" + std::string(value);
    }
    // On several hosts no process started them all: TR_SECRET or TR_STORE_PORT tells jobs apart.
    if (env.job.empty() && !env.several_hosts) env.job = launching_process(launcher.rank);
    break;
  }
  return env;
}

}  // namespace treering
