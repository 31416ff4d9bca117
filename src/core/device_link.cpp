#include "core/device_link.hpp"

namespace treering {

const char* device_protocol_name(DeviceProtocol protocol) {
  switch (protocol) {
    case DeviceProtocol::kSimple:
      return "Simple";
    case DeviceProtocol::kLL:
      return "LL";
    default:
      return "LL128";
  }
}

}  // namespace treering
