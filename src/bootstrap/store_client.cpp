// A rank's end of the store: finds the server, says who it is, gathers.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "bootstrap/store.hpp"
#include "bootstrap/store_attempt.hpp"
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

// All blobs of the largest job.
constexpr std::size_t kMaxReplyBytes = std::size_t{kMaxRanks} * (kMaxBlobBytes + 4);

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
  if (head.bytes > kMaxReplyBytes) return Io::kEnded;
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
        server_name_(join.server_name),
        link_key_(derive_secret(join.key, "links of communicator " + std::to_string(join.group))) {}
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // One goodbye in a socket that has room for it; the server takes a mere close for a death.
  ~StoreClient() override {
    (void)send_all(fd_.get(), wire::frame(wire::Kind::kBye, {}), Deadline::after_ms(0));
  }

  // Says which rank this is. kBusy of the caller: the store ended first, or has no time.
  enum class Welcome { kJoined, kRefused, kTryAgain };
  Welcome join(const StoreJoin& join, Status& refusal) {
    wire::Hello hello;
    hello.server_is_here = join.server_is_here ? 1 : 0;
    hello.group = join.group;
    hello.size = join.size;
    hello.rank = join.rank;
    const Deadline deadline = Deadline::after_ms(kGreetingMs);
    const std::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
    wire::Kind kind{};
    std::string body;
    if (send_all(fd_.get(), bytes, deadline) != Io::kDone ||
        recv_frame(fd_.get(), kind, body, deadline) != Io::kDone) {
      return Welcome::kTryAgain;
    }
    if (kind == wire::Kind::kWelcome) return Welcome::kJoined;
    refusal = kind == wire::Kind::kError ? wire::parse_error(body)
                                         : internal_error("an unknown message from the store");
    return Welcome::kRefused;
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
      if (kind != wire::Kind::kGathered || !wire::parse_gathered(body, size_, blobs)) {
        return internal_error("an unknown message from the store");
      }
      return {};
    }
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
  const Secret link_key_;
  Status failure_;
};

// What one round over all places has found.
struct Round {
  std::optional<StoreAttempt> store;
  Status failure;          // nothing that waiting would change
  std::string seen;        // in words, one place after the other
  std::string in_the_way;  // places where there is something else
  int nothing = 0;         // places where nobody listens
  int silent = 0;
  int foreign = 0;
  int places = 0;
};

// Until the store is found, `patience` ends, or, if every place has somebody who may yet answer,
// `long_patience`: there a new attempt would only stand behind this one in a flooded listener's
// queue.
Round look_around(const StoreJoin& join, Deadline patience, Deadline long_patience) {
  std::vector<StoreAttempt> attempts;
  for (std::uint16_t port : join.ports) {
    for (const NetAddress& address : join.addresses) {
      for (const sockaddr_storage& to : endpoints(address, port)) {
        attempts.emplace_back(to, to_string(address, port), join.key);
      }
    }
  }
  Round round;
  using Found = StoreAttempt::Found;
  for (;;) {
    std::vector<pollfd> polls;
    for (StoreAttempt& attempt : attempts) {
      if (attempt.found() == Found::kGoing) attempt.advance();
      if (attempt.found() == Found::kStore) {
        round.store.emplace(std::move(attempt));
        return round;
      }
      if (attempt.found() == Found::kGoing) polls.push_back({attempt.fd(), attempt.events(), 0});
    }
    const Deadline end = polls.size() == attempts.size() ? long_patience : patience;
    if (polls.empty() || end.expired()) break;
    (void)::poll(polls.data(), polls.size(), end.poll_ms());
  }
  for (StoreAttempt& attempt : attempts) {
    attempt.give_up();
    const Found found = attempt.found();
    ++round.places;
    round.nothing += found == Found::kNothing;
    round.silent += found == Found::kSilent;
    round.foreign += found == Found::kForeign;
    if (found == Found::kOther || found == Found::kSystemError) round.failure = attempt.status();
    const std::string text = attempt.place() + ": " + attempt.what();
    round.seen += (round.seen.empty() ? "" : ", ") + text;
    if (found == Found::kSilent || found == Found::kForeign) {
      round.in_the_way += (round.in_the_way.empty() ? "" : ", ") + text;
    }
  }
  return round;
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> join_store(const StoreJoin& join, const Config& config) {
  const Deadline deadline = Deadline::after_ms(config.init_timeout_ms);
  const Deadline foreign_deadline = Deadline::after_ms(kForeignMs);
  const Deadline silent_deadline = Deadline::after_ms(kSilentMs);
  Deadline next_notice =
      config.warn_ms > 0 ? Deadline::after_ms(config.warn_ms) : Deadline::never();
  int patience_ms = kFirstPatienceMs;
  std::string seen;
  for (int i = 0;; ++i) {
    Round round = look_around(join, Deadline::earlier(deadline, Deadline::after_ms(patience_ms)),
                              Deadline::earlier(deadline, Deadline::after_ms(kGreetingMs)));
    if (round.store) {
      auto client = std::make_unique<StoreClient>(round.store->take_socket(), join, config);
      Status refusal;
      switch (client->join(join, refusal)) {
        case StoreClient::Welcome::kJoined:
          return std::unique_ptr<Rendezvous>(std::move(client));
        case StoreClient::Welcome::kRefused:
          return refusal;
        case StoreClient::Welcome::kTryAgain:
          round.seen = round.store->place() + ": a store that hangs up";
          break;
      }
    } else {
      if (!round.failure.ok()) return round.failure;
      const bool is_gone = !join.server_may_be_late && round.nothing == round.places;
      if (is_gone) {
        return remote_error("the store of " + join.server_name + " is not there (" + round.seen +
                            "): it has ended, or the communicator of this unique id has formed or "
                            "failed already");
      }
      // What is neither ours nor about to leave; of several ports another one may still be ours.
      int hopeless = join.server_may_be_late ? 0 : round.nothing;
      if (!join.server_may_be_late || foreign_deadline.expired()) hopeless += round.foreign;
      if (silent_deadline.expired()) hopeless += round.silent;
      if (join.ports.size() == 1 && hopeless == round.places) {
        return remote_error(join.server_name + " is not there, but something else in its place: " +
                            round.in_the_way + "; the port is in use by another program");
      }
    }
    // What the deadline has cut short tells less than the round before.
    if (i == 0 || !deadline.expired()) seen = std::move(round.seen);
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
    std::this_thread::sleep_for(std::chrono::milliseconds(1 << std::min(i, 6)));
  }
}

}  // namespace treering
