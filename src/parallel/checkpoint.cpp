#include "treering/parallel/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <vector>

#include "parallel/agree.hpp"
#include "parallel/checkpoint_file.hpp"
#include "parallel/digest.hpp"
#include "parallel/slices.hpp"

namespace tr::par {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kUnfinished = ".unfinished";

fs::path step_folder(const std::string& dir, std::int64_t step) {
  return fs::path(dir) / (std::string(kStep) + std::to_string(step));
}
fs::path rank_file(const fs::path& folder, int rank) {
  return folder / ("rank-" + std::to_string(rank));
}

// Of DIR/step-N; empty: another name.
std::vector<std::int64_t> steps_in(const std::string& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    const char* const end = name.data() + name.size();
    if (name.compare(0, kStep.size(), kStep) != 0) continue;
    const auto parsed = std::from_chars(name.data() + kStep.size(), end, step);
    if (parsed.ec == std::errc() && parsed.ptr == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// All of a model but how it is split: "64x128+b relu, 128x10+b".
std::string shape_of(const Model& model) {
  std::string text;
  for (const LayerSpec& layer : model.layers()) {
    if (!text.empty()) text += ", ";
    if (layer.positions > 1) text += std::to_string(layer.positions) + " of ";
    if (layer.has_norm) text += "norm ";
    text += std::to_string(layer.in) + "x" + std::to_string(layer.out);
    if (layer.has_bias) text += "+b";
    if (layer.activation == Activation::kRelu) text += " relu";
    if (layer.activation == Activation::kGelu) text += " gelu";
  }
  return text;
}

Status append(Compute& compute, const View& view, std::string* bytes) {
  const std::size_t at = bytes->size();
  bytes->resize(at + view.bytes());
  return compute.download(view, bytes->data() + at);
}

// What this rank writes: what it owns and no other rank does.
Result<std::string> content_of(Mesh& mesh, const Model& model, Compute& compute,
                               ParameterStore& store, const TrainingState& state) {
  const std::vector<ParameterSpec> specs = model.parameters();
  CheckpointHeader header{shape_of(model), DType::kFloat32, mesh.shape().size(), state, {}};
  std::string elements;
  for (const ParameterStore::Piece& piece : store.pieces()) {
    const ParameterSpec& spec = specs[static_cast<std::size_t>(piece.number)];
    const bool everyone_has_it = spec.layout == Layout::kReplicated;
    if (!piece.is_owner || piece.master.is_empty() || (everyone_has_it && mesh.at().tp != 0)) {
      continue;
    }
    header.type = piece.master.type;
    header.pieces.push_back({piece.number, mesh.at().tp, mesh.shape().tp, spec.layout, piece.first,
                             piece.master.elements(), !piece.m.is_empty(), !piece.v.is_empty()});
    for (const View& view : {piece.master, piece.m, piece.v}) {
      if (view.is_empty()) continue;
      if (Status s = append(compute, view, &elements); !s) return s.error();
    }
  }
  if (Status s = compute.synchronize(); !s) return s.error();
  header.checksum = hash_of(elements);
  return to_text(header) + elements;
}

Status system_status(const std::string& what, const fs::path& path, const std::error_code& error) {
  if (!error) return {};
  return Error{TR_SYSTEM_ERROR, what + " " + path.string() + ": " + error.message()};
}

// Rank 0, after all files are on disk: the folder gets its name, then `latest` names it.
Status publish(const std::string& dir, const fs::path& unfinished, std::int64_t step, int keep) {
  const fs::path folder = step_folder(dir, step);
  std::error_code error;
  if (Status s = sync_folder(unfinished.string()); !s) return s;
  // A checkpoint of this step may be there, of a run that was resumed before it: never without one.
  const unsigned flags = fs::exists(folder, error) ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, folder.c_str(), flags) != 0) {
    return system_status("cannot rename", unfinished, {errno, std::generic_category()});
  }
  fs::remove_all(unfinished, error);
  const fs::path latest = fs::path(dir) / "latest", next = fs::path(dir) / "latest.next";
  if (Status s = write_file(next.string(), std::to_string(step) + "\n"); !s) return s;
  fs::rename(next, latest, error);
  if (error) return system_status("cannot rename", next, error);
  if (Status s = sync_folder(dir); !s) return s;
  // What is older than the newest few, and what runs that were killed have left.
  std::vector<std::int64_t> steps = steps_in(dir);
  std::erase_if(steps, [&](std::int64_t other) { return other >= step; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(std::max(keep, 1)) <= steps.size(); ++i) {
    fs::remove_all(step_folder(dir, steps[i]), error);
  }
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() == kUnfinished) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
  return {};
}

}  // namespace

