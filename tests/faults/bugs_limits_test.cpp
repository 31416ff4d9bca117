// Reports of other libraries' users about limits of the system (BUGS.md), each under its number.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "faults/private_dirs.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

std::string exchange_all(tr_comm_t comm, int rank, int size) {
  std::vector<std::int32_t> out(size), in(size);
  for (int q = 0; q < size; ++q) out[q] = rank * 1000 + q;
  if (tr_all_to_all(out.data(), in.data(), 1, TR_INT32, comm, nullptr) != TR_SUCCESS)
    return tr_get_last_error();
  for (int q = 0; q < size; ++q) {
    if (in[q] != q * 1000 + rank) return "a wrong value from rank " + std::to_string(q);
  }
  return {};
}

// Runs `body` in a child that has set a limit for itself; its exit status, -1 if it died.
int in_child(int resource, rlim_t soft, rlim_t hard, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{soft, hard};
    ::_exit(::setrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 ? body() : 99);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// An all-to-all of 16 processes needs far less than 64 descriptors each. With too few, whoever runs
// out says how many there may be and what to do, and nobody waits for it.
TEST(Bugs, H28_TooManyOpenFiles) {
  const auto run = [] {
    const std::string found = run_ranks(Mode::kProcesses, 16, exchange_all, 60);
    std::printf("%s", found.c_str());
    std::fflush(stdout);
    return found.empty()                                                        ? 0
           : found.find("open; raise that with ulimit -n") != std::string::npos ? 1
                                                                                : 2;
  };
  EXPECT_EQ(in_child(RLIMIT_NOFILE, 64, 64, run), 0);
  // Here it is the store's own process that runs out, while it accepts.
  EXPECT_EQ(in_child(RLIMIT_NOFILE, 16, 16, run), 1);
}

// A machine, or a container, without any network but lo: one host needs no more.
TEST(Bugs, H22_OnlyLoopback) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(77);
    ifreq lo{};
    std::snprintf(lo.ifr_name, sizeof lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    if (::ioctl(socket, SIOCSIFFLAGS, &lo) != 0) ::_exit(77);
    ::close(socket);
    const std::string found = run_ranks(Mode::kProcesses, 2, exchange_all, 60);
    std::printf("%s", found.c_str());
    std::fflush(stdout);
    ::_exit(found.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root: a network namespace of its own";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A 64 MB /dev/shm is enough, and so is one of 1 MB: nothing is there.
TEST(Bugs, H25_SmallDevShm) {
  const PrivateDirs dirs;
  if (!dirs.are_private()) GTEST_SKIP() << "needs root: a /dev/shm of its own";
  for (const int n : {2, 16}) EXPECT_EQ(run_ranks(Mode::kProcesses, n, exchange_all, 60), "");
  EXPECT_EQ(dirs.left_behind(), std::set<std::string>{});
}

// Nothing is locked: the limit of locked memory does not matter.
TEST(Bugs, H29_LockedMemoryLimit) {
  EXPECT_EQ(
      in_child(RLIMIT_MEMLOCK, 0, 0,
               [] { return run_ranks(Mode::kProcesses, 2, exchange_all, 60).empty() ? 0 : 1; }),
      0);
}

// The kind: a limit of the size of files; running into it would kill (SIGXFSZ).
TEST(Bugs, H29_FileSizeLimit) {
  const auto refused = [](const char* words) {
    return [words] {
      const std::string found = run_ranks(Mode::kProcesses, 2, exchange_all, 60);
      std::printf("%s", found.c_str());
      std::fflush(stdout);
      return found.find(words) != std::string::npos && found.find("signal") == std::string::npos
                 ? 0
                 : 1;
    };
  };
  EXPECT_EQ(in_child(RLIMIT_FSIZE, 4096, 4096, refused("ulimit -f")), 0);
}

// Too little address space for the segments: all ranks are told.
TEST(Bugs, H29_AddressSpaceLimit) {
  ::setenv("TR_INIT_TIMEOUT_S", "20", 1);
  ::setenv("TR_LINK_BYTES", "268435456", 1);
  tr_comm_t comms[2] = {};
  const int status = in_child(RLIMIT_AS, 900u << 20, 900u << 20, [&] {
    const tr_result_t r = tr_comm_init_all(comms, 2);
    const std::string text = tr_get_last_error();
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    return r == TR_SYSTEM_ERROR && text.find("Cannot allocate memory") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  ::unsetenv("TR_LINK_BYTES");
  ::unsetenv("TR_INIT_TIMEOUT_S");
}

std::set<std::string> masks_of_all_threads() {
  std::set<std::string> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("Cpus_allowed:", 0) == 0) masks.insert(line);
    }
  }
  return masks;
}

// No thread of the library, and none of the program's, leaves the mask that it was given.
TEST(Bugs, H30_ThreadsKeepTheInheritedMask) {
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 3,
                [](tr_comm_t comm, int rank, int size) -> std::string {
                  cpu_set_t all, one;
                  CPU_ZERO(&one);
                  if (::sched_getaffinity(0, sizeof all, &all) != 0) return "no mask";
                  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
                    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
                  }
                  ::sched_setaffinity(0, sizeof one, &one);
                  const std::set<std::string> before = masks_of_all_threads();
                  tr_comm_t child = nullptr;
                  tr_stream_t stream = nullptr;
                  float x[4] = {}, y[4];
                  if (tr_comm_split(comm, 0, rank, &child) != TR_SUCCESS ||
                      tr_stream_create(&stream) != TR_SUCCESS)
                    return tr_get_last_error();
                  for (int i = 0; i < 200; ++i) {
                    if (tr_all_reduce(x, y, 4, TR_FLOAT32, TR_SUM, child, stream) != TR_SUCCESS ||
                        tr_stream_synchronize(stream) != TR_SUCCESS ||
                        tr_barrier(child, nullptr) != TR_SUCCESS)
                      return tr_get_last_error();
                  }
                  const std::set<std::string> after = masks_of_all_threads();
                  for (const std::string& mask : after) {
                    if (!before.contains(mask)) return "a thread has " + mask;
                  }
                  (void)tr_stream_destroy(stream);
                  (void)tr_comm_destroy(child);
                  return exchange_all(comm, rank, size);
                },
                120),
            "");
}

