// What a build without CUDA answers.
#include "engine/device_engine.hpp"
#include "engine/device_room.hpp"

namespace treering {

Result<std::unique_ptr<DeviceLinks>> connect_device(Rendezvous&, const DeviceLinkOptions&) {
  return std::unique_ptr<DeviceLinks>();
}

Result<std::unique_ptr<DeviceEngine>> make_device_engine(std::unique_ptr<DeviceLinks>,
                                                         std::int64_t) {
  return internal_error("a device engine without CUDA");
}

Result<DeviceRoom> device_room() { return DeviceRoom{}; }

bool device_has(Collective, const char*, DeviceProtocol) { return false; }
bool has_devices() { return false; }
bool is_device_memory(const void*) { return false; }
Result<bool> query_device_stream(void*) {
  return unsupported("this build of the library has no CUDA");
}

}  // namespace treering
