// One rank's file of a checkpoint: a text header, one line an item, then the pieces' elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "treering/parallel/checkpoint.hpp"

namespace tr::par {

// Which elements of which parameter; the order of the elements is that of the writer's local part.
struct PieceHeader {
  int number = 0;
  int tp_rank = 0, tp_size = 1;  // of the writer, and how it split the parameter
  Layout layout = Layout::kReplicated;
  std::int64_t first = 0, count = 0;
  bool has_m = false, has_v = false;
};

struct CheckpointHeader {
  std::string model;  // its shape: what it must be loaded into, however split
  DType type = DType::kFloat32;
  int ranks = 1;  // files of the checkpoint
  TrainingState state;
  std::vector<PieceHeader> pieces;
  std::string hook = "none";      // of what follows the elements
  std::uint64_t hook_layout = 0;  // for which it is
  std::int64_t hook_bytes = 0;
  std::uint64_t checksum = 0;  // hash_of all that follows the header
  // What follows the header.
  std::size_t content_bytes() const;
};

std::string to_text(const CheckpointHeader& header);
// Reads the header at the beginning of a file's bytes; *end is where the elements begin.
Result<CheckpointHeader> parse_header(const std::string& text, std::size_t* end);

// The bytes are on disk, under this name or not at all, when it returns.
Status write_file(const std::string& path, const std::string& bytes);
Status sync_folder(const std::string& path);
Result<std::string> read_file(const std::string& path);
// As much of the beginning of a checkpoint's file as has its header; *bytes is the file's size.
Result<std::string> read_head(const std::string& path, std::size_t* bytes);

}  // namespace tr::par
