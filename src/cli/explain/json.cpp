// The report as JSON: what --json prints and what the page plays.
#include <nlohmann/json.hpp>

#include "cli/explain/report.hpp"
#include "cli/explain/words.hpp"

namespace treering::explain {
namespace {

using algos::Operand;
using algos::Schedule;
using algos::Space;
using algos::Step;
using Json = nlohmann::ordered_json;

const char* space_name(Space space) {
  switch (space) {
    case Space::kIn:
      return "in";
    case Space::kOut:
      return "out";
    case Space::kLink:
      return "link";
    case Space::kToken:
      return "token";
    case Space::kPeerIn:
      return "peer_in";
    case Space::kPeerOut:
      return "peer_out";
    case Space::kNone:
      break;
  }
  return "none";
}

Json operand_json(const Operand& o) {
  Json j = {{"space", space_name(o.space)}};
  if (o.space != Space::kToken) j["chunk"] = o.chunk;
  if (o.space == Space::kLink) j["link"] = to_string(o.link);
  if (o.peek) j["peek"] = true;
  if (o.peer >= 0) j["peer"] = o.peer;
  return j;
}

Json steps_json(const Report& report, int rank) {
  const Schedule& schedule = report.schedules()[rank];
  Json steps = Json::array();
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    Json j = {{"verb", verb_name(step.verb)}, {"lane", step.lane}};
    if (step.last == algos::Last::kYes) j["last"] = true;
    j["at"] = report.playback.at[rank][i];
    j["words"] = sentence(report.program, schedule, step);
    j["in"] = Json::array();
    j["out"] = Json::array();
    for (const Operand& o : schedule.inputs(step)) j["in"].push_back(operand_json(o));
    for (const Operand& o : schedule.outputs(step)) j["out"].push_back(operand_json(o));
    steps.push_back(std::move(j));
  }
  return steps;
}

Json traffic_json(const Traffic& t) { return {{"messages", t.messages}, {"bytes", t.bytes}}; }

}  // namespace

std::string to_json(const Report& report) {
  const algos::Algorithm& a = *report.algorithm;
  Json j = {{"op", collective_name(a.collective)},
            {"algorithm", a.name},
            {"ranks", report.ranks},
            {"root", has_root(a.collective) ? Json(report.root) : Json()},
            {"type", type_name(report.type)},
            {"bytes", report.cut.vector_bytes},
            {"chunk_bytes", report.cut.chunk_bytes},
            {"slice_bytes", report.cut.slice_bytes},
            {"source", a.source},
            {"formula", a.formula},
            {"steps", report.playback.time},
            {"hops", report.playback.hops}};
  if (report.hosts) {
    const Hosts at = report.hosts->view();
    j["hosts"] = Json::array();
    for (int h = 0; h < at.count; ++h) {
      Json ranks = Json::array();
      for (int m = 0; m < at.members_of(h); ++m) ranks.push_back(at.rank_of(h, m));
      j["hosts"].push_back(std::move(ranks));
    }
  }
  if (report.pipelined) j["pipelined_slice_messages"] = *report.pipelined;
  if (report.proven_slots) j["proven_slots"] = *report.proven_slots;
  j["links"] = Json::array();
  // Operands name their link; this says what it joins.
  for (const auto& [id, traffic] : report.volume.links) {
    Json link = {{"name", to_string(id)}, {"src", id.src}};
    link["dst"] = id.kind == LinkId::Kind::kCast ? Json("all") : Json(id.dst);
    link["channel"] = id.channel;
    link.update(traffic_json(traffic));
    j["links"].push_back(std::move(link));
  }
  j["traffic"] = Json::array();
  for (const RankTraffic& t : report.volume.ranks) {
    j["traffic"].push_back({{"sent", traffic_json(t.sent)},
                            {"cast", traffic_json(t.cast)},
                            {"received", traffic_json(t.received)},
                            {"window_bytes", t.window_bytes}});
  }
  j["schedule"] = Json::array();
  for (int r = 0; r < report.ranks; ++r) j["schedule"].push_back(steps_json(report, r));
  return j.dump();
}

}  // namespace treering::explain
