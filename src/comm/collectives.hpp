// The operations of the API: arguments are checked here and become a Request.
//
// Nothing is touched when a check fails. The algorithms that then run are in algos/ (ring.hpp,
// tree.hpp, direct.hpp, ...; the list is algos/registry.cpp), the rules that choose among them in
// tuner/choice.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/request.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::collectives {

// What the calls have in common. stream: empty blocks. In a group (comm/group.hpp) the request is
// kept for its end.
struct Context {
  Communicator& comm;
  Type type;
  std::shared_ptr<Stream> stream;
};

Status all_reduce(const Context& c, const void* in, void* out, std::uint64_t count,
                  const OpSpec& op);
Status reduce(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op,
              int root);
Status broadcast(const Context& c, const void* in, void* out, std::uint64_t count, int root);
Status all_gather(const Context& c, const void* in, void* out, std::uint64_t count);
Status reduce_scatter(const Context& c, const void* in, void* out, std::uint64_t count,
                      const OpSpec& op);
Status gather(const Context& c, const void* in, void* out, std::uint64_t count, int root);
Status scatter(const Context& c, const void* in, void* out, std::uint64_t count, int root);
Status all_to_all(const Context& c, const void* in, void* out, std::uint64_t count);
Status barrier(const Context& c);
Status scan(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op);
Status exscan(const Context& c, const void* in, void* out, std::uint64_t count, const OpSpec& op);
Status send(const Context& c, const void* in, std::uint64_t count, int peer);
Status recv(const Context& c, void* out, std::uint64_t count, int peer);

Status all_gather_v(const Context& c, const void* in, void* out, const std::uint64_t* counts,
                    const std::uint64_t* displs);
Status reduce_scatter_v(const Context& c, const void* in, void* out, const std::uint64_t* counts,
                        const OpSpec& op);
Status gather_v(const Context& c, const void* in, std::uint64_t count, void* out,
                const std::uint64_t* counts, const std::uint64_t* displs, int root);
Status scatter_v(const Context& c, const void* in, const std::uint64_t* counts,
                 const std::uint64_t* displs, void* out, std::uint64_t count, int root);
Status all_to_all_v(const Context& c, const void* in, const std::uint64_t* sendcounts,
                    const std::uint64_t* sdispls, void* out, const std::uint64_t* recvcounts,
                    const std::uint64_t* rdispls);

// Unchecked requests, for the library's own exchanges.
Request send_request(const void* in, std::uint64_t count, Type type, int peer);
Request recv_request(void* out, std::uint64_t count, Type type, int peer);

}  // namespace treering::collectives
