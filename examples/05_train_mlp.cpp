// Lesson 5: data-parallel training of a small network.
//
// Every rank holds all parameters and takes its share of each batch. After the backward pass the
// gradients are summed over the ranks, bucket by bucket, while earlier layers are still being
// computed; then all ranks take the same optimizer step and stay equal without ever sending a
// parameter. Read train_mlp/trainer.cpp (step) first, then reducer.cpp.
//
//   treering run -n 4 -- 05_train_mlp --data digits --verify
//   treering run -n 4 -- 05_train_mlp --data fashion --epochs 2
//   treering run -n 4 -- 05_train_mlp --preset cs336 --device cuda
#include "treering/treering.hpp"

#include "device.hpp"
#include "must.hpp"
#include "train_mlp/options.hpp"
#include "train_mlp/trainer.hpp"

int main(int argc, char** argv) {
  train::Options options;
  int status = 0;
  if (!train::parse_options(argc, argv, options, &status)) return status;
  // The device first: a communicator takes the GPU that is current when it forms.
  auto backend =
      example::must(compute::make_backend(options.device, example::local_rank(), options.gemm));
  auto comm = example::must(tr::Communicator::from_env());
  return train::run(options, backend, comm);
}
