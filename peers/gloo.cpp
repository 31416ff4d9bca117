// Gloo over TCP on the loopback as a worker of `treering perf`. Its ranks meet through a file store
// in the driver's private directory.
//
// Settings. all_reduce: ring and bcube of gloo::allreduce; the older halving_doubling, and it and
// ring_chunked with synchronous sockets (Pair::setSync), which are Gloo's fastest at some sizes.
// reduce_scatter: only the older halving_doubling, also with synchronous sockets. Others: one.
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "peers/gloo_reduce.hpp"
#include "perf/case.hpp"
#include "perf/failure.hpp"
#include "perf/wire.hpp"
#include "perf/worker.hpp"

namespace treering::perf {
namespace {

using ContextPtr = std::shared_ptr<gloo::rendezvous::Context>;

// Gloo answers with exceptions; they end here.
Failure guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return std::string(error.what());
  }
  return std::nullopt;
}

class GlooLibrary final : public Library {
 public:
  GlooLibrary(ContextPtr async, ContextPtr sync)
      : async_(std::move(async)), sync_(std::move(sync)) {}

  int rank() const override { return async_->rank; }
  int ranks() const override { return async_->size; }
  std::string version() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
           "." + std::to_string(GLOO_VERSION_PATCH) + ", TCP";
  }

  std::vector<std::string> settings(const Case& what, std::string* why) override {
    if (what.op == Op::kScan || what.op == Op::kExscan) {
      *why = "Gloo has no scan";
    } else if (what.op == Op::kAllToAll && what.in_place != 0) {
      *why = "Gloo has no all_to_all in place";
    } else if (reduces(what.op) && !has_gloo_red_op(what.redop)) {
      *why = std::string("Gloo has no ") + red_op_name(what.redop);
    } else if (reduces(what.op) && !with_gloo_type(what.type, false, [](auto) {})) {
      *why = std::string("Gloo has no ") + type_name(what.type);
    } else if (what.op == Op::kAllReduce) {
      std::vector<std::string> names = {"ring", "bcube"};
      if (what.count <= INT_MAX) {  // the older templates count in ints
        names.insert(names.end(),
                     {"halving_doubling", "halving_doubling_sync", "ring_chunked_sync"});
      }
      return names;
    } else if (what.op == Op::kReduceScatter) {
      if (send_elems(what, ranks()) <= INT_MAX)
        return {"halving_doubling", "halving_doubling_sync"};
      *why = "Gloo's reduce_scatter counts in ints";
    } else {
      return {""};
    }
    return {};
  }

  // The settings take turns, and their objects are costly to make: those of one case are kept.
  Failure prepare(const std::string& setting, const Case& what, void* send, void* recv) override {
    return guarded([&] {
      if (what != what_ || send != send_ || recv != recv_) prepared_.clear();
      what_ = what;
      send_ = static_cast<char*>(send);
      recv_ = static_cast<char*>(recv);
      const auto [entry, is_new] = prepared_.try_emplace(setting);
      now_ = &entry->second;
      if (!is_new) return;
      if (!reduces(what.op)) {
        prepare_move();
        return;
      }
      with_gloo_type(what.type, !needs_sign(what.redop), [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (what.op == Op::kReduce) {
          prepare_reduce<T>();
        } else if (what.op == Op::kReduceScatter) {
          prepare_reduce_scatter<T>(setting);
        } else if (setting == "ring" || setting == "bcube") {
          prepare_all_reduce<T>(setting);
        } else {
          prepare_older_all_reduce<T>(setting);
        }
      });
    });
  }

  Failure run(std::uint64_t times) override {
    return guarded([&] {
      for (std::uint64_t i = 0; i < times; ++i) now_->call();
    });
  }

  Failure barrier() override {
    return guarded([&] {
      gloo::BarrierOptions options(async_);
      gloo::barrier(options);
    });
  }

 private:
  // The objects behind a call; the call ends first.
  struct Prepared {
    std::vector<char> scratch;
    std::unique_ptr<gloo::Algorithm> algorithm;
    std::function<void()> call;
  };

  std::size_t bytes() const { return what_.count * type_bytes(what_.type); }
  bool at_root() const { return rank() == what_.root; }
  bool in_place() const { return what_.in_place != 0; }

  template <class T>
  void prepare_all_reduce(const std::string& setting) {
    using Options = gloo::AllreduceOptions;
    auto options = std::make_shared<Options>(async_);
    if (!in_place()) options->setInput(reinterpret_cast<T*>(send_), what_.count);
    options->setOutput(reinterpret_cast<T*>(recv_), what_.count);
    options->setAlgorithm(setting == "ring" ? Options::Algorithm::RING : Options::Algorithm::BCUBE);
    options->setReduceFunction(gloo_function<T>(what_.redop));
    now_->call = [options] { gloo::allreduce(*options); };
  }

  template <class T>
  void prepare_reduce() {
    auto options = std::make_shared<gloo::ReduceOptions>(async_);
    // Gloo wants room for intermediate results on every rank.
    if (!in_place()) options->setInput(reinterpret_cast<T*>(send_), what_.count);
    options->setOutput(reinterpret_cast<T*>(recv_), what_.count);
    options->setRoot(what_.root);
    options->setReduceFunction(gloo_function<T>(what_.redop));
    now_->call = [options] { gloo::reduce(*options); };
  }

  // The older templates work in place: out of place the input is copied first, as a caller would
  // have to.
  template <class T>
  void prepare_older_all_reduce(const std::string& setting) {
    const ContextPtr& context = setting == "halving_doubling" ? async_ : sync_;
    const std::vector<T*> pointers = {reinterpret_cast<T*>(recv_)};
    const int count = static_cast<int>(what_.count);
    if (setting == "ring_chunked_sync") {
      now_->algorithm = std::make_unique<gloo::AllreduceRingChunked<T>>(
          context, pointers, count, gloo_reduction<T>(what_.redop));
    } else {
      now_->algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
          context, pointers, count, gloo_reduction<T>(what_.redop));
    }
    now_->call = [this, algorithm = now_->algorithm.get()] {
      if (recv_ != send_) std::memcpy(recv_, send_, bytes());
      algorithm->run();
    };
  }

  // Overwrites its input and leaves the result at its start, so both placements need copies around
  // it.
  template <class T>
  void prepare_reduce_scatter(const std::string& setting) {
    const int total = static_cast<int>(send_elems(what_, ranks()));
    if (!in_place()) now_->scratch.resize(bytes() * static_cast<std::size_t>(ranks()));
    char* work = in_place() ? send_ : now_->scratch.data();
    now_->algorithm = std::make_unique<gloo::ReduceScatterHalvingDoubling<T>>(
        setting == "halving_doubling" ? async_ : sync_, std::vector<T*>{reinterpret_cast<T*>(work)},
        total, std::vector<int>(static_cast<std::size_t>(ranks()), static_cast<int>(what_.count)),
        gloo_reduction<T>(what_.redop));
    now_->call = [this, work, algorithm = now_->algorithm.get()] {
      if (work != send_) std::memcpy(work, send_, bytes() * static_cast<std::size_t>(ranks()));
      algorithm->run();
      if (work != recv_) std::memmove(recv_, work, bytes());
    };
  }

  // Moves are of bytes, whatever the type.
  void prepare_move() {
    const std::size_t one = bytes();
    const std::size_t all = one * static_cast<std::size_t>(ranks());
    switch (what_.op) {
      case Op::kBroadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(async_);
        if (at_root() && !in_place()) options->setInput(send_, one);
        options->setOutput(recv_, one);
        options->setRoot(what_.root);
        now_->call = [options] { gloo::broadcast(*options); };
        break;
      }
      case Op::kAllGather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(async_);
        if (!in_place()) options->setInput(send_, one);
        options->setOutput(recv_, all);
        now_->call = [options] { gloo::allgather(*options); };
        break;
      }
      case Op::kGather: {
        auto options = std::make_shared<gloo::GatherOptions>(async_);
        options->setInput(send_, one);
        if (at_root()) options->setOutput(recv_, all);
        options->setRoot(what_.root);
        now_->call = [options] { gloo::gather(*options); };
        break;
      }
      case Op::kScatter: {
        auto options = std::make_shared<gloo::ScatterOptions>(async_);
        if (at_root()) {
          std::vector<char*> parts;
          for (std::size_t i = 0; i < all; i += one) parts.push_back(send_ + i);
          options->setInputs(parts, one);
        }
        options->setOutput(recv_, one);
        options->setRoot(what_.root);
        now_->call = [options] { gloo::scatter(*options); };
        break;
      }
      case Op::kAllToAll: {
        auto options = std::make_shared<gloo::AlltoallOptions>(async_);
        options->setInput(send_, all);
        options->setOutput(recv_, all);
        now_->call = [options] { gloo::alltoall(*options); };
        break;
      }
      case Op::kSendRecv: {
        std::shared_ptr<gloo::transport::UnboundBuffer> from =
            async_->createUnboundBuffer(send_, one);
        std::shared_ptr<gloo::transport::UnboundBuffer> to =
            async_->createUnboundBuffer(recv_, one);
        const int next = (rank() + 1) % ranks();
        const int previous = (rank() + ranks() - 1) % ranks();
        now_->call = [=] {
          to->recv(previous, 0);
          from->send(next, 0);
          from->waitSend();
          to->waitRecv();
        };
        break;
      }
      default:
        now_->call = [this] {
          gloo::BarrierOptions options(async_);
          gloo::barrier(options);
        };
    }
  }

  ContextPtr async_;
  ContextPtr sync_;
  Case what_;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  std::map<std::string, Prepared> prepared_;  // by setting, of what_ and its buffers
  Prepared* now_ = nullptr;
};

int variable_or(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

ContextPtr connect(const std::string& name, bool sync) {
  const int rank = variable_or("RANK", 0);
  const int size = variable_or("WORLD_SIZE", 1);
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore files(std::getenv(kDirVariable));
  gloo::rendezvous::PrefixStore store(name, files);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  for (int peer = 0; sync && peer < size; ++peer) {
    if (peer != rank) context->getPair(peer)->setSync(true, false);
  }
  return context;
}

}  // namespace
}  // namespace treering::perf

int main() {
  using namespace treering::perf;
  limit_start_up();
  if (std::getenv(kDirVariable) == nullptr) {
    std::fprintf(stderr, "treering-peer-gloo is started by `treering perf ... --against gloo`\n");
    return 2;
  }
  ContextPtr async, sync;
  if (Failure failure = guarded([&] {
        async = connect("async", false);
        sync = connect("sync", true);
      })) {
    std::fprintf(stderr, "Gloo cannot connect its ranks: %s\n", failure->c_str());
    return 1;
  }
  GlooLibrary library(async, sync);
  return run_worker(library);
}
