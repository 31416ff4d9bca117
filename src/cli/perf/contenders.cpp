#include "cli/perf/contenders.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/memory.hpp"

namespace treering::perf {
namespace {

namespace fs = std::filesystem;

std::string self_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "/proc/self/exe" : path.string();
}

bool is_executable(const fs::path& path) {
  return !fs::is_directory(path) && ::access(path.c_str(), X_OK) == 0;
}

bool is_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream dirs(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string dir; std::getline(dirs, dir, ':');) {
    if (is_executable(fs::path(dir) / name)) return true;
  }
  return false;
}

std::optional<std::string> find_worker(const std::string& name, std::string* looked_in) {
  const fs::path here = fs::path(self_path()).parent_path();
  std::vector<fs::path> dirs = {here, here / "../../peers", here / "../libexec/treering"};
  if (const char* dir = std::getenv("TREERING_PEER_DIR")) dirs.insert(dirs.begin(), dir);
  for (const fs::path& dir : dirs) {
    const fs::path normal = dir.lexically_normal();
    if (is_executable(normal / name)) return (normal / name).string();
    *looked_in += (looked_in->empty() ? "" : ", ") + normal.string();
  }
  return std::nullopt;
}

// Our launcher in front of a program.
std::vector<std::string> with_our_launcher(int ranks, std::vector<std::string> program) {
  std::vector<std::string> argv = {self_path(), "run", "-n", std::to_string(ranks), "--"};
  argv.insert(argv.end(), program.begin(), program.end());
  return argv;
}

// On GPUs all ranks are threads of one process, so that those that share one run side by side.
std::vector<std::string> launched(const Job& job, std::vector<std::string> program) {
  if (!job.on_gpu || job.options.processes) {
    return with_our_launcher(job.options.ranks, std::move(program));
  }
  program.insert(program.end(), {"--threads", std::to_string(job.options.ranks)});
  return program;
}

// Kernels of several ranks wait for each other. With CUDA's 8 connections two streams may share
// one, and then a kernel waits behind another rank's that waits for it.
std::vector<std::pair<std::string, std::string>> gpu_environment() {
  constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
  if (std::getenv(kConnections) != nullptr) return {};
  return {{kConnections, "32"}};
}

Failure need_worker(const std::string& peer, const std::string& hint, std::string* path) {
  std::string looked_in;
  const auto found = find_worker("treering-peer-" + peer, &looked_in);
  if (!found) {
    return peer + ": treering-peer-" + peer + " not found in " + looked_in + ": " + hint +
           ", or set TREERING_PEER_DIR";
  }
  *path = *found;
  return std::nullopt;
}

// Open MPI binds each rank of two to a core by default; ours and Gloo's run unbound, so nothing is
// bound.
TeamSpec mpi_team(const std::string& name, const std::string& worker, int ranks,
                  const std::vector<std::string>& extra) {
  TeamSpec spec;
  spec.name = name;
  spec.argv = {"mpirun", "--oversubscribe",    "--allow-run-as-root", "--bind-to", "none",
               "-n",     std::to_string(ranks)};
  spec.argv.insert(spec.argv.end(), extra.begin(), extra.end());
  spec.argv.push_back(worker);
  spec.directory_variables = {"TMPDIR", "OMPI_MCA_btl_vader_backing_directory"};
  return spec;
}

// All of Open MPI's ranks talk TCP: it cannot be told that some of one machine share a host.
Failure add_mpi_over_tcp(int ranks, const std::string& worker, std::vector<TeamPlan>* out) {
  out->push_back({mpi_team("mpi-tcp", worker, ranks, {"--mca", "btl", "tcp,self"}), false, {}});
  return std::nullopt;
}

Failure add_mpi(const std::string& name, int ranks, int hosts, std::vector<TeamPlan>* out) {
  if (!is_in_path("mpirun")) return "mpi: mpirun not found: apt install openmpi-bin";
  std::string worker;
  if (Failure failure =
          need_worker("mpi", "apt install libopenmpi-dev and build with -Dmpi=enabled", &worker))
    return failure;
  if (hosts > 1) return add_mpi_over_tcp(ranks, worker, out);
  if (name == "mpi") out->push_back({mpi_team("mpi", worker, ranks, {}), false, {}});
  out->push_back(
      {mpi_team("mpi-nocma", worker, ranks, {"--mca", "btl_vader_single_copy_mechanism", "none"}),
       false,
       {}});
  return std::nullopt;
}

