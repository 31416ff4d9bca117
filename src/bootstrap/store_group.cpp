#include "bootstrap/store_group.hpp"

#include <algorithm>
#include <cstring>

#include "bootstrap/store.hpp"
#include "core/rank_list.hpp"

namespace treering {
namespace {

// How long a group that everybody has left, though not everybody had come, is remembered.
constexpr int kLingerMs = 10'000;

std::string of_size(int size) { return " of " + std::to_string(size); }

std::string seconds(std::int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text += "." + std::to_string(ms % 1000 / 100);
  return text + " s";
}

SharedText shared_frame(wire::Kind kind, std::string_view body) {
  return std::make_shared<const std::string>(wire::frame(kind, body));
}

}  // namespace

StoreGroup::StoreGroup(std::uint64_t id, int size, int first_rank)
    : id_(id), size_fixed_by_(first_rank), members_(static_cast<std::size_t>(size)) {}

Status StoreGroup::check(const wire::Hello& hello, bool& come_back) {
  come_back = false;
  const std::string name = "rank " + std::to_string(hello.rank);
  if (hello.size != size()) {
    fail(invalid_argument("the ranks disagree about the size: " + name + " says " +
                          std::to_string(hello.size) + ", rank " + std::to_string(size_fixed_by_) +
                          " says " + std::to_string(size())));
    return failure_;
  }
  Member& member = members_[static_cast<std::size_t>(hello.rank)];
  switch (member.state) {
    case State::kPresent:
      fail(invalid_argument("two callers joined as " + name + of_size(size()) +
                            ": give each its own rank"));
      break;
    case State::kGone:
      // In a launcher's job: a further program, which has found the store of the one before.
      come_back = id_ != kUniqueIdGroup;
      if (!come_back && failure_.ok()) {
        return invalid_usage(name + of_size(size()) +
                             " has joined and left already: a unique id serves one communicator");
      }
      break;
    case State::kAbsent:
      if (failure_.ok()) break;
      member.state = State::kGone;  // it has been told
      ++gone_;
      break;
  }
  return failure_;
}

void StoreGroup::admit(const wire::Hello& hello, StoreConnection& connection) {
  connection.group = this;
  connection.rank = hello.rank;
  connection.server_is_here = hello.server_is_here != 0;
  Member& member = members_[static_cast<std::size_t>(hello.rank)];
  member.state = State::kPresent;
  member.connection = &connection;
  ++present_;
  linger_ = Deadline::never();
}

void StoreGroup::gather(int rank, const wire::GatherHead& head, std::string_view blob) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (!failure_.ok()) return;  // the error is on its way
  if (member.is_waiting) {
    fail(internal_error("rank " + std::to_string(rank) + " gathers twice at once"));
    return;
  }
  member.is_waiting = true;
  member.blob = blob;
  ++waiting_;
  if (gone_ > 0) {
    fail(remote_error(rank_list(ranks_in(State::kGone)) + of_size(size()) +
                      " left before the set-up was complete"));
    return;
  }
  if (waiting_ == size()) {
    complete_gather();
    return;
  }
  const Deadline deadline = Deadline::after_ms(head.timeout_ms);
  if (waiting_ == 1 || deadline.remaining() < deadline_.remaining()) {
    deadline_ = deadline;
    timeout_ms_ = head.timeout_ms;
  }
  if (waiting_ == 1 && head.warn_ms > 0) {
    warn_ms_ = head.warn_ms;
    next_notice_ = Deadline::after_ms(warn_ms_);
  }
}

void StoreGroup::complete_gather() {
  std::string body;
  for (Member& member : members_) {
    const auto bytes = static_cast<std::uint32_t>(member.blob.size());
    body.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(member.blob);
    member.blob.clear();
    member.is_waiting = false;
  }
  waiting_ = 0;
  ++gathers_done_;
  deadline_ = next_notice_ = Deadline::never();
  send_to_all(shared_frame(wire::Kind::kGathered, body));
}

void StoreGroup::leave(int rank, bool with_goodbye) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.state = State::kGone;
  member.connection = nullptr;
  --present_;
  ++gone_;
  if (present_ == 0) linger_ = Deadline::after_ms(kLingerMs);
  if (!failure_.ok()) return;
  if (!with_goodbye) {
    fail(remote_error("rank " + std::to_string(rank) + of_size(size()) +
                      " died or left during the set-up: its connection to the store has ended"));
  } else if (waiting_ > 0) {
    fail(remote_error("rank " + std::to_string(rank) + of_size(size()) +
                      " left before the set-up was complete"));
  }
}

void StoreGroup::fail(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  deadline_ = next_notice_ = Deadline::never();
  send_to_all(shared_frame(wire::Kind::kError, wire::error_body(status)));
}

void StoreGroup::check_time() {
  if (deadline_.expired()) {
    fail(Status(Code::kTimeout, missing_text() + " within " + seconds(timeout_ms_) +
                                    " (TR_INIT_TIMEOUT_S sets how long to wait)"));
    return;
  }
  if (!next_notice_.expired()) return;
  next_notice_ = Deadline::after_ms(warn_ms_);
  for (Member& member : members_) {
    if (!member.is_waiting) continue;
    member.connection->queue(shared_frame(wire::Kind::kNotice, missing_text() + " so far"));
    return;
  }
}

Deadline StoreGroup::next_check() const {
  return Deadline::earlier(linger_, Deadline::earlier(deadline_, next_notice_));
}

std::vector<int> StoreGroup::ranks_in(State state) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (members_[static_cast<std::size_t>(r)].state == state) ranks.push_back(r);
  }
  return ranks;
}

std::string StoreGroup::missing_text() const {
  const std::vector<int> absent = ranks_in(State::kAbsent);
  std::vector<int> late;
  for (int r : ranks_in(State::kPresent)) {
    if (!members_[static_cast<std::size_t>(r)].is_waiting) late.push_back(r);
  }
  std::string text;
  if (!absent.empty()) {
    text = rank_list(absent) + of_size(size()) + (absent.size() == 1 ? " has" : " have") +
           " not joined";
  }
  if (!late.empty()) {
    text += (text.empty() ? "" : ", and ") + rank_list(late) + of_size(size()) +
            (late.size() == 1 ? " has" : " have") + " joined but not come to exchange " +
            std::to_string(gathers_done_ + 1);
  }
  return text;
}

void StoreGroup::send_to_all(SharedText text) {
  for (Member& member : members_) {
    if (member.state == State::kPresent && !member.connection->server_is_here) {
      member.connection->queue(text);
    }
  }
  replies_here_.push_back(std::move(text));
}

void StoreGroup::release_replies_here() {
  if (replies_here_.empty()) return;
  for (const Member& member : members_) {
    if (member.state == State::kPresent && !member.connection->server_is_here &&
        member.connection->has_output()) {
      return;
    }
  }
  for (Member& member : members_) {
    if (member.state != State::kPresent || !member.connection->server_is_here) continue;
    for (const SharedText& text : replies_here_) member.connection->queue(text);
  }
  replies_here_.clear();
}

}  // namespace treering
