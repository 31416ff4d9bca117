// Trains a multi-layer perceptron data-, tensor- and pipeline-parallel, in any layout, over any
// backend.
//
//   train_mlp --backend threads --dp 2 --tp 2
//   treering run -n 8 -- train_mlp --data fashion --dp 2 --pp 2 --tp 2
//   train_mlp --backend count --preset cs336 --dp 128 --tp 4 --pp 2     # what would be sent
#include "train/loop.hpp"
#include "train/options.hpp"

int main(int argc, char** argv) {
  train::Options options;
  int status = 0;
  if (!train::parse_options(argc, argv,
                            "Trains a multi-layer perceptron over many ranks: replicas (--dp), "
                            "shards of layers (--tp), stages of layers (--pp).",
                            options, &status)) {
    return status;
  }
  return train::train_with_backend(options);
}