Failure add_gloo(const std::string& setting, int ranks, std::vector<TeamPlan>* out) {
  const auto is_gloo = [](const TeamPlan& plan) { return plan.spec.name == "gloo"; };
  auto plan = std::find_if(out->begin(), out->end(), is_gloo);
  if (plan == out->end()) {
    std::string worker;
    if (Failure failure =
            need_worker("gloo", "apt install libgloo-dev and build with -Dgloo=enabled", &worker))
      return failure;
    out->push_back({{"gloo", with_our_launcher(ranks, {worker})}, false, {}});
    plan = out->end() - 1;
  }
  if (!setting.empty()) plan->settings.push_back(setting);
  return std::nullopt;
}

// Asks the worker, which knows whether the library is here and how many ranks it takes.
Failure ask_worker(const std::string& worker, int ranks) {
  std::string quoted = "'";
  for (const char c : worker) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  FILE* pipe = ::popen((quoted + "' --check " + std::to_string(ranks) + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "cannot start " + worker;
  std::string said(1024, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  while (!said.empty() && said.back() == '\n') said.pop_back();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return said.empty() ? worker + " cannot be asked" : said;
}

Failure add_nccl(const Job& job, std::vector<TeamPlan>* out) {
  std::string worker;
  if (Failure failure = why_no_cuda()) return "nccl: " + *failure;
  if (Failure failure = need_worker("nccl", "build with -Dcuda=enabled", &worker)) return failure;
  if (Failure failure = ask_worker(worker, job.options.ranks)) return "nccl: " + *failure;
  TeamSpec spec;
  spec.name = "nccl";
  spec.argv = launched(job, {worker});
  spec.environment = gpu_environment();
  spec.environment.emplace_back("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  out->push_back({std::move(spec), false, {}});
  return std::nullopt;
}

Failure add_peer(const std::string& peer, const Job& job, std::vector<TeamPlan>* out,
                 bool* is_usage_failure) {
  const int ranks = job.options.ranks;
  const bool is_known = peer == "mpi" || peer == "mpi-nocma" || peer == "gloo" || peer == "nccl" ||
                        peer.rfind("gloo:", 0) == 0;
  if (is_known && (peer == "nccl") != job.on_gpu) {
    *is_usage_failure = true;
    return "--against " + peer +
           (job.on_gpu ? ": it is measured on host memory only" : ": it needs --device cuda");
  }
  if (peer == "nccl") return add_nccl(job, out);
  if (peer == "mpi" || peer == "mpi-nocma") return add_mpi(peer, ranks, job.options.hosts, out);
  if (peer == "gloo") return add_gloo("", ranks, out);
  if (peer.rfind("gloo:", 0) == 0) return add_gloo(peer.substr(5), ranks, out);
  const std::size_t equals = peer.find('=');
  if (equals != std::string::npos && equals > 0) {
    const std::string path = peer.substr(equals + 1);
    if (!is_executable(path)) return peer.substr(0, equals) + ": cannot execute " + path;
    out->push_back({{peer.substr(0, equals), with_our_launcher(ranks, {path})}, false, {}});
    return std::nullopt;
  }
  *is_usage_failure = true;
  return "--against: unknown peer \"" + peer +
         "\"; there are: mpi, mpi-nocma, gloo, gloo:SETTING, nccl, NAME=WORKER";
}

}  // namespace

Failure plan_teams(const Job& job, std::vector<TeamPlan>* out, bool* is_usage_failure) {
  const Options& options = job.options;
  if (job.on_gpu) {
    if (Failure failure = why_no_cuda()) return "--device cuda: " + *failure;
  }
  std::vector<std::string> worker = {self_path(), "perf-worker"};
  if (options.registered) worker.push_back("--registered");
  if (options.hosts > 1) {
    worker.insert(worker.end(), {"--hosts", std::to_string(options.hosts)});
  }
  TeamPlan ours = {{"treering", {}}, true, {}};
  ours.spec.needs_directory = false;
  if (job.on_gpu) {
    worker.push_back("--cuda");
    ours.spec.environment = gpu_environment();
    if (!options.protocol.empty()) {
      ours.spec.environment.emplace_back("TR_PROTOCOL", options.protocol);
    }
  }
  ours.spec.argv = launched(job, worker);
  ours.settings.push_back(options.algorithm);
  ours.settings.insert(ours.settings.end(), options.algorithms.begin(), options.algorithms.end());
  out->push_back(std::move(ours));
  for (const std::string& peer : options.against) {
    if (Failure failure = add_peer(peer, job, out, is_usage_failure)) return failure;
  }
  return std::nullopt;
}

std::vector<std::string> peers_present() {
  std::vector<std::string> out;
  for (const std::string peer : {"mpi", "gloo", "nccl"}) {
    std::vector<TeamPlan> plans;
    bool is_usage_failure = false;
    Job job;
    job.on_gpu = peer == "nccl";
    job.options.ranks = job.on_gpu ? 1 : 2;
    if (!add_peer(peer, job, &plans, &is_usage_failure)) out.push_back(peer);
  }
  return out;
}

}  // namespace treering::perf
