// Ranges by NVTX (https://github.com/NVIDIA/NVTX), which is a header: it looks for a tool when it
// is first used, and does nothing if there is none.
#include <atomic>
#include <cstdio>
#include <nvtx3/nvToolsExt.h>

#include "core/ranges.hpp"

namespace treering {
namespace {

// nullptr: no tool.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("treering");
  return handle;
}

// A text on the stack, cut where it would be too long.
class Text {
 public:
  template <class... Args>
  void add(const char* format, Args... args) {
    const int added = std::snprintf(text_ + length_, sizeof text_ - length_, format, args...);
    length_ += static_cast<std::size_t>(added > 0 ? added : 0);
    if (length_ >= sizeof text_) length_ = sizeof text_ - 1;
  }
  const char* get() const { return text_; }

 private:
  char text_[128] = "";
  std::size_t length_ = 0;
};

}  // namespace

RangeOwner make_range_owner(int rank, int size) {
  static std::atomic<RangeOwner> last{0};
  if (domain() == nullptr) return 0;
  const RangeOwner owner = last.fetch_add(1, std::memory_order_relaxed) + 1;  // a counter, alone
  Text text;
  text.add("communicator %u: rank %d of %d", owner, rank, size);
  nvtxDomainNameCategoryA(domain(), owner, text.get());
  return owner;
}

void Range::push(RangeOwner owner, const RangeName& name) {
  Text text;
  text.add("%s%s", name.operation, name.uneven ? "_v" : "");
  if (name.algorithm != nullptr) text.add(" %s", name.algorithm);
  if (name.protocol != nullptr) text.add(" %s", name.protocol);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = owner;
  if (name.bytes != RangeName::kNoBytes) {
    text.add(" %llu B", static_cast<unsigned long long>(name.bytes));
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = name.bytes;
  }
  if (name.peer >= 0) text.add(", rank %d", name.peer);
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.get();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void Range::pop() { nvtxDomainRangePop(domain()); }

}  // namespace treering
