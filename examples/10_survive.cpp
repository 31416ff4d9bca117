// Lesson 10: a rank dies, the others go on. Data-parallel training on four ranks; one of them is
// killed (SIGKILL) in the middle of a step, and the three that are left finish the training.
//
// Four things to do when a call fails because a rank is gone:
// - shrink: the survivors agree on who is left and get a communicator of their own;
// - agree on the last step that *all* of them have finished: one may have had its last sum when the
//   other's failed. Who is ahead goes one step back, so each keeps the parameters of the step
//   before;
// - build anew what belonged to the old communicator: here the sums under way and their stream;
// - share the rows anew. Losses are divided by the global number of rows, so the curve goes on as
// if
//   nothing had happened: rank 0 trains alone as well, and compares.
//
// It starts its ranks by itself, because a launcher ends all ranks when one dies:
//
//   10_survive            four ranks; rank 1 is killed in step 12
//   10_survive 4 0 5      rank 0 in step 5 instead, which holds the store by which they met
//   10_survive 4 2 20ms   rank 2, 20 ms after the first step, wherever it is
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using lesson::Matrix;
using lesson::Net;

constexpr int kLayers = 3, kWidth = 32, kRows = 130, kSteps = 24;
constexpr float kRate = 0.002f;

// The sums of gradients under way on one communicator.
class Reducer {
 public:
  explicit Reducer(tr::Communicator& comm) : comm_(&comm), stream_(must(tr::Stream::create())) {}
  // Begins to sum; the buffer is the caller's until wait.
  void add(std::vector<float>& gradient) {
    if (started_) started_ = comm_->all_reduce(gradient, tr::kSum, stream_);
  }
  tr::Status wait() {
    tr::Status summed =
        stream_.synchronize();  // also after an error: the buffers are in use till then
    tr::Status started = std::exchange(started_, {});
    return started ? summed : started;
  }

 private:
  tr::Communicator* comm_;
  tr::Stream stream_;
  tr::Status started_;
};

void descend(Net& net, const Net& gradient) {
  for (std::size_t l = 0; l < net.size(); ++l) {
    for (std::size_t i = 0; i < net[l].x.size(); ++i) net[l].x[i] -= kRate * gradient[l].x[i];
  }
}

// One step of all ranks; the mean loss of all rows, or why it failed. Then net is as it was.
tr::Result<double> train_step(tr::Communicator& comm, Reducer& reducer, Net& net, const Matrix& all,
                              bool dies) {
  const lesson::Share mine = lesson::share(kRows, comm.rank(), comm.size());
  const std::vector<Matrix> a =
      lesson::forward(net, lesson::row_range(all, mine.first, mine.count));
  Net gradient(net.size());
  lesson::backward(net, a, kRows, gradient, [&](int l) {
    if (dies && l == 0) ::kill(::getpid(), SIGKILL);  // the other layers' sums are under way
    reducer.add(gradient[l].x);
  });
  if (tr::Status done = reducer.wait(); !done) return done.error();
  std::vector<double> loss = {lesson::loss_sum(a.back())};
  if (tr::Status done = comm.all_reduce(loss, tr::kSum); !done) return done.error();
  descend(net, gradient);
  return loss[0] / kRows;
}

// What one rank alone gets: the curve to compare with.
std::vector<double> serial_curve(Net net, const Matrix& all) {
  std::vector<double> curve;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<Matrix> a = lesson::forward(net, all);
    Net gradient(net.size());
    lesson::backward(net, a, kRows, gradient, [](int) {});
    curve.push_back(lesson::loss_sum(a.back()) / kRows);
    descend(net, gradient);
  }
  return curve;
}

