// TracePrims: the recording backend of the verbs. Running an algorithm template over it yields the
// schedule of one rank. Host only.
#pragma once

#include <vector>

#include "algos/prims.hpp"
#include "algos/schedule.hpp"

namespace treering::algos {

class TracePrims : public Verbs<TracePrims> {
 public:
  // Sets of links; order as listed by the algorithm, inputs are sorted by source rank in step().
  struct From {
    std::vector<Operand> links;
    From operator|(const From& more) const { return {both(links, more.links)}; }
  };
  struct To {
    std::vector<Operand> links;
    To operator|(const To& more) const { return {both(links, more.links)}; }
  };

  // hosts: only for algorithms that need them; what it points to must live as long as this.
  TracePrims(int rank, int size, int root, const Hosts& hosts = {});

  int rank() const { return schedule_.rank; }
  int size() const { return schedule_.size; }
  int root() const { return root_; }
  const Hosts& hosts() const { return hosts_; }
  // The recorder runs every lane, one after the other.
  bool lane(int i);

  From nobody() const { return {}; }
  From from(int q, int channel = 0) const;
  From from(const Peers& peers, int channel = 0) const;
  From from_ranks(int first, int last) const;
  From from_each() const { return from_ranks(0, size()); }
  From from_cast(int q) const;
  From from_all_casts() const;
  From from_host(int channel = 0) const;
  From peek(int q, int channel = 0) const;

  To nowhere() const { return {}; }
  To to(int q, int channel = 0) const;
  To to(const Peers& peers, int channel = 0) const;
  To to_ranks(int first, int last) const;
  To to_each() const { return to_ranks(0, size()); }
  To to_host(int channel = 0) const;
  To to_all() const;

  void step(Verb verb, const From& from, Chunk local, Chunk dst, const To& to, Last last);

  void publish();
  void await_all();
  void reduce_from_all(int chunk, Last last);
  void reduce_store_all(int chunk, Last last);
  void copy_from(int q, int chunk) { copy_from(q, in(chunk), out(chunk)); }
  void copy_from(int q, Chunk src, Chunk dst);
  void copy_to(int q, int chunk);

  Schedule take() && { return std::move(schedule_); }

 private:
  static std::vector<Operand> both(std::vector<Operand> a, const std::vector<Operand>& b);
  Operand pair(int src, int dst, int channel) const;
  Operand cast(int src) const;
  void add(Verb verb, Last last, const std::vector<Operand>& inputs,
           const std::vector<Operand>& outputs);

  Schedule schedule_;
  int root_ = 0;
  Hosts hosts_;
  int lane_ = 0;
};

}  // namespace treering::algos
