#include "support/ranks.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace treering::test {
namespace {

constexpr std::size_t kReportBytes = 4096;

std::vector<int> g_host_of_rank;

// A wait of the library ends before the test's limit, so that a hang says what it waited for.
std::string run_body(const RankBody& body, tr_comm_t comm, int rank, int size, int limit_s) {
  (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, limit_s * 750);
  std::string found = body(comm, rank, size);
  // A body may have destroyed its communicator, or left it failed; both are its own business.
  (void)tr_comm_destroy(comm);
  return found;
}

std::string run_threads(int size, const RankBody& body, int limit_s) {
  std::vector<tr_comm_t> comms(size);
  if (const tr_result_t r = tr_comm_init_all(comms.data(), size); r != TR_SUCCESS) {
    return failure("tr_comm_init_all", r);
  }
  std::vector<std::string> found(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { found[r] = run_body(body, comms[r], r, size, limit_s); });
  }
  for (std::thread& t : threads) t.join();
  std::string all;
  for (int r = 0; r < size; ++r) {
    if (!found[r].empty()) all += "rank " + std::to_string(r) + ": " + found[r] + "\n";
  }
  return all;
}

std::string process_main(int id_pipe, int size, int rank, const RankBody& body, int limit_s,
                         const tr_unique_id_t* made) {
  if (!g_host_of_rank.empty()) {
    const int host = g_host_of_rank[static_cast<std::size_t>(rank) % g_host_of_rank.size()];
    ::setenv("TR_HOST_ID", ("host" + std::to_string(host)).c_str(), 1);
  }
  tr_unique_id_t id;
  if (made != nullptr) {
    id = *made;
  } else if (::read(id_pipe, &id, sizeof id) != sizeof id) {
    return "no unique id: rank 0 failed before it made one";
  }
  tr_comm_t comm = nullptr;
  if (const tr_result_t r = tr_comm_init_rank(&comm, size, id, rank); r != TR_SUCCESS) {
    return failure("tr_comm_init_rank", r);
  }
  return run_body(body, comm, rank, size, limit_s);
}

std::string run_processes(int size, const RankBody& body, int limit_s) {
  const std::size_t bytes = kReportBytes * static_cast<std::size_t>(size);
  auto* reports = static_cast<char*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int pipe_fds[2];
  if (reports == MAP_FAILED || ::pipe(pipe_fds) != 0) return "cannot set up the test itself";
  std::vector<pid_t> pids(size);
  std::fflush(nullptr);
  for (int r = 0; r < size; ++r) {
    pids[r] = ::fork();
    if (pids[r] != 0) continue;
    std::string found;
    if (r == 0) {
      tr_unique_id_t id;
      if (const tr_result_t result = tr_get_unique_id(&id); result != TR_SUCCESS) {
        found = failure("tr_get_unique_id", result);
      }
      for (int i = 1; i < size && found.empty(); ++i) {
        if (::write(pipe_fds[1], &id, sizeof id) != sizeof id)
          found = "cannot pass the unique id on";
      }
      ::close(pipe_fds[1]);
      if (found.empty()) found = process_main(-1, size, r, body, limit_s, &id);
    } else {
      ::close(pipe_fds[1]);
      found = process_main(pipe_fds[0], size, r, body, limit_s, nullptr);
    }
    std::snprintf(reports + kReportBytes * r, kReportBytes, "%s", found.c_str());
    ::_exit(found.empty() ? 0 : 1);
  }
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);

  std::string all;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
  for (int r = 0; r < size; ++r) {
    int status = 0;
    while (::waitpid(pids[r], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        all += "rank " + std::to_string(r) + ": did not end in " + std::to_string(limit_s) + " s\n";
        ::kill(pids[r], SIGKILL);
        ::waitpid(pids[r], &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const char* report = reports + kReportBytes * r;
    if (report[0] != '\0')
      all += "rank " + std::to_string(r) + ": " + report + "\n";
    else if (WIFSIGNALED(status))
      all += "rank " + std::to_string(r) + ": died of signal " + std::to_string(WTERMSIG(status)) +
             "\n";
    else if (WEXITSTATUS(status) != 0)
      all += "rank " + std::to_string(r) + ": exit status " + std::to_string(WEXITSTATUS(status)) +
             "\n";
  }
  ::munmap(reports, bytes);
  return all;
}

}  // namespace

void play_hosts(std::vector<int> host_of_rank) { g_host_of_rank = std::move(host_of_rank); }

std::string failure(const char* call, tr_result_t result) {
  if (result == TR_SUCCESS) return {};
  return std::string(call) + ": " + tr_get_last_error();
}

std::string run_ranks(Mode mode, int size, const RankBody& body, int limit_s) {
  return mode == Mode::kThreads ? run_threads(size, body, limit_s)
                                : run_processes(size, body, limit_s);
}

}  // namespace treering::test