void train(int ranks, int rank, const tr_unique_id_t& id, int victim, int last_step_of_victim,
           int started) {
  tr::Communicator comm = must(tr::Communicator::create(ranks, id, rank));
  std::optional<Reducer> reducer(comm);
  const Matrix all = lesson::random(kRows, kWidth, 100);
  const Net start = lesson::make_net(kLayers, kWidth);
  Net net = start, before = start;  // after `curve.size()` steps, and after one less
  std::vector<double> curve;
  std::vector<int> ranks_at;
  for (;;) {
    const bool is_last = curve.size() == kSteps;  // nobody leaves before all are through
    const bool dies = rank == victim && static_cast<int>(curve.size()) == last_step_of_victim;
    Net after = net;
    const tr::Result<double> loss = is_last ? [&]() -> tr::Result<double> {
      if (tr::Status all_here = comm.barrier(); !all_here) return all_here.error();
      return 0.0;
    }()
        : train_step(comm, *reducer, after, all, dies);
    if (loss && is_last) break;
    if (loss) {
      before = std::exchange(net, std::move(after));
      curve.push_back(loss.value());
      ranks_at.push_back(comm.size());
      if (rank == 0 && curve.size() == 1) check(::write(started, "", 1) == 1, "the parent is told");
      continue;
    }
    std::vector<std::int64_t> finished = {static_cast<std::int64_t>(curve.size())};
    reducer.reset();
    tr::Communicator survivors = must(comm.shrink());
    comm = std::move(survivors);
    must(comm.all_reduce(finished, tr::kMin));
    if (finished[0] < static_cast<std::int64_t>(curve.size())) {
      net = before;
      curve.pop_back();
      ranks_at.pop_back();
    }
    reducer.emplace(comm);
    if (comm.rank() == 0) {
      std::printf("%s\n  %d ranks go on with step %d\n", loss.error().message.c_str(), comm.size(),
                  static_cast<int>(curve.size()));
    }
  }
  // All have the same parameters, as ever; a rank may die while they compare them, too.
  std::vector<float> low = net[0].x, high = net[0].x;
  while (!comm.all_reduce(low, tr::kMin) || !comm.all_reduce(high, tr::kMax)) {
    tr::Communicator survivors = must(comm.shrink());
    comm = std::move(survivors);
    low = high = net[0].x;
  }
  check(low == high, "all ranks have the same parameters");
  if (comm.rank() == 0) {
    const std::vector<double> expected = serial_curve(start, all);
    double worst = 0;
    for (int step = 0; step < kSteps; ++step) {
      std::printf("step %2d  %d ranks  loss %.6f  alone %.6f\n", step, ranks_at[step], curve[step],
                  expected[step]);
      worst = std::max(worst, std::abs(curve[step] / expected[step] - 1));
    }
    check(worst < 1e-4, "the curve is that of one rank alone");
    check(curve.back() < 0.5 * curve.front(), "the loss falls");
    std::printf("no step was lost: the largest difference is %.1e of the loss\n", worst);
  }
  must(comm.destroy());
}

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  const int victim = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::string when = argc > 3 ? argv[3] : std::to_string(kSteps / 2);
  const bool by_time = when.ends_with("ms");
  const int moment = std::atoi(when.c_str());
  check(ranks >= 2 && ranks <= 64 && victim >= 0 && victim < ranks && moment >= 0 &&
            (by_time || moment < kSteps),
        "usage: 10_survive [RANKS [THE RANK THAT IS KILLED [IN STEP 0 to 23, or AFTER: 20ms]]]");
  std::array<int, 2> pipe_ends{};
  check(::pipe(pipe_ends.data()) == 0, "a pipe for the unique id");
  std::array<int, 2> started{};
  check(::pipe(started.data()) == 0, "a pipe for the first step's end");
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(::fork());
    check(pids.back() >= 0, "fork");
    if (pids.back() != 0) continue;
    tr_unique_id_t id{};
    if (rank == 0) {
      id = must(tr::Communicator::unique_id());
      for (int other = 1; other < ranks; ++other)
        check(::write(pipe_ends[1], &id, sizeof id) == sizeof id, "the unique id is passed on");
    } else {
      ::close(pipe_ends[1]);
      check(::read(pipe_ends[0], &id, sizeof id) == sizeof id, "rank 0 made a unique id");
    }
    train(ranks, rank, id, by_time ? -1 : victim, moment, started[1]);
    std::exit(0);
  }
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  if (by_time) {
    char byte = 0;
    check(::read(started[0], &byte, 1) == 1, "the first step is done");
    ::usleep(static_cast<useconds_t>(moment) * 1000);
    ::kill(pids[victim], SIGKILL);
  }
  bool as_expected = true;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::waitpid(pids[rank], &status, 0);
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    as_expected &= rank == victim ? was_killed || (by_time && finished) : finished;
  }
  check(as_expected, "one rank was killed, and all others have finished");
}
