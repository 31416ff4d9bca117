// What a communicator would choose, and why: tr_comm_explain.
#include <algorithm>
#include <string>

#include "comm/communicator.hpp"
#include "tuner/device_choice.hpp"

namespace treering {
namespace {

bool has_window_algorithm(Collective collective) {
  const auto all = algos::all_algorithms();
  return std::any_of(all.begin(), all.end(), [&](const algos::Algorithm& a) {
    return a.windows && a.collective == collective;
  });
}

}  // namespace

const char* Communicator::explain() {
  std::string text = "communicator: rank " + std::to_string(rank_) + " of " +
                     std::to_string(size_) + ", transport " + transport_->name() + ", " +
                     std::to_string(engine_->spin()) + " polls before a wait yields, timeout " +
                     std::to_string(config_.timeout_ms / 1000) + " s\n";
  if (hosts_->hosts() > 1) text += "hosts: " + hosts_->text() + "\n";
  text += "memory: " + std::to_string(transport_->mapped_bytes() >> 10) + " KiB mapped, " +
          std::to_string(transport_->resident_bytes() >> 10) +
          " KiB resident so far; kernels: " + reduce_target_name() + "\n";
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) text += "to rank " + std::to_string(r) + ": " + transport_->describe(r) + "\n";
  }
  if (device_ != nullptr) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_)
        text += "on the device, to rank " + std::to_string(r) + ": " +
                device_->links().describe(r) + "\n";
    }
    text += "on the device: channels " + std::to_string(device_->links().table().channels) +
            (why_fewer_channels_.empty() ? "" : ", fewer than usual: " + why_fewer_channels_) +
            "\n";
    const std::string& why = device_->links().why_no_ll128();
    if (!why.empty()) text += "no protocol LL128: " + why + "\n";
    if (!why_no_copies_.empty()) {
      text += "no copies by copy engines: " + why_no_copies_ + "\n";
    } else if (config_.copy_engine == 0) {
      text += "no copies by copy engines: not asked for (TR_OPT_COPY_ENGINE)\n";
    }
  }
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::kSendRecv) continue;
    Request r;
    r.call.collective = collective;
    ChoiceInput in;
    in.collective = collective;
    in.size = size_;
    in.hosts = &*hosts_;
    in.ordered = config_.ordered;
    in.link_bytes = transport_->link_data_bytes(LinkId::Kind::kPair);
    in.cast_bytes = transport_->link_data_bytes(LinkId::Kind::kCast);
    in.forced = forced_[c].empty() ? nullptr : forced_[c].c_str();
    in.tuning = tuning_ ? &*tuning_ : nullptr;
    text += std::string(collective_name(collective)) + ":\n" + explain_choices(in);
    if (device_ != nullptr) {
      text += " on the device:\n" + explain_device_choices(device_choice_input(in, 1));
    }
    // Windows reach the ranks of one host only.
    if (local_windows_.empty() || hosts_->hosts() > 1 || !has_window_algorithm(collective))
      continue;
    in.windows = true;
    text += " with registered buffers:\n" + explain_choices(in);
    if (device_ != nullptr) {
      text += " with registered buffers on the device:\n" +
              explain_device_choices(device_choice_input(in, 1));
    }
  }
  explanation_ = std::move(text);
  return explanation_.c_str();
}

}  // namespace treering
