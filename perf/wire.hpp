// The control channel between `treering perf` (the driver) and the workers, one process per rank
// and library. A worker connects to the driver's abstract Unix socket, says hello, and then blocks
// in recv() until the driver wants something: between commands it costs no CPU. One SOCK_SEQPACKET
// message is one struct; both ends are built together and live on one machine, so the structs are
// sent as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "perf/case.hpp"
#include "perf/failure.hpp"

namespace treering::perf {

// How a worker finds its driver (environment variables).
inline constexpr const char* kSocketVariable =
    "TREERING_PERF_SOCKET";                                         // name of the abstract socket
inline constexpr const char* kTeamVariable = "TREERING_PERF_TEAM";  // index of its team, from 0
inline constexpr const char* kDirVariable =
    "TREERING_PERF_DIR";  // private directory, for a rendezvous
inline constexpr const char* kTimeoutVariable =
    "TREERING_PERF_TIMEOUT";  // seconds for start-up and a command

inline constexpr std::uint64_t kWireMagic = 0x7472'7065'7266'0002;  // "trperf", version 2
inline constexpr std::size_t kNameBytes = 48;
inline constexpr std::size_t kTextBytes = 4096;

struct Hello {
  std::uint64_t magic = kWireMagic;
  std::int32_t team = 0;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int32_t devices = 0;  // GPUs of the machine; 0: host memory
  std::int32_t device_number = 0;
  char version[256] = {};            // of the library: "Open MPI 4.1.4"
  char device[kNameBytes * 2] = {};  // "NVIDIA H200"
};

enum class Verb : std::uint32_t {
  kSettings,  // reply.text: the library's settings for the case, separated by commas; ok = 0: why
              // none
  kReserve,   // allocate and touch both buffers: arg = bytes of each
  kPrepare,   // make the case ready to run
  kCheck,     // fill, run once, compare: arg = seed; reply.number = wrong elements
  kRun,   // barrier, warmup runs, barrier, arg timed runs; reply.number = nanoseconds of the timed
          // ones
  kCopy,  // reply.number = bytes per second that the rank's GPU copies; 0: not its turn to measure
  kQuit,  // end, without a reply
};

struct Command {
  Verb verb = Verb::kQuit;
  std::uint32_t specials = 0;  // kCheck: with NaN, infinities, -0 and overflow
  Case what;
  std::uint64_t arg = 0;
  std::uint64_t warmup = 0;
  char setting[kNameBytes] = {};
};

struct Reply {
  std::uint32_t ok = 1;
  std::uint64_t number = 0;
  char text[kTextBytes] = {};  // ok = 0: what was wrong
};

// Copies text into a fixed array, cut where it does not fit.
template <std::size_t kSize>
void copy_text(const std::string& text, char (&out)[kSize]) {
  const std::size_t length = text.copy(out, kSize - 1);
  out[length] = '\0';
}

// An open file descriptor; closes it.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// name without the leading zero byte of the abstract namespace.
Failure listen_on(const std::string& name, Fd* out);
Failure connect_to(const std::string& name, Fd* out);

// One whole message. `closed`, where given, tells the end of the channel from other failures.
Failure send_message(const Fd& socket, const void* message, std::size_t bytes);
Failure receive_message(const Fd& socket, void* message, std::size_t bytes, bool* closed = nullptr);

}  // namespace treering::perf
