// tr_comm_shrink: a new communicator of those who are left.
//
//   agree who is out -> form a communicator over the boards -> agree that all have formed it
//
// and again from the second step when somebody was lost meanwhile. The last agreement makes it all
// or none: no rank leaves with a communicator that another one gave up.
#include <algorithm>
#include <string>
#include <utility>

#include "comm/board_rendezvous.hpp"
#include "comm/communicator.hpp"
#include "comm/survival.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "core/rank_list.hpp"
#include "engine/backoff.hpp"

namespace treering {
namespace {

// That a rank has ended can be seen at its connections a moment before it can be seen at its
// process: an attempt is then spoiled, and nobody seems lost.
constexpr int kAttemptsInVain = 5;

std::string seconds(std::int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text += "." + std::to_string(1000 + ms % 1000).substr(1);
  return text + " s";
}

}  // namespace

bool Communicator::has_gone(int rank) {
  return transport_->has_ended(rank) ||
         transport_->board(rank).left.load(std::memory_order_acquire) != 0;  // pairs with mark_left
}

RankSet Communicator::gone_ranks() {
  (void)transport_->check_peers();  // copies of boards on other hosts become fresh by it
  RankSet gone(size_);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && has_gone(r)) gone.add(r);
  }
  return gone;
}

Status Communicator::check_interrupted(std::uint64_t aborts, const char* call) const {
  if (aborts_.load(std::memory_order_acquire) == aborts) return {};  // pairs with abort
  return Status(Code::kAborted, std::string(call) + " was ended by tr_comm_abort on this rank (" +
                                    std::to_string(rank_) + ")");
}

void Communicator::publish(const Survival& s) {
  store_vote(board_->vote, s.agreement.vote());
  transport_->push_board();
}

// Looks until the open round is decided.
Status Communicator::decide(Survival& s, Deadline deadline, std::int64_t timeout_ms,
                            std::uint64_t aborts) {
  Spin spin(0);
  Backoff backoff(spin);
  std::vector<Vote> votes(size_, Vote{.out = RankSet(size_), .decided_out = RankSet(size_)});
  for (;;) {
    const RankSet ended = gone_ranks();  // before the votes are read, see agreement.hpp
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) load_vote(transport_->board(r).vote, size_, &votes[r]);
    }
    const Vote before = s.agreement.vote();
    const bool decided = s.agreement.look(ended, votes);
    if (s.agreement.vote() != before) publish(s);
    if (decided) return {};
    TR_RETURN_IF_ERROR(check_interrupted(aborts, "tr_comm_shrink"));
    if (deadline.expired()) {
      const std::vector<int>& late = s.agreement.missing();
      return Status(
          Code::kTimeout,
          "tr_comm_shrink: after " + seconds(timeout_ms) + " " +
              (late.empty() ? "the survivors have not agreed"
                            : rank_list(late) + (late.size() == 1 ? " has not come, but lives"
                                                                  : " have not come, but live")) +
              "; wait again with the same call, or go on without with "
              "tr_comm_shrink_without");
    }
    while (!backoff.pause()) {
    }
  }
}

// A communicator over all that are not out. Ends soon when one of them is lost or has given up.
Result<std::shared_ptr<Communicator>> Communicator::form(const Survival& s, Deadline deadline,
                                                         std::uint64_t aborts) {
  std::vector<Board*> boards;
  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    boards.push_back(&transport_->board(r));
    if (!s.agreement.out().has(r)) members.push_back(r);
  }
  const std::uint64_t attempt = s.agreement.round();
  const auto check = [&](int member) -> Status {
    TR_RETURN_IF_ERROR(check_interrupted(aborts, "tr_comm_shrink"));
    if (member == rank_) return {};
    if (has_gone(member)) return remote_error("rank " + std::to_string(member) + " ended");
    Vote vote;
    load_vote(boards[member]->vote, size_, &vote);
    if (vote.round > attempt) {
      return remote_error("rank " + std::to_string(member) + " has given this attempt up");
    }
    if (!deadline.expired()) return {};
    return Status(Code::kTimeout, "rank " + std::to_string(member) + " does not answer");
  };
  BoardRendezvous rendezvous(
      boards, members, rank_, attempt, check, [this] { transport_->push_board(); }, link_key_);
  Config config = config_of(members);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  config.init_timeout_ms = std::clamp<std::int64_t>(left, 1, config_.init_timeout_ms);
  return create(rendezvous, config, family_);
}

