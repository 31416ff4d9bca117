// Findings: what is wrong with a description of a machine, and what was assumed where it is silent.
// Each is a sentence for a person, and a kind for programs and tests. A detector that guesses
// without saying so cannot be argued with.
#pragma once

#include <cstdint>
#include <string>

namespace treering::topo {

enum class Severity : std::uint8_t {
  kNote,        // true and worth knowing: an odd number of GPUs
  kAssumption,  // a value was missing; the sentence says what stands in for it
  kDefect,      // the description is wrong or contradicts itself
};

enum class FindingKind : std::uint8_t {
  // defects
  kSelfLink,          // a GPU whose NVLink ends at itself
  kDanglingLink,      // a link to a device that is not described
  kOneSidedLink,      // one end has the link, or more of them, and the other does not
  kMissingLink,       // the other GPUs of a group have a link that this pair lacks
  kUnitError,         // a speed that makes sense only in another unit
  kBadValue,          // a value that makes sense in no unit
  kOverlappingMasks,  // a CPU belongs to several NUMA nodes
  kDuplicateBusId,    // two devices at one PCI address
  kDuplicateNumber,   // two GPUs or NUMA nodes of one number
  kVirtualInterface,  // a network interface without hardware, not to be used
  kFakeBridge,        // a bridge that exists in no machine
  kTruncated,         // rows or columns are missing
  kContradiction,     // two statements that cannot both be true
  kDegradedLink,      // a link that runs below what both ends can do
  // assumptions
  kSpeedUnknown,     // of a PCIe link
  kNumaUnknown,      // which NUMA node a device is at
  kCpusUnknown,      // which CPUs a NUMA node has
  kKindUnknown,      // a PCI device of unknown class
  kNvlinkAssumed,    // bandwidth of NVLink or xGMI, by generation
  kSocketAssumed,    // bandwidth between NUMA nodes
  kNetworkAssumed,   // bandwidth of NICs or of a network
  kGpusUndescribed,  // GPUs that are only PCI devices here: no links between them are known
  kHidden,           // parts that a container or virtual machine hides
  // notes
  kOddGpus,
  kIslands,       // groups of GPUs that no fast link joins
  kUnevenLinks,   // pairs of GPUs with different numbers of links
  kUnevenNics,    // GPUs whose nearest NIC is farther than that of others, or shared by more
  kNicOrder,      // NICs are numbered against the GPUs near them
  kNicNotOnPci,   // a NIC of unknown place
  kSharedCard,    // several ports or GPUs behind one PCI function
  kSlowNic,       // a NIC too slow to be worth using beside the GPUs' links
  kNumaGap,       // NUMA numbers with gaps, lists, or nodes without CPUs
  kPartitioned,   // a GPU that is cut into instances
  kNoPeerAccess,  // GPUs that cannot reach each other's memory
  kUnknownPart,   // something in the file that this reader does not know
};

struct Finding {
  FindingKind kind;
  std::string text;  // one sentence: what is wrong, and what was assumed
};

const char* finding_name(FindingKind kind);  // "self link"
Severity severity_of(FindingKind kind);
const char* severity_name(Severity severity);  // "defect"

}  // namespace treering::topo
