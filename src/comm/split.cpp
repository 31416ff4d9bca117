// Communicators from communicators: what ranks agree on over links that exist already.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/collectives.hpp"
#include "comm/communicator.hpp"

namespace treering {

SubsetRendezvous::SubsetRendezvous(Communicator& parent, std::vector<int> members,
                                   const char* part_of)
    : parent_(parent), members_(std::move(members)), part_of_(part_of) {
  const auto it = std::find(members_.begin(), members_.end(), parent_.rank());
  rank_ = static_cast<int>(it - members_.begin());
  std::string name = std::string(part_of) + " " + std::to_string(parent_.splits());
  for (int member : members_) name += " " + std::to_string(member);
  link_key_ = derive_secret(parent_.link_key(), name);
}

// Lengths first, then the blobs, each as one group of sends and receives.
Result<std::vector<std::string>> SubsetRendezvous::all_gather(const std::string& blob) {
  const int n = size();
  std::vector<std::uint64_t> lengths(n, blob.size());
  std::vector<std::string> blobs(n);
  for (const bool lengths_only : {true, false}) {
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (int i = 0; i < n; ++i) {
      if (!lengths_only) blobs[i].resize(lengths[i]);
      if (i == rank_) continue;
      const void* src = lengths_only ? static_cast<const void*>(&lengths[rank_]) : blob.data();
      void* dst = lengths_only ? static_cast<void*>(&lengths[i]) : blobs[i].data();
      const std::uint64_t out_bytes = lengths_only ? sizeof(std::uint64_t) : blob.size();
      const std::uint64_t in_bytes = lengths_only ? sizeof(std::uint64_t) : lengths[i];
      Request send = collectives::send_request(src, out_bytes, Type::kUint8, members_[i]);
      Request recv = collectives::recv_request(dst, in_bytes, Type::kUint8, members_[i]);
      for (Request* r : {&send, &recv}) {
        Range range;
        r->call.part_of = part_of_;
        TR_ASSIGN_OR_RETURN(std::shared_ptr<Ticket> ticket, parent_.enqueue(*r, nullptr, range));
        tickets.push_back(std::move(ticket));
      }
    }
    for (const auto& ticket : tickets) TR_RETURN_IF_ERROR(parent_.engine().wait(*ticket));
  }
  blobs[rank_] = blob;
  return blobs;
}

// As tests may have set it, the host map of some of the ranks.
Config Communicator::config_of(const std::vector<int>& ranks) const {
  Config config = config_;
  if (config.test_hosts.empty()) return config;
  config.test_hosts.clear();
  for (const int r : ranks) {
    config.test_hosts +=
        (config.test_hosts.empty() ? "" : ",") + std::to_string(hosts_->view().host_of(r));
  }
  if (ranks.size() == 1) config.test_hosts.clear();
  return config;
}

Result<std::shared_ptr<Communicator>> Communicator::split(int color, int key) {
  const Range range(range_owner_, {.operation = "split"});
  ++splits_;
  std::vector<int> everyone(size_);
  for (int r = 0; r < size_; ++r) everyone[r] = r;
  struct Wish {
    int color, key;
  } mine{color, key};
  std::string blob(sizeof mine, '\0');
  std::memcpy(blob.data(), &mine, sizeof mine);
  SubsetRendezvous all(*this, everyone, "tr_comm_split");
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> wishes, all.all_gather(blob));
  if (color < 0) return std::shared_ptr<Communicator>();
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r = 0; r < size_; ++r) {
    Wish w;
    std::memcpy(&w, wishes[r].data(), sizeof w);
    if (w.color == color) members.emplace_back(w.key, r);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [k, r] : members) ranks.push_back(r);
  const Config config = config_of(ranks);
  SubsetRendezvous group(*this, std::move(ranks), "tr_comm_split");
  return create(group, config, family_);
}

}  // namespace treering
