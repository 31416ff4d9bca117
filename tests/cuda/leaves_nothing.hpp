// Communicators are made and destroyed again and again: what a process has does not grow.
#pragma once

#include <cstdint>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <string>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {

// What a process has of all that a communicator may take.
struct Belongings {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;  // of memory files
  cudasim::Live live;

  static Belongings now() {
    static std::mutex alone;  // looking takes a descriptor
    const std::lock_guard lock(alone);
    Belongings b;
    if (DIR* const all = ::opendir("/proc/self/fd")) {
      while (::readdir(all) != nullptr) ++b.descriptors;
      ::closedir(all);
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      b.mappings += line.find("memfd:") != std::string::npos ? 1 : 0;
    b.live = cudasim::live();
    return b;
  }
  std::string text() const {
    return std::to_string(descriptors) + " descriptors, " + std::to_string(mappings) +
           " mappings, " + std::to_string(live.allocations) + " allocations, " +
           std::to_string(live.streams) + " streams, " + std::to_string(live.events) + " events";
  }
};

// Splits `comm` so many times, and uses what comes of it now and then. What is wrong, if anything.
// Collective; one rank of a process at least must look, when all ranks have come that far.
inline std::string leaves_nothing(tr_comm_t comm, int rank, int times) {
  std::string early;
  for (int i = 0; i < times; ++i) {
    tr_comm_t child = nullptr;
    if (tr_comm_split(comm, 0, rank, &child) != TR_SUCCESS) return tr_get_last_error();
    if (i % 10 == 0) {
      const DeviceArray<float> data(100, 1);
      if (tr_all_reduce(data.get(), data.get(), 100, TR_FLOAT32, TR_SUM, child, nullptr) !=
          TR_SUCCESS) {
        return tr_get_last_error();
      }
    }
    if (tr_comm_finalize(child) != TR_SUCCESS) return tr_get_last_error();
    if (tr_comm_destroy(child) != TR_SUCCESS) return tr_get_last_error();
    // A rank that leaves first keeps its memory until the others have left.
    if (tr_barrier(comm, nullptr) != TR_SUCCESS) return tr_get_last_error();
    if (i == 3) early = Belongings::now().text();
    if (tr_barrier(comm, nullptr) != TR_SUCCESS) return tr_get_last_error();
  }
  const std::string late = Belongings::now().text();
  if (tr_barrier(comm, nullptr) != TR_SUCCESS) return tr_get_last_error();
  return late == early ? ""
                       : "after 4: " + early + "; after " + std::to_string(times) + ": " + late;
}

}  // namespace treering::test
