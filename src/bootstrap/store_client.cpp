// A rank's end of the store: finds the server, proves the key, gathers.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "bootstrap/store.hpp"
#include "bootstrap/store_wire.hpp"
#include "core/log.hpp"
#include "core/unique_fd.hpp"

namespace treering {
namespace {

// A listener on a candidate port that says nothing is left alone after this, twice as long the next
// time.
constexpr int kFirstPatienceMs = 250;
// A listener on the only candidate port that is no store, or another job's, is an error after this,
// in case an earlier job is about to leave the port; a silent one may be a store that gets no time.
constexpr int kForeignMs = 5000;
constexpr int kSilentMs = 20'000;
// The server reports who is missing; only if it is stuck itself does the client give up on its own.
constexpr int kServerGraceMs = 3000;

enum class Io { kDone, kTimeout, kEnded };

// Waits until fd is ready for `events` or broken (the next call on it says so).
bool wait_for(int fd, short events, Deadline deadline) {
  pollfd poll_fd{fd, events, 0};
  for (;;) {
    const int n = ::poll(&poll_fd, 1, deadline.poll_ms());
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

Io send_all(int fd, std::string_view data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return Io::kTimeout;
    } else if (errno != EINTR) {
      return Io::kEnded;
    }
  }
  return Io::kDone;
}

Io recv_all(int fd, void* to, std::size_t bytes, Deadline deadline) {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, out, bytes, 0);
    if (n > 0) {
      out += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return Io::kEnded;
    } else if (!wait_for(fd, POLLIN, deadline)) {
      return Io::kTimeout;
    }
  }
  return Io::kDone;
}

Io recv_frame(int fd, wire::Kind& kind, std::string& body, Deadline deadline) {
  wire::FrameHead head;
  if (const Io io = recv_all(fd, &head, sizeof head, deadline); io != Io::kDone) return io;
  kind = head.kind;
  body.resize(head.bytes);
  return recv_all(fd, body.data(), body.size(), deadline);
}

