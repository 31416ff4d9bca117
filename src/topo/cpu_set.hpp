// CpuSet: the CPUs (hardware threads) of a NUMA node, cache or core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace treering::topo {

class CpuSet {
 public:
  // No machine has more; a file that names a higher number is wrong, and must not cost gigabytes.
  static constexpr int kMaxCpus = 16384;

  // "00ff00ff", "0000ffff,ffffffff" and hwloc's "0x000000ff,,0x1": 32 bits a word, highest first.
  static std::optional<CpuSet> from_mask(std::string_view text);
  // "0-23,48-71", "1-1,3-3".
  static std::optional<CpuSet> from_list(std::string_view text);

  bool add(int cpu);  // false beyond kMaxCpus
  void add(const CpuSet& other);
  bool has(int cpu) const;
  bool empty() const { return count() == 0; }
  int count() const;
  bool overlaps(const CpuSet& other) const;
  bool operator==(const CpuSet& other) const;
  std::vector<int> cpus() const;

  std::string to_list() const;  // "0-23,48-71"
  std::string to_mask() const;  // "0000ffff,ffffffff"

 private:
  std::vector<std::uint32_t> words_;  // lowest first, the last one not 0
};

}  // namespace treering::topo
