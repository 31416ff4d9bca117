// One cell of the matrix: a collective, an algorithm, a count, a type, an operator, buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "treering/treering.h"

#include "algos/oracle.hpp"
#include "algos/registry.hpp"
#include "core/types.hpp"

namespace treering::test {

// The operators that a cell rotates through. kCompose: a user's operator that does not commute.
enum class CellOp { kSum, kProd, kMin, kMax, kAvg, kPremulSum, kCompose };

struct Cell {
  const algos::Algorithm* algorithm = nullptr;
  const HostMap* hosts = nullptr;  // which ranks share a host (TR_TEST_HOSTS); nullptr: all
  bool uneven = false;             // the v-variant; count is then the largest part
  std::uint64_t count = 0;
  Type type = Type::kFloat32;
  CellOp op = CellOp::kSum;
  int root = 0;
  bool in_place = false;
  int shift_in = 0;  // elements past a 64-byte boundary
  int shift_out = 0;
  bool skewed = false;    // every rank's buffers begin some more elements past it
  bool specials = false;  // NaN, infinities, -0 among the inputs
  std::uint64_t seed = 0;
};
std::string to_string(const Cell& cell);

// Programs are recorded and their oracles made once per (algorithm, size, root), for cells of the
// same hosts.
class Oracles {
 public:
  const algos::Oracle* find(const Cell& cell, int size, std::string* error);

 private:
  struct Entry {
    const algos::Algorithm* algorithm;
    int size, root;
    std::unique_ptr<algos::Oracle> oracle;
  };
  std::vector<Entry> entries_;
};

// Memory for a buffer of a cell: host_memory.cpp, or device memory in cuda_memory.cpp.
struct GiveBack {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const;
};
using Memory = std::unique_ptr<std::byte[], GiveBack>;
Memory take_memory(std::size_t bytes);
// From the host's memory to that of a buffer and back, done when they return.
void put(std::byte* memory, const std::byte* host, std::size_t bytes);
void get(std::byte* host, const std::byte* memory, std::size_t bytes);
// Can the library run the cell on buffers in such memory?
bool serves_memory(const Cell& cell);

// Memory that can be registered, and back again. Any thread.
std::byte* take_shareable(std::size_t bytes);
void give_back_shareable(std::byte* memory, std::size_t bytes);

// Two windows of a communicator, for the buffers of cells whose algorithms need them. Which of the
// two a buffer lies in, and where, differs from rank to rank.
class Arena {
 public:
  // Collective. What was wrong is error().
  Arena(tr_comm_t comm, int rank);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  const std::string& error() const { return error_; }
  // For the next cell: all of it is free.
  void reset();
  std::byte* take(std::size_t bytes);

 private:
  tr_comm_t comm_;
  int rank_;
  std::byte* memory_;
  tr_window_t windows_[2] = {};
  std::size_t used_[2] = {};  // bytes of each
  int turn_ = 0;
  std::string error_;
};

// A cell on this rank, in steps: its buffers, with the inputs; the call; the comparison of every
// byte of both buffers, guards included, with the oracle.
class RunningCell {
 public:
  // arena: where the buffers lie; nullptr: in memory of their own.
  static std::unique_ptr<RunningCell> make(const Cell& cell, int rank, int size, Oracles& oracles,
                                           Arena* arena);
  virtual ~RunningCell() = default;
  // What went wrong; empty if nothing. On a stream, or in a group, the call may still be running.
  virtual std::string call(tr_comm_t comm, tr_stream_t stream) = 0;
  // When it has ended: what is wrong.
  virtual std::string wrong() = 0;
};

// All of them, one after another. The arena is reset before.
std::string run_cell(const Cell& cell, tr_comm_t comm, int rank, int size, Oracles& oracles,
                     Arena* arena);

}  // namespace treering::test
