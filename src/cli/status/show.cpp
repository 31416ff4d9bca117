// A job as text and as JSON.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/status/job.hpp"
#include "core/rank_list.hpp"

namespace treering::status {
namespace {

using Json = nlohmann::ordered_json;

const char* state_name(RankState state) {
  switch (state) {
    case RankState::kForming:
      return "forming";
    case RankState::kLive:
      return "live";
    case RankState::kFinalized:
      return "left";
    case RankState::kFailed:
      return "failed";
    case RankState::kAborted:
      return "aborted";
  }
  return "unknown";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, s < 1 ? "%.3f s" : "%.1f s", s);
  return text;
}

std::string time_text(std::uint64_t ns) {
  const auto s = static_cast<std::time_t>(ns / 1'000'000'000);
  std::tm parts{};
  ::localtime_r(&s, &parts);
  char text[64];
  const std::size_t n = std::strftime(text, sizeof text, "%H:%M:%S", &parts);
  std::snprintf(text + n, sizeof text - n, ".%06u", static_cast<unsigned>(ns / 1000 % 1'000'000));
  return text;
}

constexpr const char* kNotFound =
    "not found: its process has ended, or it is on another host or another user's";

// Whoever keeps others waiting, with those whom it keeps.
struct Cause {
  int root = 0;
  bool is_cycle = false;
  std::uint64_t operation = kNoOperation;  // that they wait in
  std::vector<int> behind;
};

std::vector<Cause> causes_of(const std::vector<RankSnapshot>& boards) {
  std::vector<Cause> causes;
  std::set<int> done;
  for (const RankSnapshot& board : boards) {
    const WaitChain chain = wait_chain(boards, board.rank);
    if (chain.ranks.size() < 2 || done.contains(chain.root())) continue;
    Cause cause{chain.root(), chain.is_cycle, board.wait->operation,
                ranks_behind(boards, chain.root())};
    done.insert(cause.root);
    if (cause.is_cycle) done.insert(cause.behind.begin(), cause.behind.end());
    causes.push_back(std::move(cause));
  }
  return causes;
}

std::string words_of(const Job& job, const std::vector<RankSnapshot>& boards, const Cause& cause) {
  if (cause.is_cycle) return rank_list(cause.behind) + " wait for each other, in a circle";
  const auto root = static_cast<std::size_t>(cause.root);
  return "rank " + std::to_string(cause.root) + " keeps " + rank_list(cause.behind) +
         " waiting: rank " + std::to_string(cause.root) + " " +
         (job.ranks[root] ? rank_words(boards[root], cause.operation)
                          : std::string("is ") + kNotFound);
}

std::string call_text(const FlightCall& call, int size) {
  const CallKind kind = unpack(call.kind);
  if (call.sequence != kNoOperation) {
    return std::to_string(call.sequence) + ", " + to_string(kind, call.count, size);
  }
  return "send or receive, rank " + std::to_string(kind.root) + ", " + std::to_string(call.count) +
         " " + type_name(kind.type);
}

Json json_of(const Job& job, const RankSnapshot& board) {
  Json j;
  j["rank"] = board.rank;
  j["pid"] = board.pid;
  j["state"] = state_name(board.state);
  if (!board.cause.empty()) j["cause"] = board.cause;
  j["issued"] = board.issued;
  j["completed"] = board.completed;
  j["moves"] = board.moves;
  for (const PostedCall& call : board.calls) {
    j["calls"].push_back({{"operation", call.sequence},
                          {"call", to_string(unpack(call.kind), call.count, job.size)},
                          {"algorithm", algorithm_name(unpack(call.kind))}});
  }
  if (board.wait) {
    const NotedWait& w = *board.wait;
    j["wait"] = {{"for_rank", w.peer},
                 {"for", w.for_room ? "room" : "message"},
                 {"link", to_string(w.link)},
                 {"message", w.number},
                 {"chunk", w.chunk},
                 {"slice", w.slice},
                 {"round", w.round},
                 {"verb", algos::verb_name(w.verb)},
                 {"seconds", static_cast<double>(w.waited_ms) / 1000},
                 {"words", wait_words(w)}};
    if (w.operation != kNoOperation) j["wait"]["operation"] = w.operation;
  }
  for (const LinkTraffic& t : board.links) {
    j["links"].push_back(
        {{"link", to_string(t.link)}, {"messages", t.messages}, {"bytes", t.bytes}});
  }
  return j;
}

}  // namespace

std::vector<RankSnapshot> boards_of(const Job& job) {
  std::vector<RankSnapshot> boards;
  for (int r = 0; r < job.size; ++r) {
    const std::optional<RankSnapshot>& found = job.ranks[static_cast<std::size_t>(r)];
    RankSnapshot board = found ? *found : RankSnapshot{};
    board.rank = r;
    boards.push_back(std::move(board));
  }
  return boards;
}

std::string to_text(const Job& job) {
  const std::vector<RankSnapshot> boards = boards_of(job);
  std::string text = "communicator " + communicator_text(job.communicator) + " of " +
                     std::to_string(job.size) + (job.size == 1 ? " rank\n" : " ranks\n");
  std::size_t width = 9;
  const auto last_text = [&](const RankSnapshot& board) {
    const PostedCall* const last = board.last_call();
    return last != nullptr ? call_words(*last, job.size) : std::string("none");
  };
  for (const RankSnapshot& board : boards) width = std::max(width, last_text(board).size());
  text += "rank  pid      " + padded("last operation", width) + "  completed  now\n";
  for (int r = 0; r < job.size; ++r) {
    const RankSnapshot& board = boards[static_cast<std::size_t>(r)];
    if (!job.ranks[static_cast<std::size_t>(r)]) {
      text += padded(std::to_string(r), 6) + kNotFound + "\n";
      continue;
    }
    std::string now = rank_words(board, kNoOperation);
    if (board.wait && board.state <= RankState::kLive)
      now += "; for " + seconds(static_cast<double>(board.wait->waited_ms) / 1000);
    text += padded(std::to_string(r), 6) + padded(std::to_string(board.pid), 9) +
            padded(last_text(board), width + 2) + padded(std::to_string(board.completed), 11) +
            now + "\n";
  }
  for (const Cause& cause : causes_of(boards)) text += words_of(job, boards, cause) + "\n";
  for (const RankSnapshot& board : boards) {
    if (!board.wait) continue;
    std::string links;
    for (const LinkTraffic& t : board.links)
      links += (links.empty() ? "" : ", ") + traffic_words(t);
    if (!links.empty()) text += "moved at rank " + std::to_string(board.rank) + ": " + links + "\n";
  }
  for (const FlightLog& log : job.flights) {
    text += "last calls of rank " + std::to_string(log.rank) + ":\n";
    for (const FlightCall& call : log.calls) {
      text +=
          "  " + time_text(call.begin_ns) + "  " +
          padded(call.end_ns == 0 ? std::string("not over")
                                  : seconds(static_cast<double>(call.end_ns - call.begin_ns) / 1e9),
                 10) +
          "  " + call_text(call, job.size) + "\n";
    }
  }
  return text;
}

std::string to_json(const std::vector<Job>& jobs) {
  Json all = Json::array();
  for (const Job& job : jobs) {
    const std::vector<RankSnapshot> boards = boards_of(job);
    Json j{{"communicator", communicator_text(job.communicator)}, {"size", job.size}};
    j["ranks"] = Json::array();
    std::vector<int> missing;
    for (int r = 0; r < job.size; ++r) {
      if (job.ranks[static_cast<std::size_t>(r)]) {
        j["ranks"].push_back(json_of(job, boards[static_cast<std::size_t>(r)]));
      } else {
        missing.push_back(r);
      }
    }
    j["not_found"] = missing;
    j["causes"] = Json::array();
    for (const Cause& cause : causes_of(boards)) {
      j["causes"].push_back({{"rank", cause.root},
                             {"circle", cause.is_cycle},
                             {"waiting", cause.behind},
                             {"words", words_of(job, boards, cause)}});
    }
    for (const FlightLog& log : job.flights) {
      Json calls = Json::array();
      for (const FlightCall& call : log.calls) {
        Json c{{"number", call.number},
               {"call", call_text(call, job.size)},
               {"begin_ns", call.begin_ns}};
        if (call.end_ns != 0) c["end_ns"] = call.end_ns;
        calls.push_back(std::move(c));
      }
      j["flight"].push_back({{"rank", log.rank}, {"calls", std::move(calls)}});
    }
    all.push_back(std::move(j));
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace treering::status
