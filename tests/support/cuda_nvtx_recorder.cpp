// A tool for NVTX, as NVIDIA's are: NVTX loads it if NVTX_INJECTION64_PATH names it. It keeps what
// happens in the domain "treering", a line an event, for the thread on which it happened:
//
//   > all_reduce ring 4096 B | 4096 | communicator 1: rank 0 of 2
//   <
#include <map>
#include <mutex>
#include <nvtx3/nvToolsExt.h>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string t_lines;
std::mutex g_mutex;
std::map<std::uint32_t, std::string> g_categories;
int g_treering = 0, g_other = 0;  // handles of domains are their addresses

nvtxDomainHandle_t create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(name == std::string("treering") ? &g_treering
                                                                              : &g_other);
}
bool is_ours(nvtxDomainHandle_t domain) {
  return domain == reinterpret_cast<nvtxDomainHandle_t>(&g_treering);
}

void name_category(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  const std::lock_guard lock(g_mutex);
  if (is_ours(domain)) g_categories[category] = name;
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (!is_ours(domain)) return 0;
  const std::lock_guard lock(g_mutex);
  const bool has_payload = range->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  const bool is_text = range->messageType == NVTX_MESSAGE_TYPE_ASCII;
  t_lines += "> " + std::string(is_text ? range->message.ascii : "no text") + " | " +
             (has_payload ? std::to_string(range->payload.ullValue) : "none") + " | " +
             g_categories[range->category] + "\n";
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  if (is_ours(domain)) t_lines += "<\n";
  return 0;
}

template <class F>
NvtxFunctionPointer pointer(F function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

// What this thread's ranges were since the last time; valid until the next.
EXPORT const char* nvtx_recorded() {
  thread_local std::string shown;
  shown.swap(t_lines);
  t_lines.clear();
  return shown.c_str();
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = pointer(create);
  *table[NVTX_CBID_CORE2_DomainNameCategoryA] = pointer(name_category);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = pointer(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = pointer(pop);
  return 1;
}
