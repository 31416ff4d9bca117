// Where boards and flight records of running processes are found.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/status/job.hpp"
#include "cli/status/record.hpp"
#include "comm/flight.hpp"
#include "core/unique_fd.hpp"

namespace treering::status {
namespace {

namespace fs = std::filesystem;

// A memory file, read only.
class View {
 public:
  View(int fd, std::size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) base_ = static_cast<const std::byte*>(at);
  }
  ~View() {
    if (base_ != nullptr) ::munmap(const_cast<std::byte*>(base_), bytes_);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  const std::byte* base() const { return base_; }

 private:
  const std::byte* base_ = nullptr;
  std::size_t bytes_;
};

struct Findings {
  std::map<std::uint64_t, Job> jobs;  // by communicator
  std::set<int> denied;               // processes whose descriptors cannot be read
  bool other_build = false;
};

void add_board(const Board& board, Findings& found) {
  if (board.bytes.load(std::memory_order_relaxed) != sizeof(Board)) {
    found.other_build = true;
    return;
  }
  RankSnapshot s = take_snapshot(board);
  if (s.size < 1 || s.rank < 0 || s.rank >= s.size) return;
  Job& job = found.jobs[s.communicator];
  job.communicator = s.communicator;
  job.size = s.size;
  job.ranks.resize(static_cast<std::size_t>(s.size));
  std::optional<RankSnapshot>& place = job.ranks[static_cast<std::size_t>(s.rank)];
  if (!place) place = std::move(s);  // a forked child has its parent's files too
}

void add_flight(const std::byte* base, std::size_t bytes, Findings& found) {
  const auto& header = *reinterpret_cast<const FlightHeader*>(base);
  std::optional<FlightLog> log = flight_log(base, bytes);
  if (!log) return;
  Job& job = found.jobs[header.communicator];
  const auto same = [&](const FlightLog& other) { return other.rank == log->rank; };
  if (std::none_of(job.flights.begin(), job.flights.end(), same))
    job.flights.push_back(std::move(*log));
}

// What the memory file of this descriptor holds, if it is one of Treering's.
void look_into(const std::string& path, Findings& found) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (bytes < sizeof(FlightHeader)) return;
  std::uint64_t first_word = 0;
  if (::pread(fd.get(), &first_word, sizeof first_word, 0) != sizeof first_word) return;
  if (first_word == kFlightMagic) {
    const View view(fd.get(), bytes);
    if (view.base() != nullptr) add_flight(view.base(), bytes, found);
    return;
  }
  if (bytes < sizeof(Board)) return;
  const View view(fd.get(), sizeof(Board));
  if (view.base() == nullptr) return;
  const Board& board = *reinterpret_cast<const Board*>(view.base());
  // Pairs with Communicator::introduce.
  if (board.magic.load(std::memory_order_acquire) == kBoardMagic) add_board(board, found);
}

void look_at_process(int pid, Findings& found) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  std::error_code error;
  fs::directory_iterator it(folder, error), end;
  if (error) {
    if (error == std::errc::permission_denied) found.denied.insert(pid);
    return;
  }
  for (; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(it->path(), gone);
    if (!gone && target.string().starts_with("/memfd:treering")) look_into(it->path(), found);
  }
}

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::map<int, int> parents() {  // of all processes
  std::map<int, int> parent;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::optional<int> pid = number(it->path().filename());
    if (!pid) continue;
    std::ifstream file(it->path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');
    int ppid = 0;
    char state = 0;
    if (name_end == line.npos) continue;
    if (std::sscanf(line.c_str() + name_end + 1, " %c %d", &state, &ppid) == 2) parent[*pid] = ppid;
  }
  return parent;
}

bool descends_from(const std::map<int, int>& parent, int pid, int ancestor) {
  for (std::size_t i = 0; i <= parent.size(); ++i) {
    if (pid == ancestor) return true;
    const auto it = parent.find(pid);
    if (it == parent.end()) return false;
    pid = it->second;
  }
  return false;
}

}  // namespace

Result<std::vector<Job>> find_jobs(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) {
    TR_ASSIGN_OR_RETURN(Job job, read_record(name));
    return std::vector<Job>{std::move(job)};
  }
  const std::map<int, int> parent = parents();
  const std::optional<int> number_given = number(name);
  const std::optional<int> pid =
      number_given && parent.contains(*number_given) ? number_given : std::nullopt;
  std::set<std::uint64_t> wanted;
  if (pid) {
    Findings own;
    for (const auto& [process, unused] : parent) {
      if (descends_from(parent, process, *pid)) look_at_process(process, own);
    }
    if (own.jobs.empty()) {
      if (own.denied.contains(*pid))
        return invalid_usage("process " + name +
                             " belongs to another user: only that user and root may look into it");
      return invalid_usage(own.other_build
                               ? "process " + name + " uses another build of Treering than this one"
                               : "process " + name +
                                     " and its descendants have no communicator (of this version "
                                     "of Treering), or they have closed its descriptors");
    }
    for (const auto& [communicator, job] : own.jobs) wanted.insert(communicator);
  }
  // The other ranks of a job may be anywhere on this machine.
  Findings all;
  for (const auto& [process, unused] : parent) look_at_process(process, all);
  std::vector<Job> jobs;
  for (auto& [communicator, job] : all.jobs) {
    const bool is_meant = name.empty() || (pid ? wanted.contains(communicator)
                                               : communicator_text(communicator).starts_with(name));
    if (is_meant && job.size > 0) jobs.push_back(std::move(job));
  }
  if (jobs.empty() && number_given && !pid)
    return invalid_usage("there is no process " + name +
                         ", nor a communicator whose number begins so");
  if (jobs.empty() && !name.empty())
    return invalid_usage("\"" + name +
                         "\" is no process id, no communicator's number and no file of the flight "
                         "recorder; treering status alone lists what runs");
  return jobs;
}

}  // namespace treering::status