Result<std::shared_ptr<Communicator>> Communicator::shrink(const std::vector<int>& without,
                                                           std::int64_t timeout_ms) {
  const Range range(range_owner_, {.operation = "shrink"});
  RankSet out(size_);
  for (const int r : without) {
    if (r < 0 || r >= size_ || r == rank_) {
      return invalid_argument("rank " + std::to_string(r) + " cannot be left out: " +
                              (r == rank_ ? "it is this rank itself"
                                          : "there are ranks 0 to " + std::to_string(size_ - 1)));
    }
    out.add(r);
  }
  if (timeout_ms < 0) return invalid_argument("the timeout must not be negative");
  if (timeout_ms == 0) timeout_ms = config_.timeout_ms;
  if (survival_ != nullptr && survival_->done) {
    return invalid_usage("the communicator was shrunk already; destroy it and use the new one");
  }
  (void)finalize();  // what is in flight ends well, or has failed the communicator
  const std::uint64_t aborts = aborts_.load(std::memory_order_acquire);
  const Deadline deadline = timeout_ms > 0 ? Deadline::after_ms(timeout_ms) : Deadline::never();
  if (survival_ == nullptr) survival_ = std::make_unique<Survival>(rank_, size_);
  Survival& s = *survival_;
  if (s.agreement.is_open()) {
    s.agreement.put_out(out);  // a call that ran into its deadline goes on
  } else {
    s.agreement.propose(out, false);
  }
  publish(s);
  for (;;) {
    TR_RETURN_IF_ERROR(decide(s, deadline, timeout_ms, aborts));
    if (s.agreement.is_out()) {
      s.candidate = nullptr;
      return remote_error("tr_comm_shrink: the other ranks go on without this one (rank " +
                          std::to_string(rank_) + "): they were told to, or took it for dead");
    }
    if (s.candidate != nullptr && !s.agreement.spoiled() && s.candidate_out == s.agreement.out()) {
      break;
    }
    // A rank whose own attempt went well may find it spoiled by another's.
    const bool in_vain = s.agreement.spoiled() && s.candidate_out == s.agreement.out();
    s.in_vain = in_vain ? s.in_vain + 1 : 0;
    s.candidate = nullptr;
    if (s.in_vain == kAttemptsInVain) {
      s.in_vain = 0;
      if (s.why.ok()) s.why = remote_error("another rank could not form it");
      return s.why.with_context("tr_comm_shrink cannot form the new communicator");
    }
    Result<std::shared_ptr<Communicator>> formed = form(s, deadline, aborts);
    s.candidate_out = s.agreement.out();
    s.why = formed.status();
    if (formed.ok()) s.candidate = std::move(formed).value();
    if (!s.why.ok()) TR_LOG_INFO(rank_, "shrink: %s", s.why.message().c_str());
    s.agreement.propose(gone_ranks(), !s.why.ok());
    publish(s);
    // Others that have called again may have begun to form it just before this call's time was up.
    if (!s.why.ok() && deadline.expired()) {
      return Status(Code::kTimeout, "tr_comm_shrink: after " + seconds(timeout_ms) +
                                        " the new communicator is not formed (" + s.why.message() +
                                        "); go on with the same call");
    }
  }
  s.done = true;
  retire("the communicator was shrunk; destroy it and use the new one");
  const std::vector<int> lost = s.agreement.out().ranks();
  TR_LOG_INFO(rank_, "shrunk to %d ranks, without %s; this is rank %d now", s.candidate->size(),
              rank_list(lost).c_str(), s.candidate->rank());
  return std::exchange(s.candidate, nullptr);
}

// Every later call is refused; on this rank only, and nobody else is told.
void Communicator::retire(const char* why) {
  {
    std::lock_guard lock(failure_mutex_);
    failure_ = invalid_usage(why);
  }
  scratch_reusable_ = false;
  failed_.store(true, std::memory_order_release);  // pairs with async_error
}

}  // namespace treering
