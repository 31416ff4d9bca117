#include "comm/settings.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "transports/process.hpp"

namespace treering {
namespace {

// The settings that all ranks must share, in words, so that a difference can be shown.
std::string settings_text(const Config& c, int size) {
  std::string text =
      "size " + std::to_string(size) + "; TR_LINK_BYTES " + std::to_string(c.link_bytes) +
      "; TR_CAST_BYTES " + std::to_string(c.cast_bytes) + "; TR_SLICE_BYTES " +
      std::to_string(c.slice_bytes) + "; TR_ORDERED " + std::to_string(c.ordered) + "; TR_CUDA " +
      std::to_string(c.cuda) + "; TR_CUDA_STRICT " + std::to_string(c.cuda_strict) +
      "; TR_CUDA_CHANNELS " + std::to_string(c.cuda_channels) + "; TR_CUDA_SLOT_BYTES " +
      std::to_string(c.cuda_slot_bytes) + "; TR_CHECKSUM " + std::to_string(c.checksum) +
      "; TR_CUDA_COPY_ENGINE " + std::to_string(c.copy_engine) + "; TR_PROTOCOL " + c.protocol +
      "; TR_TEST_HOSTS " + c.test_hosts + "; TR_ALGO ";
  for (const AlgoChoice& a : c.algos)
    text += std::string(collective_name(a.collective)) + ":" + a.algorithm + ",";
  return text;
}

// What TR_TUNE_FILE holds, on rank 0; the other ranks take its word.
Result<std::string> read_tuning(int rank, const Config& config) {
  if (rank != 0 || config.tune_file.empty()) return std::string();
  std::ifstream file(config.tune_file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) {
    return invalid_argument("TR_TUNE_FILE: cannot read '" + config.tune_file +
                            "', or it is empty; make it with treering tune");
  }
  TR_RETURN_IF_ERROR(Tuning::parse(text, config.tune_file).status());
  return text;
}

}  // namespace

Result<Settings> agree_on_settings(Rendezvous& rendezvous, const Config& config) {
  // A random number, the settings and, from rank 0, the tuning. An error travels, too: the others
  // must not wait for a rank 0 that has given up.
  TR_ASSIGN_OR_RETURN(const Token token, random_token());
  const std::string number(reinterpret_cast<const char*>(token.data()), sizeof token[0]);
  const Result<std::string> read = read_tuning(rendezvous.rank(), config);
  const std::string tuning = read.ok() ? read.value() : "!" + read.status().message();
  TR_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      rendezvous.all_gather(number + settings_text(config, rendezvous.size()) + '\0' + tuning));
  const auto words = [&](std::size_t r) {
    return all[r].substr(number.size(), all[r].find('\0', number.size()) - number.size());
  };
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (words(r) != words(0)) {
      return Status(Code::kMismatch, "ranks have different settings: rank 0 has {" + words(0) +
                                         "}, rank " + std::to_string(r) + " has {" + words(r) +
                                         "}");
    }
  }
  Settings settings;
  std::memcpy(&settings.communicator, all[0].data(), sizeof settings.communicator);
  const std::string of_rank_0 = all[0].substr(number.size() + words(0).size() + 1);
  if (of_rank_0.empty()) return settings;
  if (of_rank_0[0] == '!') return invalid_argument(of_rank_0.substr(1));
  TR_ASSIGN_OR_RETURN(settings.tuning, Tuning::parse(of_rank_0, "TR_TUNE_FILE of rank 0"));
  return settings;
}

}  // namespace treering
