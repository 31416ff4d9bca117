#include "faults/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLimitS = 60;  // of a whole schedule: a rank that takes longer hangs
constexpr std::size_t kReportBytes = 2048;

const char* name(Fault f) {
  constexpr const char* kNames[] = {"is killed", "exits", "is stopped for less than the deadline",
                                    "is stopped for longer than the deadline", "calls otherwise"};
  return kNames[static_cast<int>(f)];
}
const char* name(Moment m) {
  constexpr const char* kNames[] = {"in init", "idle", "in a collective", "in destroy"};
  return kNames[static_cast<int>(m)];
}
const char* name(Field f) {
  constexpr const char* kNames[] = {"kind", "count", "type", "operator", "root", "order"};
  return kNames[static_cast<int>(f)];
}

void do_fault(Fault fault) {
  switch (fault) {
    case Fault::kKill:
      ::kill(::getpid(), SIGKILL);
      break;
    case Fault::kExit:
      ::_exit(0);
    case Fault::kStopShort:
    case Fault::kStopLong:
      ::kill(::getpid(), SIGSTOP);
      break;
    case Fault::kMismatch:
      break;
  }
}

Fault g_fault;  // for the handler

void do_later(Fault fault, long us) {
  g_fault = fault;
  struct sigaction action {};
  action.sa_handler = [](int) { do_fault(g_fault); };  // no SA_RESTART: waits see EINTR
  ::sigaction(SIGALRM, &action, nullptr);
  itimerval t{};
  t.it_value.tv_sec = us / 1'000'000;
  t.it_value.tv_usec = us % 1'000'000 + 1;
  ::setitimer(ITIMER_REAL, &t, nullptr);
}

// One rank of a schedule. Everything it finds wrong is a text.
class Actor {
 public:
  Actor(const Schedule& s, int rank, int id_pipe_in, int id_pipe_out)
      : s_(s), rank_(rank), in_(id_pipe_in), out_(id_pipe_out), is_victim_(rank == s.victim) {}

  std::string run() {
    const auto host = s_.hosts == Hosts::kOne ? 0 : s_.hosts == Hosts::kTwo ? rank_ / 2 : rank_;
    if (s_.hosts != Hosts::kOne) ::setenv("TR_HOST_ID", ("host" + std::to_string(host)).c_str(), 1);
    set_init_deadline();
    tr_unique_id_t id;
    if (rank_ == 0) {
      if (tr_get_unique_id(&id) != TR_SUCCESS) return failure("id", TR_SYSTEM_ERROR);
      for (int i = 1; i < s_.ranks; ++i) {
        if (::write(out_, &id, sizeof id) != sizeof id) return "cannot pass the id on";
      }
    } else if (::read(in_, &id, sizeof id) != sizeof id) {
      return "got no id";
    }
    const long before = descriptors();
    std::string wrong = work(id);
    // The process of rank 0 has the store as well, which ends by itself later.
    if (wrong.empty() && rank_ != 0 && descriptors() != before)
      wrong = std::to_string(descriptors() - before) + " descriptors are left";
    return wrong;
  }

