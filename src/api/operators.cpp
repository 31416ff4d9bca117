// tr_op_*, tr_mem_*, tr_comm_register.
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "api/shim.hpp"
#include "transports/memory.hpp"

using namespace treering;
using namespace treering::api;

namespace {

struct OpTable {
  std::mutex mutex;
  std::unordered_map<tr_op_t, OpSpec> ops;
  tr_op_t next = 1000;  // never reused, so that a destroyed operator is recognised
};

OpTable& op_table() {
  static auto* const table = new OpTable;
  return *table;
}

tr_op_t add_op(OpSpec spec) {
  OpTable& t = op_table();
  std::lock_guard lock(t.mutex);
  t.ops.emplace(t.next, std::move(spec));
  return t.next++;
}

// A window's handle names its communicator's window index; the communicator is passed beside it.
struct WindowHandle {
  tr_comm_t comm;
  int index;
};

HandleTable<WindowHandle>& windows() {
  static auto* const table = new HandleTable<WindowHandle>;
  return *table;
}

}  // namespace

namespace treering::api {

Status find_op(tr_op_t op, OpSpec* spec) {
  switch (op) {
    case TR_SUM:
      spec->op = RedOp::kSum;
      return {};
    case TR_PROD:
      spec->op = RedOp::kProd;
      return {};
    case TR_MIN:
      spec->op = RedOp::kMin;
      return {};
    case TR_MAX:
      spec->op = RedOp::kMax;
      return {};
    case TR_AVG:
      spec->op = RedOp::kSum;
      spec->average = true;
      return {};
    default:
      break;
  }
  OpTable& t = op_table();
  std::lock_guard lock(t.mutex);
  const auto it = t.ops.find(op);
  if (it == t.ops.end()) {
    return invalid_argument("unknown or destroyed operator " + std::to_string(op) +
                            "; see tr_op_t");
  }
  *spec = it->second;
  return {};
}

}  // namespace treering::api

tr_result_t tr_op_create_premul_sum(tr_op_t* op, double factor) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("op", op));
    if (std::isnan(factor)) return invalid_argument("the factor is not a number");
    OpSpec spec;
    spec.op = RedOp::kSum;
    spec.scaled = true;
    spec.factor = factor;
    *op = add_op(std::move(spec));
    return {};
  });
}

tr_result_t tr_op_create(tr_op_t* op, tr_combine_fn combine, int commutative, void* user) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("op", op));
    if (combine == nullptr) return invalid_argument("combine is NULL");
    // The engine knows types by number only; the enums are the same numbers (shim.cpp).
    struct Adapter : UserOp {
      tr_combine_fn fn;
      void* arg;
    };
    auto adapter = std::make_shared<Adapter>();
    adapter->fn = combine;
    adapter->arg = user;
    adapter->user = adapter.get();
    adapter->combine = [](void* acc, const void* in, std::size_t count, int type, void* self) {
      const auto* a = static_cast<const Adapter*>(self);
      a->fn(acc, in, count, static_cast<tr_type_t>(type), a->arg);
    };
    OpSpec spec;
    spec.op = RedOp::kUser;
    spec.user = std::move(adapter);
    spec.commutative = commutative != 0;
    *op = add_op(std::move(spec));
    return {};
  });
}

tr_result_t tr_op_destroy(tr_op_t op) {
  return guarded([&]() -> Status {
    if (op >= 0 && op < TR_NUM_BUILTIN_OPS)
      return invalid_argument("a built-in operator cannot be destroyed");
    OpTable& t = op_table();
    std::lock_guard lock(t.mutex);
    if (t.ops.erase(op) == 1) return {};
    return invalid_usage("unknown or destroyed operator " + std::to_string(op));
  });
}

tr_result_t tr_mem_alloc(void** ptr, size_t bytes) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("ptr", ptr));
    *ptr = nullptr;
    TR_ASSIGN_OR_RETURN(*ptr, mem_alloc(bytes));
    return {};
  });
}

tr_result_t tr_mem_free(void* ptr) {
  return guarded([&] { return mem_free(ptr); });
}

tr_result_t tr_comm_register(tr_comm_t comm, void* ptr, size_t bytes, tr_window_t* window) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("window", window));
    *window = nullptr;
    if (in_group()) return invalid_usage("tr_comm_register is not allowed inside a group");
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    TR_ASSIGN_OR_RETURN(const int index, call.comm().register_window(ptr, bytes));
    *window = static_cast<tr_window_t>(
        windows().add(std::make_shared<WindowHandle>(WindowHandle{comm, index})));
    return {};
  });
}

tr_result_t tr_comm_deregister(tr_comm_t comm, tr_window_t window) {
  return guarded([&]() -> Status {
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    const std::shared_ptr<WindowHandle> w = windows().find(window);
    if (w == nullptr || w->comm != comm) {
      return invalid_usage(
          "the window is NULL, was deregistered, or belongs to another communicator");
    }
    if (!call.comm().engine().idle()) TR_RETURN_IF_ERROR(call.comm().finalize());
    TR_RETURN_IF_ERROR(call.comm().deregister_window(w->index));
    (void)windows().remove(window);
    return {};
  });
}
