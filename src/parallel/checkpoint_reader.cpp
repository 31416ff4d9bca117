#include "parallel/checkpoint_reader.hpp"

#include <charconv>
#include <cstring>
#include <utility>

#include "parallel/digest.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

namespace fs = std::filesystem;

Error bad_file(std::string text) { return {TR_INVALID_ARGUMENT, std::move(text)}; }

}  // namespace

fs::path step_folder(const std::string& dir, std::int64_t step) {
  return fs::path(dir) / (std::string(kStepFolder) + std::to_string(step));
}
fs::path rank_file(const fs::path& folder, int rank) {
  return folder / ("rank-" + std::to_string(rank));
}

Result<CheckpointReader::File> CheckpointReader::open_file(const std::string& path,
                                                           std::int64_t step) {
  File file;
  file.path = path;
  std::size_t bytes = 0;
  TRY_ASSIGN(const std::string head, read_head(path, &bytes));
  Result<CheckpointHeader> header = parse_header(head, &file.content_at);
  if (!header) return Error{header.error().code, path + ": " + header.error().message};
  file.header = std::move(header).value();
  if (bytes != file.content_at + file.header.content_bytes()) {
    return bad_file(path + " is cut short or damaged: it has " + std::to_string(bytes) +
                    " bytes, and its header speaks of " +
                    std::to_string(file.content_at + file.header.content_bytes()));
  }
  if (file.header.state.step != step) {
    return bad_file(path + " is of step " + std::to_string(file.header.state.step));
  }
  return file;
}

Result<CheckpointReader> CheckpointReader::open(const std::string& dir) {
  const std::string latest = (fs::path(dir) / "latest").string();
  Result<std::string> text = read_file(latest);
  if (!text) return bad_file("no checkpoint: " + text.error().message);
  std::int64_t step = 0;
  const std::string& digits = text.value();
  const char* const digits_end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), digits_end, step);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr, digits_end) != "\n") {
    return bad_file(latest + " does not hold the number of a step");
  }
  const fs::path folder = step_folder(dir, step);
  CheckpointReader reader;
  for (int rank = 0; rank == 0 || rank < reader.header().ranks; ++rank) {
    TRY_ASSIGN(File file, open_file(rank_file(folder, rank).string(), step));
    reader.files_.push_back(std::move(file));
    const CheckpointHeader& mine = reader.files_.back().header;
    const CheckpointHeader& first = reader.header();
    // A rank that owns nothing does not say of which type it is.
    const bool is_other_type = !mine.pieces.empty() && mine.type != first.type;
    if (mine.model != first.model || is_other_type || mine.ranks != first.ranks ||
        mine.state != first.state || mine.hook != first.hook) {
      return bad_file(reader.files_.back().path + " is of another checkpoint than " +
                      reader.files_.front().path);
    }
  }
  return reader;
}

Result<const std::string*> CheckpointReader::content_of(File& file) {
  if (!file.content) {
    TRY_ASSIGN(std::string bytes, read_file(file.path));
    bytes.erase(0, file.content_at);
    if (hash_of(bytes) != file.header.checksum) {
      return bad_file(file.path + " is cut short or damaged: its checksum is another");
    }
    file.content = std::move(bytes);
  }
  return &*file.content;
}

Result<CheckpointReader::Global> CheckpointReader::read(const ParameterSpec& spec,
                                                        const Slice& slice, std::int64_t first,
                                                        std::int64_t count) {
  const std::size_t size = size_of(header().type);
  const auto elements = static_cast<std::size_t>(spec.rows * spec.cols);
  std::vector<bool> is_missing(elements);
  for (std::int64_t i = 0; i < count; ++i) {
    is_missing[static_cast<std::size_t>(slice.global(first + i))] = true;
  }
  std::int64_t missing = count;
  Global global;
  for (File& file : files_) {
    std::size_t at = 0;
    for (const PieceHeader& piece : file.header.pieces) {
      const std::size_t bytes = static_cast<std::size_t>(piece.count) * size, begin = at;
      at += bytes * (1u + piece.has_m + piece.has_v);
      if (piece.number != spec.number || missing == 0) continue;
      const Slice theirs = Slice::of(spec, piece.layout, piece.tp_rank, piece.tp_size);
      if (piece.first > theirs.elements() || piece.count > theirs.elements() - piece.first) {
        return bad_file(file.path + " holds more of " + spec.name() + " than there is");
      }
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const auto place = static_cast<std::size_t>(theirs.global(piece.first + i));
        found += is_missing[place] ? 1 : 0;
        is_missing[place] = false;
      }
      if (found == 0) continue;
      missing -= found;
      TRY_ASSIGN(const std::string* const content, content_of(file));
      const auto spread = [&](std::string* to, std::size_t from) {
        to->resize(elements * size);
        for (std::int64_t i = 0; i < piece.count; ++i) {
          const auto place = static_cast<std::size_t>(theirs.global(piece.first + i));
          std::memcpy(&(*to)[place * size], &(*content)[from + static_cast<std::size_t>(i) * size],
                      size);
        }
      };
      spread(&global.master, begin);
      if (piece.has_m) spread(&global.m, begin + bytes);
      if (piece.has_v) spread(&global.v, begin + (1u + piece.has_m) * bytes);
    }
  }
  if (missing == 0) return global;
  return bad_file("the checkpoint lacks " + std::to_string(missing) + " of " +
                  std::to_string(count) + " elements of " + spec.name());
}

Result<std::string> CheckpointReader::hook_state(int rank, std::string_view hook,
                                                 std::uint64_t layout) {
  File& file = files_[static_cast<std::size_t>(rank)];
  const CheckpointHeader& header = file.header;
  if (header.hook != hook || header.hook_layout != layout || header.hook_bytes == 0) {
    return std::string();
  }
  TRY_ASSIGN(const std::string* const content, content_of(file));
  return content->substr(content->size() - static_cast<std::size_t>(header.hook_bytes));
}

}  // namespace tr::par
