#include "topo/finding.hpp"

namespace treering::topo {

const char* finding_name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kSelfLink:
      return "self link";
    case FindingKind::kDanglingLink:
      return "dangling link";
    case FindingKind::kOneSidedLink:
      return "one-sided link";
    case FindingKind::kMissingLink:
      return "missing link";
    case FindingKind::kUnitError:
      return "unit error";
    case FindingKind::kBadValue:
      return "bad value";
    case FindingKind::kOverlappingMasks:
      return "overlapping masks";
    case FindingKind::kDuplicateBusId:
      return "duplicate bus id";
    case FindingKind::kDuplicateNumber:
      return "duplicate number";
    case FindingKind::kVirtualInterface:
      return "virtual interface";
    case FindingKind::kFakeBridge:
      return "fake bridge";
    case FindingKind::kTruncated:
      return "truncated";
    case FindingKind::kContradiction:
      return "contradiction";
    case FindingKind::kDegradedLink:
      return "degraded link";
    case FindingKind::kSpeedUnknown:
      return "speed unknown";
    case FindingKind::kNumaUnknown:
      return "NUMA unknown";
    case FindingKind::kCpusUnknown:
      return "CPUs unknown";
    case FindingKind::kKindUnknown:
      return "kind unknown";
    case FindingKind::kNvlinkAssumed:
      return "NVLink bandwidth";
    case FindingKind::kSocketAssumed:
      return "socket bandwidth";
    case FindingKind::kNetworkAssumed:
      return "network bandwidth";
    case FindingKind::kGpusUndescribed:
      return "GPUs undescribed";
    case FindingKind::kHidden:
      return "hidden";
    case FindingKind::kOddGpus:
      return "odd GPUs";
    case FindingKind::kIslands:
      return "islands";
    case FindingKind::kUnevenLinks:
      return "uneven links";
    case FindingKind::kUnevenNics:
      return "uneven NICs";
    case FindingKind::kNicOrder:
      return "NIC order";
    case FindingKind::kNicNotOnPci:
      return "NIC not on PCI";
    case FindingKind::kSharedCard:
      return "shared card";
    case FindingKind::kSlowNic:
      return "slow NIC";
    case FindingKind::kNumaGap:
      return "NUMA gap";
    case FindingKind::kPartitioned:
      return "partitioned GPU";
    case FindingKind::kNoPeerAccess:
      return "no peer access";
    case FindingKind::kUnknownPart:
      return "unknown part";
  }
  return "?";
}

Severity severity_of(FindingKind kind) {
  if (kind <= FindingKind::kDegradedLink) return Severity::kDefect;
  return kind <= FindingKind::kHidden ? Severity::kAssumption : Severity::kNote;
}

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kAssumption:
      return "assumption";
    case Severity::kDefect:
      return "defect";
  }
  return "?";
}

}  // namespace treering::topo
