// What the command line of train_mlp and byte_lm can say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "treering/parallel/trainer.hpp"

namespace train {

struct Options {
  // What to learn.
  std::string data = "digits";  // digits, fashion, noise; byte_lm: bytes
  std::string data_path;        // folder or file; empty: where the data lie by default
  std::vector<int> hidden;      // widths of the hidden layers; empty: the data's default
  std::string activation = "relu";
  bool norm = false;
  double dropout = 0.0;
  int epochs = 0;  // 0: the default of the data
  int steps = 0;   // stop after so many; 0: no limit
  int batch = 128;
  double lr = 1e-3;

  // How.
  std::string backend = "treering";  // threads, count, mpi, gloo, nccl
  int ranks = 0;                     // of threads and count; 0: dp pp tp
  std::string device = "host";       // cuda
  std::string gemm = "auto";
  std::string tp_mode = "megatron";  // gather, replicate
  bool sequence_parallel = false;
  std::string stages;    // "3,3,4"
  std::string schedule;  // a name, or a file.csv
  std::string compress;  // bf16, int8
  std::string dtype = "fp32";
  std::string loss_scale = "auto";  // off, a number, dynamic
  std::string recompute = "none";
  std::string optimizer = "adamw";
  double momentum = 0.9;
  double bucket_mb = 25.0, first_bucket_mb = 1.0;
  std::string overlap = "on";
  std::string reduce_order = "algorithm";  // rank
  double timeout_s = 0.0;
  std::vector<double> simulate_gbs;  // within a node, between nodes; empty: real links
  int ranks_per_node = 0;            // of simulated links
  std::string algo;                  // as TR_ALGO, or all_reduce's alone
  tr::par::TrainerOptions trainer;   // what has the same name there

  // What is written, and checked.
  std::string save, load, metrics, trace, inject;
  int save_every = 0;
  int log_every = 0;
  bool comm_log = false;
  double peak_gflops = 0.0;  // of a rank; 0: measured
  bool verify = false;
  int check_sync = 50;
  double min_accuracy = 0.0;
  bool print_config = false;
};

// False: the program ends with *exit_status (help was asked for, or a wrong flag has been
// explained).
bool parse_options(int argc, char** argv, const char* what, Options& options, int* exit_status);

}  // namespace train
