// Races: unordered access to one chunk of one rank's buffers, by vector clocks.
//
// Two steps are ordered if one comes before the other in a lane, or if messages lead from one to
// the other. A freed slot is not counted as order, so the verdict does not depend on the number of
// slots; nor is the order of rounds, so it holds for an executor that lets rounds overtake each
// other (different rounds and different slices are different bytes; see algos/replay.hpp on why one
// slice stands for all).
//
// The caller takes part too: it fills the buffers of its rank before the first step of the rank,
// and it may use or free them after the last step of all lanes of the rank.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "algos/network.hpp"

namespace treering::algos {

class Races : public Network::Observer {
 public:
  explicit Races(const Network& network);

  Status on_step(const Network::Event& event) override;
  // After the run. Fails if a rank's caller may come back while another rank still uses its
  // buffers, or, for a barrier, before every other rank has come.
  Status finish() const;

 private:
  // Sorted (process, time) pairs: the steps 1..time of that process come before. The caller of rank
  // r is process callers_ + r; its call is its step 1.
  using Clock = std::vector<std::pair<int, int>>;
  struct Access {
    int process = -1;
    int time = 0;
    const Step* step = nullptr;
  };
  struct Cell {
    Access write;
    std::vector<Access> reads;  // since that write
  };
  struct Touch {
    int rank;
    bool in;
    int chunk;
  };

  static int time_of(const Clock& clock, int process);
  static void join(Clock& clock, const Clock& other);
  Touch touched(int rank, const Operand& o) const;
  Cell& cell(const Touch& touch);
  Status unordered(const Touch& touch, const Access& other, bool written) const;
  Status touch(const Network::Event& event, const Operand& o, bool write);

  const Network& network_;
  const Program& program_;
  const int callers_;
  std::vector<Clock> clocks_;                                        // per process
  std::vector<std::vector<std::shared_ptr<const Clock>>> messages_;  // per link, by number
  std::vector<Cell> cells_;
};

}  // namespace treering::algos