class StoreClient final : public Rendezvous {
 public:
  StoreClient(UniqueFd fd, const StoreJoin& join, const Config& config)
      : fd_(std::move(fd)),
        rank_(join.rank),
        size_(join.size),
        timeout_ms_(config.init_timeout_ms),
        warn_ms_(config.warn_ms),
        server_name_(join.server_name) {
    Secret key{};
    std::copy(join.key.begin(), join.key.end(), key.begin());
    link_key_ = derive_secret(key, "links of communicator " + std::to_string(join.group));
  }
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // One goodbye in a socket that has room for it; the server takes a mere close for a death.
  ~StoreClient() override {
    (void)send_all(fd_.get(), wire::frame(wire::Kind::kBye, {}), Deadline::after_ms(0));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Secret link_key() const override { return link_key_; }

  Result<std::vector<std::string>> all_gather(const std::string& blob) override {
    if (!failure_.ok()) return failure_;
    if (blob.size() > kMaxBlobBytes) {
      return invalid_argument("a blob of " + std::to_string(blob.size()) +
                              " bytes is too long for the store (" + std::to_string(kMaxBlobBytes) +
                              " at most)");
    }
    std::vector<std::string> blobs;
    failure_ = gather(blob, blobs);
    if (!failure_.ok()) return failure_;
    return blobs;
  }

 private:
  Status gather(const std::string& blob, std::vector<std::string>& blobs) {
    const Deadline deadline = Deadline::after_ms(timeout_ms_ + kServerGraceMs);
    const wire::GatherHead head{timeout_ms_, warn_ms_};
    std::string body(reinterpret_cast<const char*>(&head), sizeof head);
    body += blob;
    // If the server has ended the connection, it may have said why first: read on.
    if (send_all(fd_.get(), wire::frame(wire::Kind::kGather, body), deadline) == Io::kTimeout) {
      return no_answer();
    }
    for (;;) {
      wire::Kind kind{};
      const Io io = recv_frame(fd_.get(), kind, body, deadline);
      if (io == Io::kTimeout) return no_answer();
      if (io == Io::kEnded) {
        return remote_error("the store in " + server_name_ +
                            " ended during the set-up: that process has died or exited");
      }
      if (kind == wire::Kind::kNotice) {
        TR_LOG_WARN(rank_, "waits for the set-up of a communicator: %s", body.c_str());
        continue;
      }
      if (kind == wire::Kind::kError) return wire::parse_error(body);
      if (kind != wire::Kind::kGathered || !split(body, blobs)) {
        return internal_error("an unknown message from the store");
      }
      return {};
    }
  }

  bool split(std::string_view body, std::vector<std::string>& blobs) const {
    for (int r = 0; r < size_; ++r) {
      std::uint32_t bytes = 0;
      if (body.size() < sizeof bytes) return false;
      std::memcpy(&bytes, body.data(), sizeof bytes);
      body.remove_prefix(sizeof bytes);
      if (body.size() < bytes) return false;
      blobs.emplace_back(body.substr(0, bytes));
      body.remove_prefix(bytes);
    }
    return body.empty();
  }

  Status no_answer() const {
    return Status(Code::kTimeout,
                  "the store in " + server_name_ + " does not answer: is that process stopped?");
  }

  UniqueFd fd_;
  const int rank_;
  const int size_;
  const std::int64_t timeout_ms_;
  const std::int64_t warn_ms_;
  const std::string server_name_;
  Secret link_key_;
  Status failure_;
};

// What was found on one port.
enum class Found {
  kStore,        // ours; joined
  kRefusal,      // ours; status says why this rank may not join
  kNothing,      // nobody listens
  kBusy,         // a store, or its end, that dropped us before it read our proof: try again
  kSilent,       // a listener that said nothing yet
  kForeign,      // something else, or another job's store
  kSystemError,  // status
};
struct Attempt {
  Found found = Found::kNothing;
  std::string what;  // for the error text
  Status status;
  UniqueFd fd;
};

Attempt attempt(const StoreJoin& join, std::uint16_t port, Deadline patience) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid())
    return {Found::kSystemError, {}, system_error("cannot create a socket", errno), {}};
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  int error = 0;
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      if (!wait_for(fd.get(), POLLOUT, patience)) return {Found::kBusy, "no answer", {}, {}};
      socklen_t length = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error == ECONNREFUSED) return {Found::kNothing, "nobody listens", {}, {}};
  // It had our connection, but ended before it saw it: the store of the program before, perhaps.
  if (error == ECONNRESET || error == ECONNABORTED) {
    return {Found::kBusy, "a listener that hangs up", {}, {}};
  }
  if (error != 0) {
    return {Found::kSystemError,
            {},
            system_error("cannot connect to the store at 127.0.0.1:" + std::to_string(port), error),
            {}};
  }

  wire::Challenge challenge;
  switch (recv_all(fd.get(), &challenge, sizeof challenge, patience)) {
    case Io::kTimeout:
      return {Found::kSilent, "a listener that says nothing", {}, {}};
    case Io::kEnded:
      return {Found::kBusy, "a listener that hangs up", {}, {}};
    case Io::kDone:
      break;
  }
  if (challenge.magic != wire::kMagic) {
    return {Found::kForeign, "a listener that is no Treering store", {}, {}};
  }
  if (challenge.version != wire::kVersion) {
    return {Found::kRefusal,
            {},
            unsupported("the store in " + join.server_name + " speaks version " +
                        std::to_string(challenge.version) + " of the protocol, this library " +
                        std::to_string(wire::kVersion) + ": use one version in all ranks"),
            {}};
  }

  auto nonce = random_key();
  if (!nonce.ok()) return {Found::kSystemError, {}, nonce.status(), {}};
  wire::Hello hello;
  hello.server_is_here = join.server_is_here ? 1 : 0;
  hello.group = join.group;
  hello.size = join.size;
  hello.rank = join.rank;
  hello.nonce = nonce.value();
  hello.proof = wire::client_proof(join.key, challenge.nonce, hello);
  wire::Kind kind{};
  std::string body;
  // From here on a store has shown itself: a loaded machine gets the time that the server grants
  // us.
  const Deadline welcome = Deadline::after_ms(kGreetingMs);
  const std::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  if (send_all(fd.get(), bytes, welcome) != Io::kDone ||
      recv_frame(fd.get(), kind, body, welcome) != Io::kDone) {
    return {Found::kBusy, "a store that hangs up", {}, {}};
  }
  Key128 proof;
  if (kind != wire::Kind::kWelcome || body.size() < proof.size()) {
    return {Found::kForeign, "the store of another job", {}, {}};
  }
  std::memcpy(proof.data(), body.data(), proof.size());
  if (!equal_in_constant_time(proof, wire::server_proof(join.key, hello.nonce))) {
    return {Found::kForeign, "a store that cannot prove the key of this job", {}, {}};
  }
  if (body.size() > proof.size()) {
    return {
        Found::kRefusal, {}, wire::parse_error(std::string_view(body).substr(proof.size())), {}};
  }
  return {Found::kStore, {}, {}, std::move(fd)};
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> join_store(const StoreJoin& join, const Config& config) {
  const Deadline deadline = Deadline::after_ms(config.init_timeout_ms);
  const Deadline foreign_deadline = Deadline::after_ms(kForeignMs);
  const Deadline silent_deadline = Deadline::after_ms(kSilentMs);
  Deadline next_notice =
      config.warn_ms > 0 ? Deadline::after_ms(config.warn_ms) : Deadline::never();
  const auto place = [](std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); };
  int patience_ms = kFirstPatienceMs;
  std::string seen;
  for (int round = 0;; ++round) {
    std::string seen_now;
    for (std::uint16_t port : join.ports) {
      const Deadline patience = Deadline::earlier(deadline, Deadline::after_ms(patience_ms));
      Attempt result = attempt(join, port, patience);
      switch (result.found) {
        case Found::kStore:
          return std::unique_ptr<Rendezvous>(
              std::make_unique<StoreClient>(std::move(result.fd), join, config));
        case Found::kRefusal:
        case Found::kSystemError:
          return result.status;
        case Found::kNothing:
          if (!join.server_may_be_late) {
            return remote_error("nobody listens at " + place(port) + ": " + join.server_name +
                                " has ended, or the communicator of this unique id has formed or "
                                "failed already");
          }
          break;
        case Found::kBusy:
          break;
        case Found::kSilent:
        case Found::kForeign: {
          const bool is_final = result.found == Found::kSilent
                                    ? silent_deadline.expired()
                                    : !join.server_may_be_late || foreign_deadline.expired();
          if (join.ports.size() == 1 && is_final) {
            return remote_error("at " + place(port) + " there is " + result.what + ", not " +
                                join.server_name + ": the port is in use by another program");
          }
          break;
        }
      }
      seen_now += (seen_now.empty() ? "" : ", ") + place(port) + ": " + result.what;
    }
    // What the deadline has cut short tells less than the round before.
    if (round == 0 || !deadline.expired()) seen = std::move(seen_now);
    if (deadline.expired()) {
      return Status(Code::kTimeout, "cannot reach the store of " + join.server_name + ": " + seen +
                                        " (TR_INIT_TIMEOUT_S sets how long to wait)");
    }
    if (next_notice.expired()) {
      TR_LOG_WARN(join.rank, "waits for the store of %s: %s", join.server_name.c_str(),
                  seen.c_str());
      next_notice = Deadline::after_ms(config.warn_ms);
    }
    patience_ms = std::min(2 * patience_ms, kGreetingMs);
    // 1, 2, 4, ... 64 ms: ranks that start together meet at once, a late rank 0 costs little.
    std::this_thread::sleep_for(std::chrono::milliseconds(1 << std::min(round, 6)));
  }
}

}  // namespace treering
