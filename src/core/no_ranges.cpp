// A build that did not find NVTX's header.
#include "core/ranges.hpp"

namespace treering {

RangeOwner make_range_owner(int, int) { return 0; }
void Range::push(RangeOwner, const RangeName&) {}
void Range::pop() {}

}  // namespace treering
