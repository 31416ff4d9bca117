#include "sim/fabric.hpp"

namespace treering::sim {
namespace {

void apply(const Hop& hop, Route& route) {
  route.latency_us += hop.latency_us;
  route.send_us = route.recv_us = hop.overhead_us;
  route.bytes_per_us = hop.stream_gb_s * kBytesPerUs;
  route.handshake_bytes = hop.handshake_bytes;
  route.handshake_us = hop.handshake_us;
}

}  // namespace

Machines::Machines(const MachinesOptions& options) : options_(options) {
  const MachinesOptions& o = options_;
  const auto next = [&] { return static_cast<std::int32_t>(resources_.size()); };
  const auto add = [&](const std::string& name, const Hop& hop) {
    resources_.push_back({name, hop.gb_s * kBytesPerUs, hop.gap_us});
  };
  const int ranks = o.machines * o.per_machine;
  if (o.per_machine > 1) {
    out_ = next();
    for (int r = 0; r < ranks; ++r) add("rank " + std::to_string(r) + " out", o.local);
    in_ = next();
    for (int r = 0; r < ranks; ++r) add("rank " + std::to_string(r) + " in", o.local);
    memory_ = next();
    if (o.memory_gb_s > 0) {
      for (int m = 0; m < o.machines; ++m) {
        resources_.push_back(
            {"machine " + std::to_string(m) + " memory", o.memory_gb_s * kBytesPerUs, 0});
      }
    }
  }
  if (o.machines == 1) return;
  for (const bool out : {true, false}) {
    (out ? nic_out_ : nic_in_) = next();
    for (int m = 0; m < o.machines; ++m) {
      for (int i = 0; i < o.nics; ++i) {
        std::string name = "machine " + std::to_string(m);
        if (o.nics > 1) name += " NIC " + std::to_string(i);
        add(name + (out ? " out" : " in"), o.network);
      }
    }
  }
  if (o.leaf_machines <= 0 || o.leaf_machines >= o.machines) return;
  const double leaf_gb_s = o.network.gb_s * o.nics * o.leaf_machines / o.oversubscription;
  const int leaves = (o.machines + o.leaf_machines - 1) / o.leaf_machines;
  for (const bool up : {true, false}) {
    (up ? up_ : down_) = next();
    for (int l = 0; l < leaves; ++l) {
      resources_.push_back({"leaf switch " + std::to_string(l) + (up ? " up" : " down"),
                            leaf_gb_s * kBytesPerUs, 0});
    }
  }
}

Route Machines::route(int from, int to) const {
  const MachinesOptions& o = options_;
  Route route;
  const int a = from / o.per_machine, b = to / o.per_machine;
  if (a == b) {
    route.resources = {out_ + from, in_ + to};
    if (o.memory_gb_s > 0) route.resources.insert(route.resources.begin() + 1, memory_ + a);
    apply(o.local, route);
    return route;
  }
  const auto nic = [&](int rank) { return rank % o.per_machine * o.nics / o.per_machine; };
  route.resources = {nic_out_ + a * o.nics + nic(from)};
  if (up_ > 0 && a / o.leaf_machines != b / o.leaf_machines) {
    route.resources.push_back(up_ + a / o.leaf_machines);
    route.resources.push_back(down_ + b / o.leaf_machines);
    route.latency_us = o.spine_us;
  }
  route.resources.push_back(nic_in_ + b * o.nics + nic(to));
  apply(o.network, route);
  return route;
}

}  // namespace treering::sim
