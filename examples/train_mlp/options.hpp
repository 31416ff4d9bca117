// What the command line of train_mlp can say.
#pragma once

#include <cstdint>
#include <string>

namespace train {

struct Options {
  std::string data = "digits";  // digits, fashion, noise
  std::string data_dir;         // empty: where the data lie by default
  int epochs = 0;               // 0: the default of the data
  int steps = 0;                // stop after so many; 0: no limit
  int batch = 128;              // rows of all ranks together
  double lr = 1e-3;
  std::uint64_t seed = 1;
  std::string device = "host";  // host, cuda
  std::string gemm = "auto";
  double bucket_mb = 25.0;
  double first_bucket_mb = 1.0;
  bool overlap = true;
  bool verify = false;
  int check_sync = 50;  // compare the ranks' parameters every so many steps; 0: only at the end
  int log_every = 0;    // a line every so many steps; 0: at the end of an epoch
  double min_accuracy = 0.0;  // of the test; below it the run fails
  std::string metrics;        // file to append JSON lines to
};

// False: the program ends with *exit_status (help was asked for, or a wrong flag has been
// explained).
bool parse_options(int argc, char** argv, Options& options, int* exit_status);

}  // namespace train
