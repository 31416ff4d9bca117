#include "cli/explain/volume.hpp"

#include <algorithm>
#include <map>

namespace treering::explain {
namespace {

using algos::Operand;
using algos::Schedule;
using algos::Space;
using algos::Step;
using algos::Verb;

constexpr std::uint64_t kLineBytes = 64;

bool caller_cuts(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return true;
    default:
      return false;
  }
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

}  // namespace

std::uint64_t Cut::slices(std::int32_t chunk) const {
  const std::uint64_t bytes = chunk_bytes[chunk];
  return slice_bytes == 0 ? bytes != 0 : divide_up(bytes, slice_bytes);
}

std::uint64_t Cut::most_slices() const {
  std::uint64_t most = 0;
  for (std::size_t c = 0; c < chunk_bytes.size(); ++c) {
    most = std::max(most, slices(static_cast<std::int32_t>(c)));
  }
  return most;
}

Cut cut_vector(const algos::Algorithm& algorithm, int size, std::uint64_t bytes, Type type,
               std::uint64_t slice_bytes, const HostMap* hosts) {
  const auto chunks = static_cast<std::uint64_t>(algos::chunk_count(algorithm, size, hosts));
  const std::uint64_t elem = type_bytes(type);
  Cut cut;
  if (algorithm.collective == Collective::kBarrier) {
    cut.vector_bytes = 1;
    cut.chunk_bytes = {1};
    return cut;
  }
  cut.slice_bytes = slice_bytes;
  std::uint64_t total = bytes / elem;
  std::uint64_t each = divide_up(total, chunks);
  if (caller_cuts(algorithm.collective)) {
    total = each * chunks;
  } else if (chunks > 1 && each * elem > kLineBytes) {
    each = divide_up(each * elem, kLineBytes) * kLineBytes / elem;
  }
  cut.vector_bytes = total * elem;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    const std::uint64_t begin = std::min(c * each, total);
    cut.chunk_bytes.push_back(std::min(each, total - begin) * elem);
  }
  return cut;
}

void Traffic::add(const Cut& cut, std::int32_t chunk) {
  messages += cut.slices(chunk);
  bytes += cut.chunk_bytes[chunk];
}

Volume measure(std::span<const Schedule> schedules, const Cut& cut) {
  Volume volume;
  volume.ranks.resize(schedules.size());
  std::map<LinkId, Traffic> links;
  for (const Schedule& schedule : schedules) {
    RankTraffic& mine = volume.ranks[schedule.rank];
    for (const Step& step : schedule.steps) {
      if (step.verb == Verb::kPublish)
        links[schedule.outputs(step).front().link];  // a signal: no bytes
      if (step.verb == Verb::kPublish || step.verb == Verb::kAwait) continue;
      for (const Operand& o : schedule.inputs(step)) {
        if (o.space == Space::kLink && !o.peek) mine.received.add(cut, o.chunk);
        if (o.space == Space::kPeerIn || o.space == Space::kPeerOut)
          mine.window_bytes += cut.chunk_bytes[o.chunk];
      }
      for (const Operand& o : schedule.outputs(step)) {
        if (o.space == Space::kPeerOut) mine.window_bytes += cut.chunk_bytes[o.chunk];
        if (o.space != Space::kLink) continue;
        (o.link.kind == LinkId::Kind::kCast ? mine.cast : mine.sent).add(cut, o.chunk);
        links[o.link].add(cut, o.chunk);
      }
    }
  }
  for (const auto& [id, traffic] : links) volume.links.push_back({id, traffic});
  return volume;
}

std::uint64_t memory_bytes(std::span<const Schedule> schedules, const Cut& cut, bool in_place) {
  std::uint64_t bytes = 0;
  for (const Schedule& schedule : schedules) {
    for (const Step& step : schedule.steps) {
      if (step.verb == Verb::kPublish || step.verb == Verb::kAwait) continue;
      const auto inputs = schedule.inputs(step);
      const bool only_own = inputs.size() == 1 && inputs.front().space == Space::kIn;
      std::uint64_t written = 0;
      for (const Operand& o : schedule.outputs(step)) {
        if (o.space == Space::kOut && only_own && in_place) continue;
        const bool is_cast = o.space == Space::kLink && o.link.kind == LinkId::Kind::kCast;
        const auto times = static_cast<std::uint64_t>(is_cast ? schedule.size - 1 : 1);
        written += times * cut.chunk_bytes[o.chunk];
      }
      bytes += written;
      if (written == 0 && only_own) continue;
      for (const Operand& o : inputs) bytes += cut.chunk_bytes[o.chunk];
    }
  }
  return bytes;
}

}  // namespace treering::explain
