// Learns to predict the next byte of a text from the 16 before it: an embedding that all places
// share, and three layers. In any layout, as train_mlp.
//
//   bible -f gen1:1-rev22:21 > kjv.txt          # Debian: bible-kjv, bible-kjv-text
//   treering run -n 4 -- byte_lm --data-path kjv.txt
#include "train/loop.hpp"
#include "train/options.hpp"

int main(int argc, char** argv) {
  train::Options options;
  options.data = "bytes";
  int status = 0;
  if (!train::parse_options(argc, argv, "Predicts the next byte of a text from the 16 before it.",
                            options, &status)) {
    return status;
  }
  return train::train_with_backend(options);
}
