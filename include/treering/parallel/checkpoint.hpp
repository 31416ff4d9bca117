// Checkpoints: what a training is at a step, so that it can go on bit for bit, or in another
// layout.
//
//   DIR/latest            the number of the newest complete checkpoint
//   DIR/step-1200/        complete: it got this name after every rank's file was on disk
//   DIR/step-1200/rank-3  a text header, then the pieces of optimizer state that this rank owns,
//                         then what its compression hook keeps
//
// A piece names its parameter and which elements of the global matrix it holds, so a rank of any
// layout finds what it needs: it reads all headers, and all of the files that hold something for
// it. A kill at any moment leaves the older checkpoint as it was: files are written beside it,
// synced, and renamed; what an error leaves half-written is removed. All ranks must see one file
// system.
//
// What a hook keeps (the int8 hook's residuals) is of one layout: ranks, stages and buckets. In
// another one a training begins without, and is near the uninterrupted one, not equal to it.
//
// Errors name the file and what is wrong with it: missing, cut short, another model, another type.
#pragma once

#include <cstdint>
#include <string>

#include "treering/parallel/mesh.hpp"
#include "treering/parallel/parameters.hpp"

namespace tr::par {

// Beside the parameters and the optimizer's moments.
struct TrainingState {
  std::int64_t step = 0;      // optimizer steps done
  std::int64_t skipped = 0;   // steps beside these whose gradients overflowed
  std::int64_t position = 0;  // rows of the data that were trained on
  std::uint64_t seed = 0;
  double loss_scale = 1.0;
  std::int64_t clean_steps = 0;  // of the loss scaler
  bool operator==(const TrainingState&) const = default;
};

// Collective over the mesh. Keeps the `keep` newest checkpoints of DIR. Replica d writes what it
// owns; without sharded state, replica 0 writes for all.
Status save_checkpoint(const std::string& dir, Mesh& mesh, const Model& model, Compute& compute,
                       ParameterStore& store, const TrainingState& state, int keep = 2);

// Collective. The newest complete checkpoint of DIR, whatever layout wrote it. The model must be
// the same, and so must its seed, its optimizer and the type of its state.
Result<TrainingState> load_checkpoint(const std::string& dir, Mesh& mesh, const Model& model,
                                      Compute& compute, ParameterStore& store, std::uint64_t seed);
// Can a checkpoint be written there? Makes the folder, and tries with a small file that it removes
// again. Not collective; for before a training rather than after it.
Status check_checkpoint_folder(const std::string& dir);
// Is there one?
bool has_checkpoint(const std::string& dir);

}  // namespace tr::par