Status save_checkpoint(const std::string& dir, Mesh& mesh, const Model& model, Compute& compute,
                       ParameterStore& store, const TrainingState& state, int keep) {
  fs::path unfinished = step_folder(dir, state.step);
  unfinished += kUnfinished;
  // A fresh folder first, before anybody writes into it.
  Status made;
  if (mesh.rank() == 0) {
    std::error_code error;
    fs::remove_all(unfinished, error);
    fs::create_directories(unfinished, error);
    made = system_status("cannot create", unfinished, error);
  }
  if (Status s = agree(mesh.world(), compute, made); !s) return s;
  Result<std::string> content = content_of(mesh, model, compute, store, state);
  const Status written =
      content ? write_file(rank_file(unfinished, mesh.rank()).string(), content.value())
              : Status(content.error());
  if (Status s = agree(mesh.world(), compute, written); !s) return s;
  const Status published = mesh.rank() == 0 ? publish(dir, unfinished, state.step, keep) : Status();
  return agree(mesh.world(), compute, published);
}

bool has_checkpoint(const std::string& dir) {
  std::error_code error;
  return fs::exists(fs::path(dir) / "latest", error);
}

namespace {

// All files of one checkpoint, and where each piece's elements are.
class Reader {
 public:
  static Result<Reader> open(const std::string& dir);
  const CheckpointHeader& header() const { return files_.front().header; }

  // The whole parameter: masters, and moments if they were kept; elements of header().type.
  struct Global {
    std::string master, m, v;
  };
  Result<Global> read(const ParameterSpec& spec) const;

 private:
  struct File {
    std::string path, bytes;
    CheckpointHeader header;
    std::size_t elements_at = 0;
  };
  std::vector<File> files_;
};

Error in_file(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.message};
}

Result<Reader> Reader::open(const std::string& dir) {
  const std::string latest = (fs::path(dir) / "latest").string();
  Result<std::string> text = read_file(latest);
  if (!text) return Error{TR_INVALID_ARGUMENT, "no checkpoint: " + text.error().message};
  std::int64_t step = 0;
  const std::string& digits = text.value();
  const char* const digits_end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), digits_end, step);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr, digits_end) != "\n") {
    return Error{TR_INVALID_ARGUMENT, latest + " does not hold the number of a step"};
  }
  const fs::path folder = step_folder(dir, step);
  Reader reader;
  for (int rank = 0; rank == 0 || rank < reader.header().ranks; ++rank) {
    File file{rank_file(folder, rank).string(), {}, {}, 0};
    Result<std::string> bytes = read_file(file.path);
    if (!bytes) return bytes.error();
    file.bytes = std::move(bytes).value();
    Result<CheckpointHeader> header = parse_header(file.bytes, &file.elements_at);
    if (!header) return in_file(file.path, header.error());
    const auto elements = std::string_view(file.bytes).substr(file.elements_at);
    if (hash_of(elements) != header.value().checksum) {
      return Error{TR_INVALID_ARGUMENT,
                   file.path + " is cut short or damaged: its checksum is another"};
    }
    if (header.value().state.step != step) {
      return Error{TR_INVALID_ARGUMENT,
                   file.path + " is of step " + std::to_string(header.value().state.step)};
    }
    file.header = std::move(header).value();
    reader.files_.push_back(std::move(file));
    const CheckpointHeader& mine = reader.files_.back().header;
    const CheckpointHeader& first = reader.header();
    if (mine.model != first.model || mine.type != first.type || mine.ranks != first.ranks ||
        mine.state != first.state) {
      return Error{TR_INVALID_ARGUMENT, reader.files_.back().path +
                                            " is of another checkpoint than " +
                                            reader.files_.front().path};
    }
  }
  return reader;
}

