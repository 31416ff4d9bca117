#include "transports/segment.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// Younger than the C library's headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace treering {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Table {
  std::mutex mutex;
  std::map<SegmentKey, std::weak_ptr<Segment>> segments;
};
// Never destroyed: a segment may outlive the static objects of this file.
Table& table() {
  static Table* const kTable = new Table;
  return *kTable;
}

}  // namespace

Result<UniqueFd> create_memory_file(std::size_t bytes) {
  const std::string what = "cannot create " + std::to_string(bytes) + " bytes of shared memory";
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create("treering", kFlags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create("treering", kFlags));  // before 6.3
  if (!fd.valid()) return system_error(what + " (memfd_create)", errno);
  // Beyond this limit ftruncate does not fail, it kills (SIGXFSZ).
  rlimit size{};
  if (::getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur < bytes)
    return system_error(
        what + ": files may have " + std::to_string(size.rlim_cur) + " bytes at most (ulimit -f)",
        EFBIG);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return system_error(what + " (ftruncate)", errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return system_error(what + " (F_ADD_SEALS)", errno);
  return fd;
}

Status make_resident(std::byte* first, std::size_t bytes) {
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::uintptr_t begin = address / kPage * kPage;
  const std::uintptr_t end = (address + bytes + kPage - 1) / kPage * kPage;
  if (begin == end) return {};
  auto* const page = reinterpret_cast<std::byte*>(begin);
  if (::madvise(page, end - begin, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL)
    return system_error("no memory for " + std::to_string(end - begin) +
                            " bytes of shared memory; free some, raise the memory limit, or use "
                            "fewer ranks or smaller links",
                        errno);
  // Kernels before 5.14. Adding zero atomically is a write that loses no other rank's write, and
  // needs no order.
  for (std::uintptr_t at = begin; at < end; at += kPage)
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at))
        .fetch_add(0, std::memory_order_relaxed);
  return {};
}

Result<std::shared_ptr<Segment>> Segment::map(int memory_file, std::size_t bytes) {
  struct stat info {};
  if (::fstat(memory_file, &info) != 0) return system_error("cannot stat a memory file", errno);
  if (static_cast<std::size_t>(info.st_size) != bytes)
    return remote_error("the memory file has " + std::to_string(info.st_size) +
                        " bytes where its owner said " + std::to_string(bytes));
  const int seals = ::fcntl(memory_file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return remote_error("the memory file is not sealed against shrinking");

  const SegmentKey key{info.st_dev, info.st_ino};
  // Held over mmap, so that two threads that receive the same file end up with one mapping.
  const std::lock_guard lock(table().mutex);
  const auto it = table().segments.find(key);
  if (it != table().segments.end())
    if (std::shared_ptr<Segment> known = it->second.lock()) return known;
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_file, 0);
  if (base == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
  auto segment = std::make_shared<Segment>(key, static_cast<std::byte*>(base), bytes);
  table().segments[key] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::find(const SegmentKey& key) {
  const std::lock_guard lock(table().mutex);
  const auto it = table().segments.find(key);
  return it == table().segments.end() ? nullptr : it->second.lock();
}

Segment::~Segment() {
  ::munmap(base_, bytes_);
  // Another thread may have mapped the file anew since the last owner let go: then the entry is
  // alive and not ours.
  const std::lock_guard lock(table().mutex);
  const auto it = table().segments.find(key_);
  if (it != table().segments.end() && it->second.expired()) table().segments.erase(it);
}

}  // namespace treering