 private:
  static long descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }

  void set_init_deadline() const {
    const bool in_init = s_.moment == Moment::kInit;
    double seconds = s_.generous_ms / 1000.0;
    // Killed or gone before it has joined, a rank can only be missed.
    if (in_init && (s_.fault == Fault::kKill || s_.fault == Fault::kExit)) seconds = 2;
    if (in_init && s_.fault == Fault::kStopLong) seconds = s_.short_ms / 1000.0;
    ::setenv("TR_INIT_TIMEOUT_S", std::to_string(seconds).c_str(), 1);
  }

  std::string work(const tr_unique_id_t& id) {
    const bool in_init = s_.moment == Moment::kInit;
    int size = s_.ranks;
    if (in_init && is_victim_) {
      if (s_.fault != Fault::kMismatch) do_later(s_.fault, s_.delay_us % 3000);
      if (s_.fault == Fault::kMismatch && s_.field < Field::kType) ++size;
      if (s_.fault == Fault::kMismatch && s_.field >= Field::kType) ::setenv("TR_ORDERED", "1", 1);
    }
    tr_result_t r = tr_comm_init_rank(&comm_, size, id, rank_);
    if (in_init && (r != TR_SUCCESS || must_fail())) return judge("tr_comm_init_rank", r);
    if (r != TR_SUCCESS) return failure("tr_comm_init_rank", r);
    const bool short_deadline = s_.fault == Fault::kStopLong && !in_init;
    (void)tr_comm_set_option(comm_, TR_OPT_TIMEOUT_MS,
                             short_deadline ? s_.short_ms : s_.generous_ms);
    const std::string wrong = calls();
    r = tr_comm_destroy(comm_);
    return wrong.empty() ? failure("destroy", r) : wrong;
  }

  // Is there a rank that cannot succeed?
  bool must_fail() const { return s_.fault == Fault::kMismatch; }

  std::string calls() {
    tr_result_t r = TR_SUCCESS;
    // Before the fault everything works; but a stopped or late rank may run into a short deadline.
    for (int i = 0; i < s_.calls; ++i) {
      r = call(i);
      if (r != TR_SUCCESS || wrong_) return judge("a call before the fault", r);
    }
    if (s_.moment == Moment::kInit) return judge("", TR_SUCCESS);
    if (s_.moment == Moment::kDestroy) return last_call();
    if (s_.fault == Fault::kMismatch) return mismatch();
    if (is_victim_) {
      if (s_.moment == Moment::kCollective) {
        do_later(s_.fault, s_.delay_us);
      } else if (s_.fault == Fault::kExit) {
        std::exit(0);  // with exit handlers, as a program that has nothing more to do
      } else {
        do_fault(s_.fault);
      }
    }
    const bool harmless = s_.fault == Fault::kStopShort;
    for (int i = s_.calls; !harmless || i < s_.calls + 60; ++i) {
      r = call(i);
      if (r != TR_SUCCESS || wrong_) break;
    }
    return judge("a call", r);
  }

  // All meet, and then nobody needs anybody.
  std::string last_call() {
    if (s_.fault == Fault::kMismatch) {
      if (is_victim_) return {};  // it destroys instead
      tr_result_t r = TR_SUCCESS;
      for (int i = 0; i < 3 && r == TR_SUCCESS; ++i) r = call(0);
      return judge("a call without the rank that left", r);
    }
    if (const tr_result_t r = tr_barrier(comm_, nullptr); r != TR_SUCCESS)
      return judge("the last barrier", r);
    if (is_victim_) do_later(s_.fault, s_.delay_us % 300);
    return {};
  }

  std::string mismatch() {
    const bool odd = is_victim_;
    std::int64_t a[64] = {}, b[64] = {};
    tr_result_t r = TR_SUCCESS;
    const tr_type_t type = s_.field == Field::kType && odd ? TR_UINT64 : TR_INT64;
    const tr_op_t op = s_.field == Field::kOperator && odd ? TR_MAX : TR_SUM;
    const std::uint64_t count = s_.field == Field::kCount && odd ? 31 : 32;
    if (s_.field == Field::kRoot) {
      r = tr_broadcast(a, b, 32, TR_INT64, odd ? 1 : 0, comm_, nullptr);
    } else if ((s_.field == Field::kKind || s_.field == Field::kOrder) && odd) {
      r = tr_all_gather(a, b, 8, TR_INT64, comm_, nullptr);
      if (s_.field == Field::kOrder && r == TR_SUCCESS)
        r = tr_all_reduce(a, b, 32, TR_INT64, TR_SUM, comm_, nullptr);
    } else {
      r = tr_all_reduce(a, b, count, type, op, comm_, nullptr);
      if (s_.field == Field::kOrder && r == TR_SUCCESS)
        r = tr_all_gather(a, b, 8, TR_INT64, comm_, nullptr);
    }
    // Who only sends is through at once: the next calls show it.
    for (int i = 0; i < 3 && r == TR_SUCCESS; ++i)
      r = tr_all_reduce(a, b, 1, TR_INT64, TR_SUM, comm_, nullptr);
    return judge("the call that differs", r);
  }

  // Collectives of all kinds, with exact results.
  tr_result_t call(int i) {
    constexpr std::size_t kCounts[] = {1, 700, 20'000};
    const std::size_t n = kCounts[i % 3];
    const int root = i % s_.ranks;
    std::vector<std::int64_t> in(n, rank_ + i), out(n, -1);
    const std::int64_t sum =
        static_cast<std::int64_t>(s_.ranks) * (s_.ranks - 1) / 2 + std::int64_t{i} * s_.ranks;
    std::int64_t expected = sum;
    tr_result_t r = TR_SUCCESS;
    switch (i % 4) {
      case 0:
        r = tr_all_reduce(in.data(), out.data(), n, TR_INT64, TR_SUM, comm_, nullptr);
        break;
      case 1:
        r = tr_broadcast(in.data(), out.data(), n, TR_INT64, root, comm_, nullptr);
        expected = root + i;
        break;
      case 2:
        r = tr_reduce(in.data(), out.data(), n, TR_INT64, TR_SUM, root, comm_, nullptr);
        if (rank_ != root) expected = -1;
        break;
      default:
        return tr_barrier(comm_, nullptr);
    }
    wrong_ = r == TR_SUCCESS &&
             std::ranges::any_of(out, [expected](std::int64_t x) { return x != expected; });
    return r;
  }

  // Was that how it must end?
  std::string judge(const char* what, tr_result_t r) const {
    const std::string text = r == TR_SUCCESS ? "success" : tr_get_last_error();
    const std::string said = std::string(what) + ": " + text;
    if (wrong_) return std::string(what) + ": a wrong result";
    const bool names = text.find("rank " + std::to_string(s_.victim)) != std::string::npos ||
                       (text.find("ranks ") != std::string::npos &&
                        text.find(std::to_string(s_.victim)) != std::string::npos);
    const bool in_init = s_.moment == Moment::kInit;
    // Rank 0 holds the store, and may be known by that only.
    const bool names_store = s_.victim == 0 && text.find("unique id") != std::string::npos;
    // Who comes, or asks, after the others have failed and their processes have ended finds nobody,
    // and cannot know why.
    const bool too_late = in_init && r == TR_REMOTE_ERROR &&
                          (text.find("has formed or failed already") != std::string::npos ||
                           text.find("ended during the set-up") != std::string::npos);
    if (too_late && s_.fault != Fault::kStopShort) return {};
    switch (s_.fault) {
      case Fault::kStopShort:
        return r == TR_SUCCESS ? "" : said + " (nobody should be harmed)";
      case Fault::kStopLong:
        if (in_init && r == TR_SUCCESS) return {};  // it was through before it was stopped
        if (is_victim_) return {};
        if (r != TR_TIMEOUT && r != TR_REMOTE_ERROR) return said + " (expected a timeout)";
        return names || in_init ? "" : said + " (the stopped rank is not named)";
      case Fault::kKill:
      case Fault::kExit:
        if (in_init && r == TR_SUCCESS) return {};
        if (r != TR_REMOTE_ERROR && !(in_init && r == TR_TIMEOUT))
          return said + " (expected a remote error)";
        return names || names_store ? "" : said + " (the rank that is gone is not named)";
      case Fault::kMismatch:
        if (s_.moment == Moment::kDestroy) {
          if (r != TR_REMOTE_ERROR || !names) return said + " (expected: the rank has left)";
          return {};
        }
        if (r != TR_MISMATCH && !(in_init && r == TR_INVALID_ARGUMENT))
          return said + " (expected a mismatch)";
        return names ? "" : said + " (the rank that differs is not named)";
    }
    return {};
  }

  const Schedule& s_;
  const int rank_;
  const int in_, out_;
  const bool is_victim_;
  tr_comm_t comm_ = nullptr;
  bool wrong_ = false;
};

}  // namespace