// Eight ranks on one core: waits that did not yield would take a scheduler's quantum each, 8 x 4 ms
// for a barrier, and never end within the limit.
TEST(Bugs, H33_ManyRanksOnOneCore) {
  EXPECT_EQ(
      run_ranks(
          Mode::kProcesses, 8,
          [](tr_comm_t comm, int, int) -> std::string {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(0, &one);
            (void)::sched_setaffinity(0, sizeof one, &one);
            for (int i = 0; i < 1000; ++i) {
              float x = 1, sum = 0;
              if (tr_all_reduce(&x, &sum, 1, TR_FLOAT32, TR_SUM, comm, nullptr) != TR_SUCCESS ||
                  tr_barrier(comm, nullptr) != TR_SUCCESS)
                return tr_get_last_error();
              if (sum != 8) return "a wrong sum";
            }
            return {};
          },
          150),
      "");
}

// `bytes` of address space that repeat one block of memory, so that buffers of gigabytes cost
// little.
class Repeated {
 public:
  static constexpr std::size_t kPeriod = std::size_t{1} << 24;
  explicit Repeated(std::size_t bytes) : bytes_((bytes + kPeriod - 1) / kPeriod * kPeriod) {
    const int file = ::memfd_create("repeated", MFD_CLOEXEC);
    base_ = static_cast<unsigned char*>(
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    good_ = file >= 0 && ::ftruncate(file, kPeriod) == 0 && base_ != MAP_FAILED;
    for (std::size_t at = 0; good_ && at < bytes_; at += kPeriod) {
      good_ = ::mmap(base_ + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                     0) != MAP_FAILED;
    }
    ::close(file);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { ::munmap(base_, bytes_); }
  bool good() const { return good_; }
  unsigned char* data() { return base_; }

 private:
  std::size_t bytes_;
  unsigned char* base_ = nullptr;
  bool good_ = false;
};

// Parts of more than INT_MAX elements, and a sum of counts beyond 2^32.
TEST(Bugs, H02_CountsBeyond32Bits) {
  if (std::getenv("TR_TEST_SMALL") != nullptr) GTEST_SKIP() << "8 GB through a sanitizer";
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 2,
                [](tr_comm_t comm, int rank, int size) -> std::string {
                  const std::uint64_t part = (1ull << 31) + 1;
                  Repeated in(part * size), out(part);
                  if (!in.good() || !out.good()) return "cannot map the buffers";
                  for (std::size_t i = 0; i < Repeated::kPeriod; ++i)
                    in.data()[i] = static_cast<unsigned char>(i * 7 + i / 251 + rank);
                  const auto value = [](std::uint64_t at, int r) {
                    const std::uint64_t i = at % Repeated::kPeriod;
                    return static_cast<unsigned char>(i * 7 + i / 251 + r);
                  };
                  if (tr_reduce_scatter(in.data(), out.data(), part, TR_UINT8, TR_SUM, comm,
                                        nullptr) != TR_SUCCESS)
                    return tr_get_last_error();
                  for (std::uint64_t i = 0; i < part; i += i < 5000 ? 1 : 4099) {
                    const std::uint64_t at = part * rank + i;
                    const auto expected = static_cast<unsigned char>(value(at, 0) + value(at, 1));
                    if (out.data()[i] != expected)
                      return "element " + std::to_string(i) + " is wrong";
                  }
                  return {};
                },
                200),
            "");
}

}  // namespace
}  // namespace treering::test
