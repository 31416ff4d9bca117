// What the tests of the bootstrap share: ranks as threads, exchanges with known content, a foreign
// listener.
#pragma once

#include <arpa/inet.h>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/config.hpp"
#include "core/unique_fd.hpp"

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "no \"" << (part) << "\" in: " << (text)

namespace treering {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline Config quick_config(std::int64_t init_timeout_ms = 20'000) {
  Config config;
  config.init_timeout_ms = init_timeout_ms;
  config.warn_ms = 0;
  return config;
}

inline void on_threads(const std::vector<int>& ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank : ranks) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Runs body(rank) in `size` child processes; the body answers whether all went well.
inline void on_processes(int size, const std::function<bool(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(body(rank) ? 0 : 1);
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
  }
}

inline LaunchEnv job_of(int size, int rank, const std::string& job) {
  LaunchEnv env;
  env.rank = rank;
  env.size = size;
  env.source = "test";
  env.job = job + std::to_string(::getpid());
  return env;
}

inline std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  return ranks;
}

// What rank `rank` contributes to exchange `exchange`: any bytes, and lengths that differ.
inline std::string blob_of(int rank, int exchange) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + exchange));
  const std::size_t bytes = exchange == 0 ? 0 : random() % 3000;
  std::string blob(bytes, '\0');
  for (char& c : blob) c = static_cast<char>(random());
  return blob;
}

inline bool exchanges_well(Rendezvous& rendezvous, int exchanges) {
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    const auto blobs = rendezvous.all_gather(blob_of(rendezvous.rank(), exchange));
    if (!blobs.ok()) {
      ADD_FAILURE() << blobs.status().message();
      return false;
    }
    if (blobs.value().size() != static_cast<std::size_t>(rendezvous.size())) return false;
    for (int r = 0; r < rendezvous.size(); ++r) {
      if (blobs.value()[static_cast<std::size_t>(r)] != blob_of(r, exchange)) return false;
    }
  }
  return true;
}

// A listener on the loopback; port 0: any.
inline UniqueFd listen_on(std::uint16_t port, int flags = 0) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), 16), 0);
  return fd;
}

// A listener of somebody else; says `banner` to whoever comes.
class ForeignListener {
 public:
  explicit ForeignListener(std::string banner = {}) : fd_(listen_on(0)) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    if (banner.empty()) return;
    thread_ = std::thread([this, banner] {
      for (;;) {
        UniqueFd guest(::accept(fd_.get(), nullptr, nullptr));
        if (!guest.valid()) return;
        (void)!::write(guest.get(), banner.data(), banner.size());
      }
    });
  }
  ~ForeignListener() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  std::uint16_t port() const { return port_; }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

inline std::uint16_t free_port() { return ForeignListener().port(); }

}  // namespace treering