Result<Reader::Global> Reader::read(const ParameterSpec& spec) const {
  const std::size_t size = size_of(header().type);
  const auto elements = static_cast<std::size_t>(spec.rows * spec.cols);
  Global global;
  std::vector<bool> has(elements);
  std::size_t covered = 0;
  for (const File& file : files_) {
    std::size_t at = file.elements_at;
    for (const PieceHeader& piece : file.header.pieces) {
      const std::size_t bytes = static_cast<std::size_t>(piece.count) * size;
      const std::size_t parts = 1u + piece.has_m + piece.has_v;
      if (at + parts * bytes > file.bytes.size()) {
        return Error{TR_INVALID_ARGUMENT, file.path + " is cut short"};
      }
      const std::size_t begin = at;
      at += parts * bytes;
      if (piece.number != spec.number) continue;
      const Slice slice = Slice::of(spec, piece.layout, piece.tp_rank, piece.tp_size);
      if (piece.first > slice.elements() || piece.count > slice.elements() - piece.first) {
        return Error{TR_INVALID_ARGUMENT,
                     file.path + " holds more of " + spec.name() + " than there is"};
      }
      const auto spread = [&](std::string* to, std::size_t from) {
        to->resize(elements * size);
        for (std::int64_t i = 0; i < piece.count; ++i) {
          const auto place = static_cast<std::size_t>(slice.global(piece.first + i));
          std::memcpy(&(*to)[place * size], &file.bytes[from + static_cast<std::size_t>(i) * size],
                      size);
        }
      };
      spread(&global.master, begin);
      if (piece.has_m) spread(&global.m, begin + bytes);
      if (piece.has_v) spread(&global.v, begin + (1u + piece.has_m) * bytes);
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const auto place = static_cast<std::size_t>(slice.global(piece.first + i));
        covered += has[place] ? 0 : 1;
        has[place] = true;
      }
    }
  }
  if (covered != elements) {
    return Error{TR_INVALID_ARGUMENT, "the checkpoint holds " + std::to_string(covered) + " of " +
                                          std::to_string(elements) + " elements of " + spec.name()};
  }
  return global;
}

// The elements of `view`, which are this rank's local ones from piece.first on.
Status load_view(Compute& compute, const std::string& global, const Slice& slice,
                 std::int64_t first, const View& view, const std::string& what) {
  if (view.is_empty() != global.empty()) {
    return Error{TR_INVALID_ARGUMENT,
                 std::string("the checkpoint has ") + (global.empty() ? "no " : "") + what +
                     ", and this training " + (global.empty() ? "needs them" : "has none") +
                     ": it was written with another optimizer"};
  }
  if (view.is_empty()) return {};
  const std::size_t size = size_of(view.type);
  std::string local(view.bytes(), '\0');
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    std::memcpy(&local[static_cast<std::size_t>(i) * size],
                &global[static_cast<std::size_t>(slice.global(first + i)) * size], size);
  }
  if (Status s = compute.upload(local.data(), view); !s) return s;
  return compute.synchronize();  // local ends here
}

Status load_pieces(const Reader& reader, Mesh& mesh, const Model& model, Compute& compute,
                   ParameterStore& store, std::uint64_t seed) {
  if (reader.header().state.seed != seed) {
    return Error{TR_INVALID_ARGUMENT, "the checkpoint was trained with seed " +
                                          std::to_string(reader.header().state.seed) +
                                          ", and this run has " + std::to_string(seed)};
  }
  if (reader.header().model != shape_of(model)) {
    return Error{TR_INVALID_ARGUMENT,
                 "the checkpoint is of another model: " + reader.header().model + ", and this is " +
                     shape_of(model)};
  }
  const std::vector<ParameterSpec> specs = model.parameters();
  for (const ParameterStore::Piece& piece : store.pieces()) {
    if (piece.master.is_empty()) continue;
    const ParameterSpec& spec = specs[static_cast<std::size_t>(piece.number)];
    if (piece.master.type != reader.header().type) {
      return Error{TR_INVALID_ARGUMENT, std::string("the checkpoint's optimizer state is ") +
                                            name_of(reader.header().type) + ", and here it is " +
                                            name_of(piece.master.type)};
    }
    Result<Reader::Global> global = reader.read(spec);
    if (!global) return global.error();
    const Slice slice = Slice::of(spec, spec.layout, mesh.at().tp, mesh.shape().tp);
    const Reader::Global& g = global.value();
    for (const auto& [from, to, what] : {std::tuple(&g.master, piece.master, "parameters"),
                                         std::tuple(&g.m, piece.m, "first moments"),
                                         std::tuple(&g.v, piece.v, "second moments")}) {
      if (Status s = load_view(compute, *from, slice, piece.first, to, what); !s) return s;
    }
  }
  return {};
}

}  // namespace

Result<TrainingState> load_checkpoint(const std::string& dir, Mesh& mesh, const Model& model,
                                      Compute& compute, ParameterStore& store, std::uint64_t seed) {
  Result<Reader> reader = Reader::open(dir);
  const Status loaded = reader ? load_pieces(reader.value(), mesh, model, compute, store, seed)
                               : Status(reader.error());
  if (Status s = agree(mesh.world(), compute, loaded); !s) return s.error();
  const TrainingState state = reader.value().header().state;
  if (Status s = store.set_steps(state.step); !s) return s.error();
  if (Status s = store.publish_parameters(); !s) return s.error();
  return state;
}

}  // namespace tr::par
