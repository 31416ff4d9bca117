#include <algorithm>

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
bool serves_memory(const Cell&) { return true; }

}  // namespace treering::test
