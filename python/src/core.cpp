// treering._core: the C API for Python, on plain addresses. What an array or a tensor is, and
// whether it fits, is decided in Python (treering/arrays.py) before anything here is called.
//
// Every function that can wait releases the GIL. A failed call raises treering.TreeringError with
// the library's words.
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "treering/treering.h"

namespace nb = nanobind;

namespace {

class Failure : public std::exception {
 public:
  explicit Failure(tr_result_t code) : code_(code), text_(tr_get_last_error()) {}
  Failure(tr_result_t code, std::string text) : code_(code), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  tr_result_t code() const { return code_; }

 private:
  tr_result_t code_;
  std::string text_;
};

// Calls the library without the GIL; the last error is of this thread, so it is read before
// anything else runs.
template <typename Call>
void run(const Call& call) {
  std::optional<Failure> failure;
  {
    const nb::gil_scoped_release unlocked;
    const tr_result_t result = call();
    if (result != TR_SUCCESS) failure.emplace(result);
  }
  if (failure) throw *failure;
}

void* at(std::uintptr_t address) {
  return reinterpret_cast<void*>(
      address);  // NOLINT(performance-no-int-to-ptr): Python's addresses are numbers
}

// ---- Work
// ------------------------------------------------------------------------------------------------------

// Streams are made once and used again: a call in flight has one for itself, so waiting for it
// waits for nothing else and the error is its own. (Message order on links is the order of issue,
// not of streams.)
std::vector<tr_stream_t>& idle_streams() {
  static auto* streams = new std::vector<tr_stream_t>();  // guarded by the GIL
  return *streams;
}

// Calls in flight whose Work is gone: the buffers must outlive them.
struct Orphan {
  tr_stream_t stream;
  nb::object buffers;
};
std::vector<Orphan>& orphans() {
  static auto* list = new std::vector<Orphan>();  // guarded by the GIL
  return *list;
}

bool is_done(tr_stream_t stream) {
  int done = 0;
  return tr_stream_query(stream, &done) != TR_SUCCESS || done != 0;
}

void bury_orphans() {
  auto& list = orphans();
  for (std::size_t i = 0; i < list.size();) {
    if (!is_done(list[i].stream)) {
      ++i;
      continue;
    }
    (void)tr_stream_synchronize(list[i].stream);  // forgets the error, too: nobody asked for it
    idle_streams().push_back(list[i].stream);
    std::swap(list[i], list.back());
    list.pop_back();
  }
}

// One call in flight, or several that were issued together.
class Work {
 public:
  // buffers: what must not be freed before the calls are done.
  explicit Work(nb::object buffers) : buffers_(std::move(buffers)) {
    if (!orphans().empty()) bury_orphans();
    auto& idle = idle_streams();
    if (idle.empty()) {
      run([&] { return tr_stream_create(&stream_); });
    } else {
      stream_ = idle.back();
      idle.pop_back();
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    if (stream_ == nullptr) return;
    if (is_done(stream_)) {
      (void)tr_stream_synchronize(stream_);
      idle_streams().push_back(stream_);
    } else {
      orphans().push_back({stream_, std::move(buffers_)});
    }
  }

  tr_stream_t stream() const { return stream_; }

  bool done() const { return stream_ == nullptr || is_done(stream_); }

  // May be called by several threads; each gets the same answer.
  void wait() {
    if (stream_ != nullptr) {
      tr_result_t result = TR_SUCCESS;
      std::string text;
      const tr_stream_t stream = stream_;
      ++waiting_;
      {
        const nb::gil_scoped_release unlocked;
        result = tr_stream_synchronize(stream);
        if (result != TR_SUCCESS) text = tr_get_last_error();
      }
      --waiting_;
      if (result != TR_SUCCESS && !failure_) failure_.emplace(result, std::move(text));
      if (waiting_ == 0 && stream_ != nullptr) {
        idle_streams().push_back(stream_);
        stream_ = nullptr;
        buffers_.reset();
      }
    }
    if (failure_) throw *failure_;
  }

 private:
  tr_stream_t stream_ = nullptr;
  nb::object buffers_;
  int waiting_ = 0;
  std::optional<Failure> failure_;
};

tr_stream_t stream_of(const Work* work) { return work == nullptr ? nullptr : work->stream(); }

// ---- Communicator
// ------------------------------------------------------------------------------------------------

using Counts = std::vector<std::uint64_t>;
using Address = std::uintptr_t;

class Comm {
 public:
  explicit Comm(tr_comm_t comm) : comm_(comm) {}
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() {
    const nb::gil_scoped_release unlocked;
    if (comm_ != nullptr) (void)tr_comm_destroy(comm_);
  }

