// A schedule of faults: which rank does what at which moment, and what every other rank must see.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace treering::test {

enum class Fault {
  kKill,       // kill -9
  kExit,       // ends with status 0, its communicator still there
  kStopShort,  // SIGSTOP, for less than the deadline: nobody is harmed
  kStopLong,   // SIGSTOP, for longer: the others give up
  kMismatch,   // calls something else than the others
};
enum class Moment { kInit, kIdle, kCollective, kDestroy };
enum class Field { kKind, kCount, kType, kOperator, kRoot, kOrder };

// How the ranks reach each other: by the names of their hosts (TR_HOST_ID).
enum class Hosts { kOne, kEachItsOwn, kTwo };

struct Schedule {
  int ranks = 2;
  int victim = 0;
  Fault fault = Fault::kKill;
  Moment moment = Moment::kIdle;
  Field field = Field::kKind;  // of kMismatch
  int calls = 5;               // collectives before the moment
  long delay_us = 0;           // and then so long
  int stop_ms = 500;
  int short_ms = 150;        // the deadline that is too short for stop_ms
  int generous_ms = 40'000;  // one that nobody runs into
  Hosts hosts = Hosts::kOne;
};

std::string to_string(const Schedule& schedule);
Schedule random_schedule(std::mt19937& random, Hosts hosts);

// Runs it on processes of this one, which must have no other threads. Empty, or all that is wrong:
// a rank hung or crashed, computed wrongly, failed otherwise than it should, or left something
// behind.
std::string run_schedule(const Schedule& schedule);

}  // namespace treering::test
