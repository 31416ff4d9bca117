// tr_stream_*, tr_event_*.
#include "api/shim.hpp"

using namespace treering;
using namespace treering::api;

namespace {

constexpr int kSpin = 100;  // polls of a waiter; the engines' own threads do the work

Status find_event(tr_event_t handle, std::shared_ptr<Event>* event) {
  *event = events().find(handle);
  if (*event == nullptr)
    return invalid_usage("the event is NULL, was destroyed, or the handle is garbage");
  return {};
}

// A stream's calls in an open group have not been issued: who waited for them would wait for
// nothing.
Status outside_group(const char* function) {
  if (in_user_operator()) {
    return invalid_usage("an operator (tr_op_create) must not call the library");
  }
  return in_group() ? invalid_usage(std::string(function) + " is not allowed inside a group")
                    : Status{};
}

Status find_real_stream(tr_stream_t handle, std::shared_ptr<Stream>* stream) {
  if (handle == nullptr) return invalid_argument("the stream is NULL");
  return find_stream(handle, stream);
}

Status not_cuda(const std::shared_ptr<Stream>& stream) {
  if (stream == nullptr || !stream->is_cuda()) return {};
  return invalid_usage("the stream is a CUDA stream: use CUDA's own events on it");
}

}  // namespace

tr_result_t tr_stream_create(tr_stream_t* stream) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("stream", stream));
    *stream = static_cast<tr_stream_t>(streams().add(std::make_shared<Stream>()));
    return {};
  });
}

tr_result_t tr_stream_from_cuda(tr_stream_t* stream, void* cuda_stream) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("stream", stream));
    // NULL is CUDA's default stream, and as good as any.
    *stream = static_cast<tr_stream_t>(streams().add(std::make_shared<Stream>(cuda_stream)));
    return {};
  });
}

tr_result_t tr_stream_synchronize(tr_stream_t stream) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(outside_group("tr_stream_synchronize"));
    std::shared_ptr<Stream> s;
    TR_RETURN_IF_ERROR(find_stream(stream, &s));
    return s == nullptr ? Status{} : s->synchronize(kSpin);
  });
}

tr_result_t tr_stream_query(tr_stream_t stream, int* done) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("done", done));
    std::shared_ptr<Stream> s;
    TR_RETURN_IF_ERROR(find_stream(stream, &s));
    *done = s == nullptr || s->query();
    return {};
  });
}

tr_result_t tr_stream_destroy(tr_stream_t stream) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(outside_group("tr_stream_destroy"));
    std::shared_ptr<Stream> s;
    TR_RETURN_IF_ERROR(find_real_stream(stream, &s));
    const Status status = s->synchronize(kSpin);
    (void)streams().remove(stream);
    return status;
  });
}

tr_result_t tr_event_create(tr_event_t* event) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("event", event));
    *event = static_cast<tr_event_t>(events().add(std::make_shared<Event>()));
    return {};
  });
}

tr_result_t tr_event_record(tr_event_t event, tr_stream_t stream) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(outside_group("tr_event_record"));
    std::shared_ptr<Event> e;
    std::shared_ptr<Stream> s;
    TR_RETURN_IF_ERROR(find_event(event, &e));
    TR_RETURN_IF_ERROR(find_stream(stream, &s));
    TR_RETURN_IF_ERROR(not_cuda(s));
    e->record(s.get());
    return {};
  });
}

tr_result_t tr_event_query(tr_event_t event, int* done) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("done", done));
    std::shared_ptr<Event> e;
    TR_RETURN_IF_ERROR(find_event(event, &e));
    *done = e->query();
    return {};
  });
}

tr_result_t tr_event_synchronize(tr_event_t event) {
  return guarded([&]() -> Status {
    std::shared_ptr<Event> e;
    TR_RETURN_IF_ERROR(find_event(event, &e));
    e->synchronize(kSpin);
    return {};
  });
}

tr_result_t tr_stream_wait_event(tr_stream_t stream, tr_event_t event) {
  return guarded([&]() -> Status {
    std::shared_ptr<Event> e;
    std::shared_ptr<Stream> s;
    TR_RETURN_IF_ERROR(find_event(event, &e));
    TR_RETURN_IF_ERROR(find_real_stream(stream, &s));
    TR_RETURN_IF_ERROR(not_cuda(s));
    s->wait_for(e->tickets());
    return {};
  });
}

tr_result_t tr_event_destroy(tr_event_t event) {
  return guarded([&]() -> Status {
    if (events().remove(event) != nullptr) return {};
    return invalid_usage("the event is NULL, was destroyed, or the handle is garbage");
  });
}
