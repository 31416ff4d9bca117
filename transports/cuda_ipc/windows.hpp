// Windows of device memory: every rank's cudaMalloc memory in every rank's addresses.
//
// A thread of this process is reached by its own pointer and peer access, another process by the
// CUDA IPC handle of the allocation and an offset in it.
#pragma once

#include <cstddef>

#include "core/status.hpp"
#include "transports/window_map.hpp"

namespace treering {

class Rendezvous;  // bootstrap/rendezvous.hpp

namespace cuda_ipc {

// DeviceLinks::map_windows of a rank on `device`. reached: why this rank takes no part, if so.
Result<WindowMap> map_windows(int device, void* ptr, std::size_t bytes, const Status& reached,
                              Rendezvous& rendezvous);

}  // namespace cuda_ipc
}  // namespace treering
