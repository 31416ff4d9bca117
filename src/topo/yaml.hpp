// The part of YAML that descriptions of clusters use: block and flow maps and sequences, plain and
// quoted scalars, comments. Anchors, tags and block scalars are refused by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.hpp"

namespace treering::topo {

struct Yaml {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;
  std::vector<Yaml> items;                           // of a sequence
  std::vector<std::pair<std::string, Yaml>> fields;  // of a map, in order

  const Yaml* find(std::string_view key) const;  // nullptr: not there, or no map
  std::string text(std::string_view key) const;  // of a scalar field; empty: not there
  // The scalars of a field that is a sequence of them, or one alone.
  std::vector<std::string> texts(std::string_view key) const;
};

// An error names the line.
Result<Yaml> parse_yaml(std::string_view text);

}  // namespace treering::topo
