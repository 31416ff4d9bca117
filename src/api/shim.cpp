#include "api/shim.hpp"

namespace treering::api {
namespace {

thread_local std::string t_last_error;

}  // namespace

tr_result_t finish(const Status& status, bool call_in_group) {
  if (status.ok()) return TR_SUCCESS;
  t_last_error = std::string(code_name(status.code())) + ": " + status.message();
  if (call_in_group) group_note_error(status);
  return static_cast<tr_result_t>(status.code());
}

HandleTable<Stream>& streams() {
  static auto* const table = new HandleTable<Stream>;
  return *table;
}

HandleTable<Event>& events() {
  static auto* const table = new HandleTable<Event>;
  return *table;
}

Status find_stream(tr_stream_t handle, std::shared_ptr<Stream>* stream) {
  if (handle == nullptr) return {};
  *stream = streams().find(handle);
  if (*stream == nullptr)
    return invalid_usage("the stream was destroyed, or the handle is garbage");
  return {};
}

Status check_type(tr_type_t type) {
  if (type >= TR_INT8 && type < TR_NUM_TYPES) return {};
  return invalid_argument("unknown type " + std::to_string(static_cast<int>(type)) +
                          "; see tr_type_t");
}

Status check_pointer(const char* name, const void* ptr) {
  return ptr != nullptr ? Status{} : invalid_argument(std::string(name) + " is NULL");
}

// The enums of the C API and of the inside are the same numbers.
static_assert(static_cast<int>(Code::kOk) == TR_SUCCESS);
static_assert(static_cast<int>(Code::kInvalidArgument) == TR_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::kInvalidUsage) == TR_INVALID_USAGE);
static_assert(static_cast<int>(Code::kUnsupported) == TR_UNSUPPORTED);
static_assert(static_cast<int>(Code::kSystem) == TR_SYSTEM_ERROR);
static_assert(static_cast<int>(Code::kRemote) == TR_REMOTE_ERROR);
static_assert(static_cast<int>(Code::kTimeout) == TR_TIMEOUT);
static_assert(static_cast<int>(Code::kMismatch) == TR_MISMATCH);
static_assert(static_cast<int>(Code::kAborted) == TR_ABORTED);
static_assert(static_cast<int>(Code::kInternal) == TR_INTERNAL_ERROR);
static_assert(static_cast<int>(Type::kInt8) == TR_INT8 &&
              static_cast<int>(Type::kUint8) == TR_UINT8);
static_assert(static_cast<int>(Type::kInt32) == TR_INT32 &&
              static_cast<int>(Type::kUint32) == TR_UINT32);
static_assert(static_cast<int>(Type::kInt64) == TR_INT64 &&
              static_cast<int>(Type::kUint64) == TR_UINT64);
static_assert(static_cast<int>(Type::kFloat16) == TR_FLOAT16);
static_assert(static_cast<int>(Type::kBfloat16) == TR_BFLOAT16);
static_assert(static_cast<int>(Type::kFloat32) == TR_FLOAT32);
static_assert(static_cast<int>(Type::kFloat64) == TR_FLOAT64);
static_assert(static_cast<int>(Type::kFloat8E4m3) == TR_FLOAT8_E4M3);
static_assert(static_cast<int>(Type::kFloat8E5m2) == TR_FLOAT8_E5M2);
static_assert(kNumTypes == TR_NUM_TYPES);

}  // namespace treering::api

using namespace treering;
using namespace treering::api;

int tr_version(void) {
  return TR_VERSION_MAJOR * 10000 + TR_VERSION_MINOR * 100 + TR_VERSION_PATCH;
}

const char* tr_result_string(tr_result_t result) {
  if (result < TR_SUCCESS || result > TR_INTERNAL_ERROR) return "unknown result";
  return code_name(static_cast<Code>(result));
}

const char* tr_get_last_error(void) { return t_last_error.c_str(); }

size_t tr_type_size(tr_type_t type) {
  return check_type(type).ok() ? type_bytes(static_cast<Type>(type)) : 0;
}
