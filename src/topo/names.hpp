// Enumerators by their names, for readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace treering::topo {

// The enumerator whose name this is; `last` is the highest.
template <class Enum>
std::optional<Enum> enum_of(std::string_view name, const char* (*name_of)(Enum), Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace treering::topo