std::string to_string(const Schedule& s) {
  std::string text = "of " + std::to_string(s.ranks) + " ranks, rank " + std::to_string(s.victim) +
                     " " + name(s.fault);
  if (s.fault == Fault::kMismatch) text += std::string(" (") + name(s.field) + ")";
  text += std::string(" ") + name(s.moment) + ", after " + std::to_string(s.calls) + " calls and " +
          std::to_string(s.delay_us) + " us; hosts: ";
  return text + (s.hosts == Hosts::kOne ? "one" : s.hosts == Hosts::kTwo ? "two" : "each its own");
}

Schedule random_schedule(std::mt19937& random, Hosts hosts) {
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  Schedule s;
  s.hosts = hosts;
  s.ranks = 2 + below(3);
  s.victim = below(s.ranks);
  // Those that wait for real time are the dear ones.
  constexpr Fault kFaults[] = {Fault::kKill,     Fault::kKill,      Fault::kKill,
                               Fault::kExit,     Fault::kExit,      Fault::kExit,
                               Fault::kMismatch, Fault::kMismatch,  Fault::kMismatch,
                               Fault::kMismatch, Fault::kStopShort, Fault::kStopLong};
  s.fault = kFaults[below(12)];
  s.moment = static_cast<Moment>(below(4));
  s.field = static_cast<Field>(below(6));
  s.calls = below(20);
  s.delay_us = below(15'000);
  return s;
}

std::string run_schedule(const Schedule& s) {
  const std::size_t bytes = kReportBytes * static_cast<std::size_t>(s.ranks);
  auto* const reports = static_cast<char*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int ends[2];
  if (reports == MAP_FAILED || ::pipe2(ends, O_CLOEXEC) != 0)
    return "cannot set up the test itself";
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < s.ranks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    const std::string found = Actor(s, rank, ends[0], ends[1]).run();
    std::snprintf(reports + kReportBytes * rank, kReportBytes, "%s", found.c_str());
    ::_exit(found.empty() ? 0 : 1);
  }
  ::close(ends[0]);
  ::close(ends[1]);

  std::string all;
  const auto say = [&all](int rank, const std::string& text) {
    all += "rank " + std::to_string(rank) + ": " + text + "\n";
  };
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(kLimitS);
  Clock::time_point wake = Clock::time_point::max();
  for (int left = s.ranks; left > 0;) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      int status = 0;
      if (pids[rank] == 0 || ::waitpid(pids[rank], &status, WNOHANG | WUNTRACED) <= 0) continue;
      if (WIFSTOPPED(status)) {
        wake = Clock::now() + std::chrono::milliseconds(s.stop_ms);
        continue;
      }
      pids[rank] = 0;
      --left;
      const char* report = reports + kReportBytes * rank;
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      if (report[0] != '\0') {
        say(rank, report);
      } else if (WIFSIGNALED(status) && !(killed && rank == s.victim && s.fault == Fault::kKill)) {
        say(rank, "died of signal " + std::to_string(WTERMSIG(status)));
      } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        say(rank, "exit status " + std::to_string(WEXITSTATUS(status)));
      }
    }
    if (Clock::now() >= wake) {
      wake = Clock::time_point::max();
      if (pids[s.victim] != 0) ::kill(pids[s.victim], SIGCONT);
    }
    if (Clock::now() > limit) {
      for (int rank = 0; rank < s.ranks; ++rank) {
        if (pids[rank] == 0) continue;
        say(rank, "hangs");
        ::kill(pids[rank], SIGKILL);
        ::waitpid(pids[rank], nullptr, 0);
      }
      break;
    }
    ::usleep(1000);
  }
  ::munmap(reports, bytes);
  return all;
}

}  // namespace treering::test
