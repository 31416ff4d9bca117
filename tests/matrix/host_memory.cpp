#include "matrix/cell.hpp"

namespace treering::test {

Memory take_memory(std::size_t bytes) { return Memory(new std::byte[bytes], {bytes}); }
void GiveBack::operator()(std::byte* memory) const { delete[] memory; }
bool serves_memory(const Cell&) { return true; }

}  // namespace treering::test
