// The newest checkpoint of a folder, as one rank reads it: all headers, and the files in which
// something lies that it needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/checkpoint_file.hpp"
#include "parallel/slices.hpp"

namespace tr::par {

inline constexpr std::string_view kStepFolder = "step-";
std::filesystem::path step_folder(const std::string& dir, std::int64_t step);
std::filesystem::path rank_file(const std::filesystem::path& folder, int rank);

class CheckpointReader {
 public:
  // TR_INVALID_ARGUMENT names a file that is missing, cut short or of another checkpoint.
  static Result<CheckpointReader> open(const std::string& dir);
  const CheckpointHeader& header() const { return files_.front().header; }

  // A whole parameter: masters, and moments if they were kept; elements of header().type. Defined
  // are those that `slice` has from `first` on.
  struct Global {
    std::string master, m, v;
  };
  Result<Global> read(const ParameterSpec& spec, const Slice& slice, std::int64_t first,
                      std::int64_t count);
  // What the hook of this name kept on `rank`, in this layout; empty: it was another.
  Result<std::string> hook_state(int rank, std::string_view hook, std::uint64_t layout);

 private:
  struct File {
    std::string path;
    CheckpointHeader header;
    std::size_t content_at = 0;
    std::optional<std::string> content;  // what follows the header, once somebody wanted it
  };
  static Result<File> open_file(const std::string& path, std::int64_t step);
  Result<const std::string*> content_of(File& file);

  std::vector<File> files_;
};

}  // namespace tr::par
