#include <algorithm>
#include <cstdlib>

#include "matrix/cell.hpp"

namespace treering::test {

Memory take_memory(std::size_t bytes) { return Memory(new std::byte[bytes], {bytes}); }
void GiveBack::operator()(std::byte* memory) const { delete[] memory; }
void put(std::byte* memory, const std::byte* host, std::size_t bytes) {
  std::copy_n(host, bytes, memory);
}
void get(std::byte* host, const std::byte* memory, std::size_t bytes) {
  std::copy_n(memory, bytes, host);
}
std::byte* take_shareable(std::size_t bytes) {
  void* memory = nullptr;
  if (tr_mem_alloc(&memory, bytes) != TR_SUCCESS) std::abort();
  return static_cast<std::byte*>(memory);
}
void give_back_shareable(std::byte* memory, std::size_t) { (void)tr_mem_free(memory); }
bool serves_memory(const Cell&) { return true; }

}  // namespace treering::test
