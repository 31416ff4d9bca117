// What moves messages while a simulation runs. Wires: the resources of a fabric, each with the time
// from which it is free. Arrivals: when the messages of links come, until they are taken.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/fabric.hpp"
#include "sim/simulator.hpp"

namespace treering::sim {

class Wires {
 public:
  explicit Wires(const Fabric& fabric)
      : resources_(fabric.resources()), free_us_(resources_.size()), loads_(resources_.size()) {}

  int add(Route route) {
    routes_.push_back(std::move(route));
    return static_cast<int>(routes_.size()) - 1;
  }
  const Route& route(int number) const { return routes_[number]; }
  std::vector<Load> take_loads() { return std::move(loads_); }

  // When the last byte of a message that leaves now is seen at the other end. Calls must come in
  // the order of time.
  double cross(int number, std::uint64_t bytes, double now) {
    const Route& route = routes_[number];
    const auto b = static_cast<double>(bytes);
    if (bytes >= route.handshake_bytes) now += route.handshake_us;
    double head = now, tail = now + (route.bytes_per_us > 0 ? b / route.bytes_per_us : 0);
    for (const std::int32_t id : route.resources) {
      const Resource& r = resources_[id];
      const double busy = std::max(r.us_per_message, r.bytes_per_us > 0 ? b / r.bytes_per_us : 0);
      head = std::max(head, free_us_[id]);
      free_us_[id] = head + busy;
      tail = std::max(tail, head + busy);
      loads_[id].busy_us += busy;
      loads_[id].bytes += b;
      ++loads_[id].messages;
    }
    return tail + route.latency_us;
  }

 private:
  const std::vector<Resource>& resources_;
  std::vector<Route> routes_;
  std::vector<double> free_us_;
  std::vector<Load> loads_;
};

// Queues of times that share one store: a link has few messages under way, and there are many
// links.
class Arrivals {
 public:
  struct Queue {
    std::int32_t head = -1, tail = -1;
  };
  void push(Queue& queue, double at) {
    std::int32_t node = 0;
    if (spare_.empty()) {
      node = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({});
    } else {
      node = spare_.back();
      spare_.pop_back();
    }
    nodes_[node] = {at, -1};
    (queue.tail < 0 ? queue.head : nodes_[queue.tail].next) = node;
    queue.tail = node;
  }
  // Of the message behind `ahead` others, which must be there.
  double at(const Queue& queue, std::uint64_t ahead) const {
    std::int32_t node = queue.head;
    while (ahead-- > 0) node = nodes_[node].next;
    return nodes_[node].at;
  }
  void pop(Queue& queue) {
    const std::int32_t node = queue.head;
    queue.head = nodes_[node].next;
    if (queue.head < 0) queue.tail = -1;
    spare_.push_back(node);
  }

 private:
  struct Node {
    double at = 0;
    std::int32_t next = -1;
  };
  std::vector<Node> nodes_;
  std::vector<std::int32_t> spare_;
};

}  // namespace treering::sim
