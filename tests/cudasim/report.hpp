// What is said when a kernel hangs or does what it must not: always to stderr, then abort.
#pragma once

#include <string>

namespace cudasim {

class Block;

// Blocks that run now.
void register_block(Block* block);
void unregister_block(Block* block);

// Prints what all blocks, waiting launches and host threads wait for, and ends the process.
[[noreturn]] void report_hang(Block& block, const char* what);
// The same where no block waits.
[[noreturn]] void report_hang(const char* what);
// A report has begun: each block prints its own lines and stops.
bool hang_reported();
[[noreturn]] void join_hang_report(Block& block);

// While it lives, reports contain the line.
class Note {
 public:
  explicit Note(std::string line);
  ~Note();
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;
  void change(std::string line);

 private:
  std::string line_;
};

}  // namespace cudasim
