#include "algos/schedule.hpp"

namespace treering::algos {
namespace {

std::string operand_text(const Operand& o) {
  const std::string index = "[" + std::to_string(o.chunk) + "]";
  switch (o.space) {
    case Space::kNone:
      return "nothing";
    case Space::kIn:
      return "in" + index;
    case Space::kOut:
      return "out" + index;
    case Space::kLink:
      return (o.peek ? "peek " : "") + to_string(o.link);
    case Space::kToken:
      return "buffers of rank " + std::to_string(o.peer);
    case Space::kPeerIn:
      return "rank " + std::to_string(o.peer) + "'s in" + index;
    case Space::kPeerOut:
      return "rank " + std::to_string(o.peer) + "'s out" + index;
  }
  return "?";
}

std::string list_text(std::span<const Operand> operands) {
  std::string text;
  for (const Operand& o : operands) {
    if (!text.empty()) text += ", ";
    text += operand_text(o);
  }
  return text;
}

}  // namespace

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::kSend:
      return "send";
    case Verb::kRecv:
      return "recv";
    case Verb::kRecvSend:
      return "recv_send";
    case Verb::kRecvReduceSend:
      return "recv_reduce_send";
    case Verb::kRecvReduceCopy:
      return "recv_reduce_copy";
    case Verb::kRecvReduceCopySend:
      return "recv_reduce_copy_send";
    case Verb::kRecvCopySend:
      return "recv_copy_send";
    case Verb::kCopy:
      return "copy";
    case Verb::kPublish:
      return "publish";
    case Verb::kAwait:
      return "await";
    case Verb::kReduceFromAll:
      return "reduce_from_all";
    case Verb::kReduceStoreAll:
      return "reduce_store_all";
    case Verb::kCopyFrom:
      return "copy_from";
    case Verb::kCopyTo:
      return "copy_to";
  }
  return "?";
}

std::string to_string(const Schedule& schedule, const Step& step) {
  std::string text = verb_name(step.verb);
  const auto inputs = schedule.inputs(step);
  const auto outputs = schedule.outputs(step);
  if (step.verb != Verb::kPublish && step.verb != Verb::kAwait) {
    // The chunk of the message that leaves or enters; a copy has none.
    const Operand& subject = outputs.empty() ? inputs.front() : outputs.back();
    text += " chunk " + std::to_string(subject.chunk);
  }
  text += ": " + list_text(inputs) + " => " + list_text(outputs);
  if (step.last == Last::kYes) text += " (last)";
  return text;
}

}  // namespace treering::algos
