#include "treering/parallel/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "parallel/agree.hpp"
#include "parallel/checkpoint_reader.hpp"
#include "parallel/digest.hpp"
#include "parallel/slices.hpp"

namespace tr::par {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".unfinished";

// Of DIR/step-N; empty: another name.
std::vector<std::int64_t> steps_in(const std::string& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    const char* const end = name.data() + name.size();
    if (name.compare(0, kStepFolder.size(), kStepFolder) != 0) continue;
    const auto parsed = std::from_chars(name.data() + kStepFolder.size(), end, step);
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

// What a hook's state is for: other ranks, stages or buckets, and it means nothing.
std::uint64_t hook_layout_of(const Mesh& mesh, ParameterStore& store) {
  std::ostringstream text;
  const MeshShape& shape = mesh.shape();
  text << shape.dp << ' ' << shape.pp << ' ' << shape.tp;
  for (const BucketInfo& bucket : store.buckets()) {
    text << ' ' << bucket.padded_elements;
    for (const int layer : bucket.layers) text << ',' << layer;
  }
  return hash_of(text.str());
}

// What this rank writes: what it owns and no other rank does.
Result<std::string> content_of(Mesh& mesh, const Model& model, Compute& compute,
                               ParameterStore& store, const TrainingState& state) {
  const std::vector<ParameterSpec> specs = model.parameters();
  CheckpointHeader header{shape_of(model), DType::kFloat32, mesh.shape().size(), state, {}};
  std::string kept;
  if (const GradientHook* hook = store.hook()) {
    kept = hook->state();
    header.hook = hook->name();
    header.hook_layout = hook_layout_of(mesh, store);
    header.hook_bytes = static_cast<std::int64_t>(kept.size());
  }
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
  elements += kept;
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
  // Nobody writes any more. What did not become a checkpoint takes room that may be short; and who
  // returns may end the program for all, so nobody does before it is gone.
  const auto clean = [&](Status done) {
    if (done) return done;
    std::error_code ignored;
    if (mesh.rank() == 0) fs::remove_all(unfinished, ignored);
    (void)agree(mesh.world(), compute, Status());
    return done;
  };
  if (Status s = clean(agree(mesh.world(), compute, written)); !s) return s;
  const Status published = mesh.rank() == 0 ? publish(dir, unfinished, state.step, keep) : Status();
  return clean(agree(mesh.world(), compute, published));
}

Status check_checkpoint_folder(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return system_status("cannot create", dir, error);
  std::string name = (fs::path(dir) / "writable-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return system_status("cannot write into", dir, {errno, std::generic_category()});
  const bool is_written = ::write(fd, "x", 1) == 1;
  const std::error_code why(errno, std::generic_category());
  ::close(fd);
  ::unlink(name.c_str());
  return is_written ? Status() : system_status("cannot write into", dir, why);
}

bool has_checkpoint(const std::string& dir) {
  std::error_code error;
  return fs::exists(fs::path(dir) / "latest", error);
}

namespace {

// The elements of `view`, which are this rank's local ones from `first` on.
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

Status load_pieces(CheckpointReader& reader, Mesh& mesh, const Model& model, Compute& compute,
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
    const Slice slice = Slice::of(spec, spec.layout, mesh.at().tp, mesh.shape().tp);
    Result<CheckpointReader::Global> global =
        reader.read(spec, slice, piece.first, piece.master.elements());
    if (!global) return global.error();
    const CheckpointReader::Global& g = global.value();
    for (const auto& [from, to, what] : {std::tuple(&g.master, piece.master, "parameters"),
                                         std::tuple(&g.m, piece.m, "first moments"),
                                         std::tuple(&g.v, piece.v, "second moments")}) {
      if (Status s = load_view(compute, *from, slice, piece.first, to, what); !s) return s;
    }
  }
  return {};
}

// Of this rank in the same layout, or nothing.
Status load_hook(CheckpointReader& reader, Mesh& mesh, ParameterStore& store) {
  GradientHook* const hook = store.hook();
  if (hook == nullptr) return {};
  if (reader.header().ranks != mesh.shape().size()) return hook->restore("");
  Result<std::string> kept =
      reader.hook_state(mesh.rank(), hook->name(), hook_layout_of(mesh, store));
  if (!kept) return kept.error();
  return hook->restore(kept.value());
}

}  // namespace

Result<TrainingState> load_checkpoint(const std::string& dir, Mesh& mesh, const Model& model,
                                      Compute& compute, ParameterStore& store, std::uint64_t seed) {
  Result<CheckpointReader> reader = CheckpointReader::open(dir);
  Status loaded = reader ? load_pieces(reader.value(), mesh, model, compute, store, seed)
                         : Status(reader.error());
  if (loaded) loaded = load_hook(reader.value(), mesh, store);
  if (Status s = agree(mesh.world(), compute, loaded); !s) return s.error();
  const TrainingState state = reader.value().header().state;
  if (Status s = store.set_steps(state.step); !s) return s.error();
  if (Status s = store.publish_parameters(); !s) return s.error();
  return state;
}

}  // namespace tr::par
