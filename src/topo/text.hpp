// Small parsers that the readers share. None of them accepts trailing garbage.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

std::string_view trim(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text);
std::vector<std::string_view> split_words(std::string_view text);
bool starts_with(std::string_view text, std::string_view start);

std::optional<long long> parse_int(std::string_view text);  // "12", "0x1f"
// Of a device, NUMA node or the like: kNone for what is no number from 0 to a million.
int parse_index(std::string_view text);
std::optional<double> parse_number(std::string_view text);  // "2.5", finite

// "3B:0.0", "00000000:3B:00.0" -> "0000:3b:00.0"; empty if it is no PCI address.
std::string canonical_bus_id(std::string_view text);
// Addresses that tools invent for what has none: domain ffff and more, bus ff.
bool is_invented_bus_id(std::string_view bus_id);

// The speed of a PCIe lane in GT/s, from "16.0 GT/s PCIe", "8 GT/s", "16000 MT/s", "16".
struct LaneSpeed {
  double gt_s = 0;          // 0: unreadable
  bool wrong_unit = false;  // readable only as another unit than is written
};
LaneSpeed parse_lane_speed(std::string_view text);

// The speed of a NIC's port, given in Mbit/s by convention.
struct PortSpeed {
  double gbit_s = 0;
  bool wrong_unit = false;
};
PortSpeed parse_port_speed(double value_mbit_s);

// Interfaces that are software: bridges, tunnels, virtual pairs.
bool is_virtual_interface(std::string_view name);

const char* verb(std::size_t count, const char* one, const char* many);        // is, are
std::string join_names(const Graph& graph, const std::vector<NodeId>& nodes);  // "GPU0, GPU1"
std::string format_gb_s(double gb_s);  // "12", "2.5", "0.12": three digits

}  // namespace treering::topo
