// Partition: which elements of a buffer a chunk number means, for one call.
//
// A schedule names chunks; a call brings a partition for its send buffer and one for its receive
// buffer, so one schedule serves every count and the v-variants too. All numbers are in elements,
// 64 bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/macros.hpp"

namespace treering {

class Partition {
 public:
  Partition() = default;

  // `total` elements cut into `chunks` parts; every boundary is a multiple of `granule` elements,
  // so that parts start on cache lines when the buffer does. The last parts may be short or empty.
  TR_HD static Partition cut(std::uint64_t total, int chunks, std::uint64_t granule) {
    Partition p;
    const std::uint64_t n = static_cast<std::uint64_t>(chunks);
    std::uint64_t each = total / n + (total % n != 0);
    if (each > granule) each = (each - 1) / granule * granule + granule;
    p.chunk_elems_ = each;
    p.total_ = total;
    return p;
  }
  // Chunk c lies at c * count.
  TR_HD static Partition equal(std::uint64_t count, int chunks) {
    Partition p;
    p.chunk_elems_ = count;
    p.total_ = count * static_cast<std::uint64_t>(chunks);
    return p;
  }
  // The buffer holds a single chunk, whichever number it has.
  TR_HD static Partition alone(std::uint64_t count) {
    Partition p;
    p.chunk_elems_ = p.total_ = count;
    p.alone_ = true;
    return p;
  }
  // counts[c] elements at displs[c]; both arrays outlive the partition.
  TR_HD static Partition varying(const std::uint64_t* counts, const std::uint64_t* displs) {
    Partition p;
    p.counts_ = counts;
    p.displs_ = displs;
    return p;
  }
  // The buffer holds a single chunk of counts[c] elements.
  TR_HD static Partition alone_varying(const std::uint64_t* counts) {
    Partition p;
    p.counts_ = counts;
    p.alone_ = true;
    return p;
  }

  TR_HD std::uint64_t offset(int chunk) const {
    if (alone_) return 0;
    if (displs_ != nullptr) return displs_[chunk];
    return std::min(static_cast<std::uint64_t>(chunk) * chunk_elems_, total_);
  }
  TR_HD std::uint64_t elems(int chunk) const {
    if (counts_ != nullptr) return counts_[chunk];
    if (alone_) return total_;
    const std::uint64_t begin = std::min(static_cast<std::uint64_t>(chunk) * chunk_elems_, total_);
    return std::min(chunk_elems_, total_ - begin);
  }
  // The same partition when its arrays, which lie behind `from`, are copied to `to`.
  TR_HD Partition rebased(const std::uint64_t* from, const std::uint64_t* to) const {
    Partition p = *this;
    if (counts_ != nullptr) p.counts_ = to + (counts_ - from);
    if (displs_ != nullptr) p.displs_ = to + (displs_ - from);
    return p;
  }

 private:
  const std::uint64_t* counts_ = nullptr;
  const std::uint64_t* displs_ = nullptr;
  std::uint64_t chunk_elems_ = 0;
  std::uint64_t total_ = 0;
  bool alone_ = false;
};

}  // namespace treering
