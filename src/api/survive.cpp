// tr_comm_shrink, tr_comm_grow: communicators of those who are left, and with those who come.
#include <algorithm>
#include <vector>

#include "api/made.hpp"
#include "api/shim.hpp"
#include "bootstrap/bootstrap.hpp"
#include "core/config.hpp"

using namespace treering;
using namespace treering::api;

namespace {

Status shrink(tr_comm_t comm, const std::vector<int>& without, int64_t timeout_ms,
              tr_comm_t* newcomm) {
  TR_RETURN_IF_ERROR(check_pointer("newcomm", newcomm));
  *newcomm = nullptr;
  if (in_group()) return invalid_usage("tr_comm_shrink is not allowed inside a group");
  CommCall call;
  TR_RETURN_IF_ERROR(call.enter(comm));
  return hand_out(call.comm().shrink(without, timeout_ms), newcomm);
}

}  // namespace

tr_result_t tr_comm_shrink(tr_comm_t comm, tr_comm_t* newcomm) {
  return guarded([&] { return shrink(comm, {}, 0, newcomm); });
}

tr_result_t tr_comm_shrink_without(tr_comm_t comm, const int* without, int count,
                                   int64_t timeout_ms, tr_comm_t* newcomm) {
  return guarded([&]() -> Status {
    if (count < 0 || count > kMaxRanks) {
      return invalid_argument("count is " + std::to_string(count) + "; it must be 0 to " +
                              std::to_string(kMaxRanks));
    }
    if (count > 0) TR_RETURN_IF_ERROR(check_pointer("without", without));
    return shrink(comm, std::vector<int>(without, without + count), timeout_ms, newcomm);
  });
}

tr_result_t tr_comm_grow(tr_comm_t comm, int newsize, tr_unique_id_t id, tr_comm_t* newcomm) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("newcomm", newcomm));
    *newcomm = nullptr;
    if (in_group()) return invalid_usage("tr_comm_grow is not allowed inside a group");
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    Communicator& old = call.comm();
    if (newsize <= old.size() || newsize > kMaxRanks) {
      return invalid_argument("newsize is " + std::to_string(newsize) + "; it must be more than " +
                              std::to_string(old.size()) +
                              ", which the communicator has, and at "
                              "most " +
                              std::to_string(kMaxRanks));
    }
    TR_RETURN_IF_ERROR(old.async_error());
    IdBytes bytes;
    std::copy(std::begin(id.bytes), std::end(id.bytes), bytes.begin());
    TR_ASSIGN_OR_RETURN(const Config config, load_config());
    TR_ASSIGN_OR_RETURN(const std::unique_ptr<Rendezvous> rendezvous,
                        join_root(bytes, newsize, old.rank(), config));
    return hand_out(Communicator::create(*rendezvous, config), newcomm);
  });
}