  tr_comm_t get() const {
    if (comm_ == nullptr) throw Failure(TR_INVALID_USAGE, "this communicator was closed");
    return comm_;
  }
  void close() {
    const tr_comm_t comm = std::exchange(comm_, nullptr);
    if (comm != nullptr) run([&] { return tr_comm_destroy(comm); });
  }

  int size() const {
    int size = 0;
    run([&] { return tr_comm_size(get(), &size); });
    return size;
  }
  int rank() const {
    int rank = 0;
    run([&] { return tr_comm_rank(get(), &rank); });
    return rank;
  }

 private:
  tr_comm_t comm_;
};

template <typename Init>
Comm* make_comm(const Init& init) {
  tr_comm_t comm = nullptr;
  run([&] { return init(&comm); });
  return comm == nullptr ? nullptr : new Comm(comm);
}

Comm* init_rank(int size, const nb::bytes& id, int rank) {
  tr_unique_id_t unique_id;
  if (id.size() != sizeof unique_id.bytes) {
    throw Failure(TR_INVALID_ARGUMENT, "a unique id has " + std::to_string(sizeof unique_id.bytes) +
                                           " bytes, not " + std::to_string(id.size()) +
                                           ": pass what treering.unique_id() gave");
  }
  std::memcpy(unique_id.bytes, id.c_str(), sizeof unique_id.bytes);
  return make_comm([&](tr_comm_t* comm) { return tr_comm_init_rank(comm, size, unique_id, rank); });
}

void check_counts(const Comm& comm, std::initializer_list<const Counts*> all) {
  const auto size = static_cast<std::size_t>(comm.size());
  for (const Counts* counts : all) {
    if (counts->size() == size) continue;
    throw Failure(TR_INVALID_ARGUMENT, std::to_string(counts->size()) +
                                           " counts or displacements for " + std::to_string(size) +
                                           " ranks: give one for each");
  }
}

// A collective of the shape (send, recv, count, type, operator and root where it has them,
// communicator, stream).
template <typename... Numbers>
using Collective = tr_result_t (*)(const void*, void*, std::uint64_t, tr_type_t, Numbers...,
                                   tr_comm_t, tr_stream_t);

template <typename... Numbers>
void def_collective(nb::class_<Comm>& comm, const char* name,
                    std::type_identity_t<Collective<Numbers...>> call) {
  comm.def(
      name,
      [call](Comm& c, Address send, Address recv, std::uint64_t count, int type, Numbers... numbers,
             Work* work) {
        const tr_comm_t handle = c.get();
        const tr_stream_t stream = stream_of(work);
        run([&] { return call(at(send), at(recv), count, type, numbers..., handle, stream); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(),
      (static_cast<void>(sizeof(Numbers)), nb::arg())..., nb::arg().none());
}

void bind_collectives(nb::class_<Comm>& comm) {
  def_collective<int>(comm, "all_reduce", tr_all_reduce);
  def_collective<int, int>(comm, "reduce", tr_reduce);
  def_collective<int>(comm, "broadcast", tr_broadcast);
  def_collective<>(comm, "all_gather", tr_all_gather);
  def_collective<int>(comm, "reduce_scatter", tr_reduce_scatter);
  def_collective<int>(comm, "gather", tr_gather);
  def_collective<int>(comm, "scatter", tr_scatter);
  def_collective<>(comm, "all_to_all", tr_all_to_all);
  def_collective<int>(comm, "scan", tr_scan);
  def_collective<int>(comm, "exscan", tr_exscan);
  comm.def(
      "barrier",
      [](Comm& c, Work* work) { run([&] { return tr_barrier(c.get(), stream_of(work)); }); },
      nb::arg().none());
  comm.def(
      "send",
      [](Comm& c, Address send, std::uint64_t count, int type, int peer, Work* work) {
        run([&] { return tr_send(at(send), count, type, peer, c.get(), stream_of(work)); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  comm.def(
      "recv",
      [](Comm& c, Address recv, std::uint64_t count, int type, int peer, Work* work) {
        run([&] { return tr_recv(at(recv), count, type, peer, c.get(), stream_of(work)); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
}

// Parts lie one after another: displacements are for other languages, Python has slices.
void bind_uneven(nb::class_<Comm>& comm) {
  comm.def(
      "all_gather_v",
      [](Comm& c, Address send, Address recv, const Counts& counts, int type, Work* work) {
        check_counts(c, {&counts});
        run([&] {
          return tr_all_gather_v(at(send), at(recv), counts.data(), nullptr, type, c.get(),
                                 stream_of(work));
        });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  comm.def(
      "reduce_scatter_v",
      [](Comm& c, Address send, Address recv, const Counts& counts, int type, int op, Work* work) {
        check_counts(c, {&counts});
        run([&] {
          return tr_reduce_scatter_v(at(send), at(recv), counts.data(), type, op, c.get(),
                                     stream_of(work));
        });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  comm.def(
      "gather_v",
      [](Comm& c, Address send, std::uint64_t count, Address recv, const Counts& counts, int type,
         int root, Work* work) {
        if (c.rank() == root) check_counts(c, {&counts});
        run([&] {
          return tr_gather_v(at(send), count, at(recv), counts.data(), nullptr, type, root, c.get(),
                             stream_of(work));
        });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  comm.def(
      "scatter_v",
      [](Comm& c, Address send, const Counts& counts, Address recv, std::uint64_t count, int type,
         int root, Work* work) {
        if (c.rank() == root) check_counts(c, {&counts});
        run([&] {
          return tr_scatter_v(at(send), counts.data(), nullptr, at(recv), count, type, root,
                              c.get(), stream_of(work));
        });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  comm.def(
      "all_to_all_v",
      [](Comm& c, Address send, const Counts& sendcounts, Address recv, const Counts& recvcounts,
         int type, Work* work) {
        check_counts(c, {&sendcounts, &recvcounts});
        run([&] {
          return tr_all_to_all_v(at(send), sendcounts.data(), nullptr, at(recv), recvcounts.data(),
                                 nullptr, type, c.get(), stream_of(work));
        });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
}

void bind_comm(nb::module_& m) {
  nb::class_<Comm> comm(m, "Comm", nb::is_weak_referenceable());
  comm.def_prop_ro("size", &Comm::size).def_prop_ro("rank", &Comm::rank).def("close", &Comm::close);
  comm.def("split", [](Comm& c, int color, int key) {
    return make_comm([&](tr_comm_t* made) { return tr_comm_split(c.get(), color, key, made); });
  });
  comm.def("abort", [](Comm& c) { run([&] { return tr_comm_abort(c.get()); }); });
  comm.def("explain", [](Comm& c) {
    const char* text = "";
    run([&] { return tr_comm_explain(c.get(), &text); });
    return std::string(text);
  });
  comm.def("set_option", [](Comm& c, int option, std::int64_t value) {
    run([&] { return tr_comm_set_option(c.get(), option, value); });
  });
  comm.def(
      "set_algorithm", [](Comm& c, const std::string& collective, const std::string& algorithm) {
        run([&] { return tr_comm_set_algorithm(c.get(), collective.c_str(), algorithm.c_str()); });
      });
  bind_collectives(comm);
  bind_uneven(comm);
  m.def("init_rank", &init_rank);
  m.def("init_env", [] { return make_comm(tr_comm_init_env); });
}

// ---- Operators that the C API leaves to its users
// ------------------------------------------------------------------

// Bitwise operators do not care where an element ends.
template <typename Op>
tr_op_t bitwise_op() {
  tr_op_t op = 0;
  const auto combine = [](void* acc, const void* in, size_t count, tr_type_t type, void*) {
    auto* a = static_cast<unsigned char*>(acc);
    const auto* b = static_cast<const unsigned char*>(in);
    const std::size_t bytes = count * tr_type_size(type);
    for (std::size_t i = 0; i < bytes; ++i) a[i] = static_cast<unsigned char>(Op()(a[i], b[i]));
  };
  run([&] { return tr_op_create(&op, combine, 1, nullptr); });
  return op;
}

tr_op_t premul_sum(double factor) {
  tr_op_t op = 0;
  run([&] { return tr_op_create_premul_sum(&op, factor); });
  return op;
}

// ---- What an array is
// ----------------------------------------------------------------------------------------------

// Of anything with the buffer protocol: (address, bytes, bytes of an element, format, read-only,
// contiguous).
nb::tuple buffer(const nb::object& object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_FULL_RO) != 0) nb::raise_python_error();
  nb::tuple result = nb::make_tuple(reinterpret_cast<Address>(view.buf), view.len, view.itemsize,
                                    view.format == nullptr ? "B" : view.format, view.readonly != 0,
                                    PyBuffer_IsContiguous(&view, 'C') != 0);
  PyBuffer_Release(&view);
  return result;
}

// Of anything with __dlpack__ in host memory: (address, elements, kind, bits, contiguous). kind:
// DLPack's type code.
nb::tuple dlpack(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
  bool contiguous = true;
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) contiguous = false;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  return nb::make_tuple(
      reinterpret_cast<Address>(array.data()), array.size(), static_cast<int>(array.dtype().code),
      static_cast<int>(array.dtype().bits) * array.dtype().lanes, contiguous || array.size() == 0);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(
      false);  // at exit, works in flight are left to the process's end on purpose
  nb::register_exception_translator([](const std::exception_ptr& raised, void*) {
    try {
      std::rethrow_exception(raised);
    } catch (const Failure& failure) {
      const nb::object type = nb::module_::import_("treering.errors").attr("TreeringError");
      const nb::object error = type(nb::str(failure.what()), static_cast<int>(failure.code()));
      PyErr_SetObject(type.ptr(), error.ptr());
    }
  });

  m.def("version", &tr_version);
  m.def("unique_id", [] {
    tr_unique_id_t id;
    run([&] { return tr_get_unique_id(&id); });
    return nb::bytes(id.bytes, sizeof id.bytes);
  });
  m.def("group_start", [] { run([] { return tr_group_start(); }); });
  m.def("group_end", [] { run([] { return tr_group_end(); }); });
  // A call that cannot succeed: an open group then issues nothing when it ends.
  m.def("group_poison", [] { (void)tr_barrier(nullptr, nullptr); });
  m.def("premul_sum", &premul_sum);
  m.def("destroy_op", [](tr_op_t op) { run([&] { return tr_op_destroy(op); }); });
  m.def("bitwise_and", &bitwise_op<std::bit_and<unsigned char>>);
  m.def("bitwise_or", &bitwise_op<std::bit_or<unsigned char>>);
  m.def("bitwise_xor", &bitwise_op<std::bit_xor<unsigned char>>);
  m.def("buffer", &buffer);
  m.def("dlpack", &dlpack);

  nb::class_<Work>(m, "Work", nb::is_weak_referenceable())
      .def(nb::init<nb::object>(), nb::arg("buffers").none())
      .def("wait", &Work::wait)
      .def("done", &Work::done);
  bind_comm(m);
}
