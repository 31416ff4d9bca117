// tr_all_reduce and all other operations: handles become objects, then comm/collectives.cpp takes
// over.
#include "comm/collectives.hpp"

#include "api/shim.hpp"

using namespace treering;
using namespace treering::api;

namespace {

// Finds what all operations name: communicator, type, stream; then runs body(context).
template <class Body>
tr_result_t on_comm(tr_comm_t comm, tr_type_t type, tr_stream_t stream, Body&& body) {
  return guarded(
      [&]() -> Status {
        CommCall call;
        TR_RETURN_IF_ERROR(call.enter(comm));
        TR_RETURN_IF_ERROR(check_type(type));
        std::shared_ptr<Stream> s;
        TR_RETURN_IF_ERROR(find_stream(stream, &s));
        return body(collectives::Context{call.comm(), static_cast<Type>(type), std::move(s)});
      },
      in_group());
}

template <class Body>
tr_result_t reducing(tr_comm_t comm, tr_type_t type, tr_op_t op, tr_stream_t stream, Body&& body) {
  return on_comm(comm, type, stream, [&](const collectives::Context& c) -> Status {
    OpSpec spec;
    TR_RETURN_IF_ERROR(find_op(op, &spec));
    return body(c, spec);
  });
}

using Context = collectives::Context;

}  // namespace

tr_result_t tr_all_reduce(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                          tr_op_t op, tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::all_reduce(c, sendbuf, recvbuf, count, spec);
  });
}

tr_result_t tr_reduce(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                      tr_op_t op, int root, tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::reduce(c, sendbuf, recvbuf, count, spec, root);
  });
}

tr_result_t tr_broadcast(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                         int root, tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::broadcast(c, sendbuf, recvbuf, count, root);
  });
}

tr_result_t tr_all_gather(const void* sendbuf, void* recvbuf, uint64_t sendcount, tr_type_t type,
                          tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::all_gather(c, sendbuf, recvbuf, sendcount);
  });
}

tr_result_t tr_reduce_scatter(const void* sendbuf, void* recvbuf, uint64_t recvcount,
                              tr_type_t type, tr_op_t op, tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::reduce_scatter(c, sendbuf, recvbuf, recvcount, spec);
  });
}

tr_result_t tr_gather(const void* sendbuf, void* recvbuf, uint64_t sendcount, tr_type_t type,
                      int root, tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::gather(c, sendbuf, recvbuf, sendcount, root);
  });
}

tr_result_t tr_scatter(const void* sendbuf, void* recvbuf, uint64_t recvcount, tr_type_t type,
                       int root, tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::scatter(c, sendbuf, recvbuf, recvcount, root);
  });
}

tr_result_t tr_all_to_all(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                          tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::all_to_all(c, sendbuf, recvbuf, count);
  });
}

tr_result_t tr_all_gather_v(const void* sendbuf, void* recvbuf, const uint64_t* recvcounts,
                            const uint64_t* displs, tr_type_t type, tr_comm_t comm,
                            tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::all_gather_v(c, sendbuf, recvbuf, recvcounts, displs);
  });
}

tr_result_t tr_reduce_scatter_v(const void* sendbuf, void* recvbuf, const uint64_t* recvcounts,
                                tr_type_t type, tr_op_t op, tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::reduce_scatter_v(c, sendbuf, recvbuf, recvcounts, spec);
  });
}

tr_result_t tr_gather_v(const void* sendbuf, uint64_t sendcount, void* recvbuf,
                        const uint64_t* recvcounts, const uint64_t* displs, tr_type_t type,
                        int root, tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::gather_v(c, sendbuf, sendcount, recvbuf, recvcounts, displs, root);
  });
}

tr_result_t tr_scatter_v(const void* sendbuf, const uint64_t* sendcounts, const uint64_t* displs,
                         void* recvbuf, uint64_t recvcount, tr_type_t type, int root,
                         tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::scatter_v(c, sendbuf, sendcounts, displs, recvbuf, recvcount, root);
  });
}

tr_result_t tr_all_to_all_v(const void* sendbuf, const uint64_t* sendcounts,
                            const uint64_t* sdispls, void* recvbuf, const uint64_t* recvcounts,
                            const uint64_t* rdispls, tr_type_t type, tr_comm_t comm,
                            tr_stream_t stream) {
  return on_comm(comm, type, stream, [&](const Context& c) {
    return collectives::all_to_all_v(c, sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls);
  });
}

tr_result_t tr_barrier(tr_comm_t comm, tr_stream_t stream) {
  return on_comm(comm, TR_UINT8, stream, [&](const Context& c) { return collectives::barrier(c); });
}

tr_result_t tr_scan(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type, tr_op_t op,
                    tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::scan(c, sendbuf, recvbuf, count, spec);
  });
}

tr_result_t tr_exscan(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                      tr_op_t op, tr_comm_t comm, tr_stream_t stream) {
  return reducing(comm, type, op, stream, [&](const Context& c, const OpSpec& spec) {
    return collectives::exscan(c, sendbuf, recvbuf, count, spec);
  });
}

tr_result_t tr_send(const void* sendbuf, uint64_t count, tr_type_t type, int peer, tr_comm_t comm,
                    tr_stream_t stream) {
  return on_comm(comm, type, stream,
                 [&](const Context& c) { return collectives::send(c, sendbuf, count, peer); });
}

tr_result_t tr_recv(void* recvbuf, uint64_t count, tr_type_t type, int peer, tr_comm_t comm,
                    tr_stream_t stream) {
  return on_comm(comm, type, stream,
                 [&](const Context& c) { return collectives::recv(c, recvbuf, count, peer); });
}
