// The ranks of one communicator-to-be as the store server sees them: who is there, who waits, and
// whether the set-up has failed. Used by the server's thread only.
//
// Invariants: a rank has at most one connection. A gather completes when all ranks wait in it. Once
// failed, a group stays failed, and every rank in it has been sent the error once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/store_connection.hpp"
#include "bootstrap/store_wire.hpp"
#include "core/deadline.hpp"
#include "core/status.hpp"

namespace treering {

class StoreGroup {
 public:
  // The first rank that comes fixes the size.
  StoreGroup(std::uint64_t id, int size, int first_rank);

  // Would this rank be welcome? Not ok: it must be told so and not be admitted; the group may have
  // failed because of it (a duplicate, another size). come_back: neither welcome nor refused; the
  // place that it asks for is still that of its own earlier program.
  Status check(const wire::Hello& hello, bool& come_back);
  void admit(const wire::Hello& hello, StoreConnection& connection);

  void gather(int rank, const wire::GatherHead& head, std::string_view blob);
  // The connection of `rank` has ended, with a goodbye or without.
  void leave(int rank, bool with_goodbye);
  void fail(const Status& status);

  // Fails the group if a waiting rank's deadline has passed; sends notices that are due.
  void check_time();
  Deadline next_check() const;

  // Replies for ranks in the server's process, once all others' have gone to the network.
  void release_replies_here();

  bool all_have_come() const { return present_ + gone_ == size(); }
  // Nobody is there, and all have been: or enough time has passed for those who have not to hear
  // why.
  bool is_over() const { return gone_ == size() || (present_ == 0 && linger_.expired()); }

 private:
  enum class State : std::uint8_t { kAbsent, kPresent, kGone };
  struct Member {
    State state = State::kAbsent;
    bool is_waiting = false;
    StoreConnection* connection = nullptr;  // while present
    std::string blob;                       // while waiting
  };

  int size() const { return static_cast<int>(members_.size()); }
  std::vector<int> ranks_in(State state) const;
  // "ranks 2, 5-7 have not joined; rank 3 has joined but not come to exchange 2"
  std::string missing_text() const;
  void complete_gather();
  void send_to_all(SharedText text);

  const std::uint64_t id_;
  const int size_fixed_by_;
  std::vector<Member> members_;
  int present_ = 0;
  int gone_ = 0;
  int waiting_ = 0;
  std::uint64_t gathers_done_ = 0;
  std::int64_t timeout_ms_ = 0;  // of the waiting rank that gives up first
  std::int64_t warn_ms_ = 0;
  Deadline deadline_ = Deadline::never();
  Deadline next_notice_ = Deadline::never();
  Deadline linger_ = Deadline::never();  // runs while nobody is present
  std::vector<SharedText> replies_here_;
  Status failure_;
};

}  // namespace treering
