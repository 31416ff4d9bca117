// Fabric: what messages between ranks cross in the simulator, and what that costs.
//
// A resource serves one message after the other, in the order in which they come: a port, a PCIe
// link in one direction, a switch's uplinks. A route is the resources that a message crosses, and
// what it costs besides. Two messages that share a resource wait for each other there; that is
// all of link sharing and of incast.
//
// Times are microseconds, rates are bytes a microsecond (1 GB/s = 1000).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace treering::sim {

inline constexpr double kBytesPerUs = 1000;  // of one GB/s

struct Resource {
  std::string name;           // "machine 3: GPU0 - NVSwitch, NVLink"
  double bytes_per_us = 0;    // 0: without a limit
  double us_per_message = 0;  // that a message takes at least, however short
};

// Of all messages from one rank to another.
struct Route {
  std::vector<std::int32_t> resources;
  double latency_us = 0;    // from the last byte's leaving to its being seen
  double send_us = 0;       // of the sender's core, a message
  double recv_us = 0;       // of the receiver's core, a message
  double bytes_per_us = 0;  // the most that one message alone reaches; 0: the resources decide
  // Messages from so many bytes on are announced and answered first (rendezvous).
  std::uint64_t handshake_bytes = ~std::uint64_t{0};
  double handshake_us = 0;
};

// What a rank's core does itself.
struct CoreCosts {
  double step_us = 0;             // a step's fixed cost
  double reduce_us_per_byte = 0;  // of every input but the first
  double copy_us_per_byte = 0;    // of what is stored into a buffer of the rank's own
  // What a core moves itself, as over shared memory: what it reads from a link or a window, and
  // what it writes into one. 0 where a NIC does it.
  double link_read_us_per_byte = 0;
  double link_write_us_per_byte = 0;
  // The lanes of a rank take turns on one core (the host's executor); false: each has its own
  // (a block of a kernel).
  bool one_core = true;
  // What goes to all ranks at once is stored once (a cast link of shared memory); false: once for
  // each reader.
  bool casts_stored_once = false;
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int ranks() const = 0;
  virtual const std::vector<Resource>& resources() const = 0;
  // from != to.
  virtual Route route(int from, int to) const = 0;
  virtual const CoreCosts& core() const = 0;
  // Where a rank is, for timelines: "machine 3".
  virtual std::string place(int rank) const { return "rank " + std::to_string(rank); }
};

// What one kind of connection costs: within a machine, or between machines.
struct Hop {
  double latency_us = 0;
  double overhead_us = 0;  // of a core, at either end of a message
  double gap_us = 0;       // a message's least time at a port
  double gb_s = 0;         // of a port in one direction; 0: without a limit
  double stream_gb_s = 0;  // the most that one message reaches; 0: what the port has
  std::uint64_t handshake_bytes = ~std::uint64_t{0};
  double handshake_us = 0;
};

// Machines of equal ranks. Inside of one, each rank has a port out and a port in (`local`), and if
// `memory_gb_s` is given, all messages share the machine's memory. Between machines, each has
// `nics` ports; rank i of a machine uses NIC i * nics / per_machine. Machines hang at leaf
// switches in groups; a leaf's uplinks carry 1/oversubscription of what its machines' NICs do.
struct MachinesOptions {
  int machines = 2;
  int per_machine = 1;
  int nics = 1;
  Hop local;
  Hop network;
  double memory_gb_s = 0;
  int leaf_machines = 0;        // at a leaf switch; 0: one switch for all
  double oversubscription = 1;  // of a leaf's uplinks
  double spine_us = 0;          // more latency between leaves
  CoreCosts core;
};

class Machines final : public Fabric {
 public:
  explicit Machines(const MachinesOptions& options);
  int ranks() const override { return options_.machines * options_.per_machine; }
  const std::vector<Resource>& resources() const override { return resources_; }
  Route route(int from, int to) const override;
  const CoreCosts& core() const override { return options_.core; }
  std::string place(int rank) const override {
    return "machine " + std::to_string(rank / options_.per_machine);
  }

 private:
  MachinesOptions options_;
  std::vector<Resource> resources_;
  // Where each kind of resource begins.
  std::int32_t out_ = 0, in_ = 0, memory_ = 0, nic_out_ = 0, nic_in_ = 0, up_ = 0, down_ = 0;
};

}  // namespace treering::sim
