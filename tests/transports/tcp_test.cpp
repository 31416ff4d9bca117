// TCP between hosts that ranks of this machine play, and shared memory within them.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "tests/transports/every_link.hpp"
#include "tests/transports/ranks.hpp"
#include "transports/registry.hpp"

namespace treering::test {
namespace {

using Hosts = std::vector<int>;

TransportOptions on_host(const Hosts& hosts, int rank) {
  TransportOptions options = small_links();
  options.host_id = "host " + std::to_string(hosts[static_cast<std::size_t>(rank)]);
  return options;
}

std::string text_of(const Hosts& hosts) {
  std::string text;
  for (const int host : hosts) text += std::to_string(host);
  return text;
}

// Waits until `f` is true, driving the links meanwhile.
template <class F>
bool wait_for(Transport& transport, F f) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!f()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    if (transport.pump() == nullptr || !transport.pump()->progress()) ::sched_yield();
  }
  return true;
}

class TcpLinks : public testing::TestWithParam<std::tuple<Hosts, int>> {};

// Hosts by rank; threads per process, 0: all ranks are threads of this process.
TEST_P(TcpLinks, EveryLinkCarriesItsMessages) {
  const auto& [hosts, threads] = GetParam();
  const Body body = [&hosts = hosts](TestRendezvous& r) {
    return use_every_link(r, on_host(hosts, r.rank()));
  };
  const int ranks = static_cast<int>(hosts.size());
  EXPECT_EQ(threads == 0 ? run_threads(ranks, body) : run_processes(ranks, body, threads), "");
}
std::string name_of(const testing::TestParamInfo<TcpLinks::ParamType>& info) {
  return "hosts" + text_of(std::get<0>(info.param)) + "threads" +
         std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Threads, TcpLinks,
                         testing::Combine(testing::Values(Hosts{0, 1}, Hosts{0, 0, 1},
                                                          Hosts{0, 1, 0, 1}, Hosts{0, 1, 2, 3}),
                                          testing::Values(0)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Processes, TcpLinks,
                         testing::Combine(testing::Values(Hosts{0, 1}, Hosts{0, 1, 1, 0},
                                                          Hosts{0, 0, 1, 1, 2}),
                                          testing::Values(1)),
                         name_of);

TEST(Tcp, SeveralConnectionsAndChecksumsCarryTheSame) {
  EXPECT_EQ(run_processes(3,
                          [](TestRendezvous& r) {
                            TransportOptions options = on_host({0, 1, 2}, r.rank());
                            options.sockets = 3;
                            options.checksum = true;
                            return use_every_link(r, options);
                          }),
            "");
}

TEST(Tcp, SaysHowRanksAreReached) {
  EXPECT_EQ(run_processes(3,
                          [](TestRendezvous& r) -> std::string {
                            auto connected = connect_transport(r, on_host({0, 1, 0}, r.rank()));
                            TR_MUST_OK(connected.status());
                            Transport& transport = *connected.value();
                            TR_MUST(transport.host_of_rank() == (Hosts{0, 1, 0}));
                            for (int peer = 0; peer < 3; ++peer) {
                              const bool here = (peer == 1) == (r.rank() == 1);
                              const std::string text = transport.describe(peer);
                              TR_MUST(text.starts_with(here ? "shared memory: " : "TCP: at "));
                            }
                            TR_MUST(!transport.map_windows(nullptr, 0, r).ok());
                            return r.barrier();
                          }),
            "");
}

// One host needs no network: no descriptor, no thread, and no pump that anybody would drive.
TEST(Tcp, OneHostHasNone) {
  EXPECT_EQ(run_processes(2,
                          [](TestRendezvous& r) -> std::string {
                            auto connected = connect_transport(r, on_host({0, 0}, r.rank()));
                            TR_MUST_OK(connected.status());
                            TR_MUST_EQ(connected.value()->name(), "shm");
                            TR_MUST(connected.value()->pump() == nullptr);
                            return r.barrier();
                          }),
            "");
}

// What a rank has posted arrives though it has left at once, and is followed by its leave.
TEST(Tcp, WhatWasPostedArrivesThoughItsRankHasLeft) {
  EXPECT_EQ(run_processes(2,
                          [](TestRendezvous& r) -> std::string {
                            auto connected = connect_transport(r, on_host({0, 1}, r.rank()));
                            TR_MUST_OK(connected.status());
                            Transport& transport = *connected.value();
                            const LinkId link{LinkId::Kind::kPair, 0, 0, 1};
                            constexpr std::size_t kBytes = 32 << 10;
                            constexpr std::uint64_t kCount = 15;
                            if (r.rank() == 0) {
                              FifoTx& tx = *transport.tx(link).value();
                              for (std::uint64_t m = 0; m < kCount; ++m) {
                                TR_MUST(tx_ready(tx, kBytes, kBytes));
                                std::memset(tx_payload(tx, kBytes), static_cast<int>(m), kBytes);
                                tx_post(tx, m);
                              }
                              transport.board(0).state.store(RankState::kFinalized,
                                                             std::memory_order_release);
                              transport.leave(std::chrono::seconds(20));
                              return "";
                            }
                            FifoRx& rx = *transport.rx(link).value();
                            ::usleep(200'000);  // so that rank 0 is likely gone
                            for (std::uint64_t m = 0; m < kCount; ++m) {
                              TR_MUST(wait_for(transport, [&] { return rx_ready(rx); }));
                              TR_MUST(rx_line(rx).signature == m);
                              const std::byte* const payload = rx_payload(rx, kBytes, kBytes);
                              for (std::size_t i = 0; i < kBytes; ++i)
                                TR_MUST(payload[i] == std::byte(m));
                              rx_release(rx);
                            }
                            TR_MUST(wait_for(transport, [&] { return transport.has_ended(0); }));
                            TR_MUST_OK(transport.check_peers());
                            return "";
                          }),
            "");
}

// H35: TCP_NODELAY on both ends of every connection, and header and payload in one call: a thousand
// ping-pongs without a pause of the kernel's. Such a pause is 40 ms, so even a few would show.
TEST(Tcp, H35SmallMessagesAreNotKeptBack) {
  EXPECT_EQ(
      run_processes(2,
                    [](TestRendezvous& r) -> std::string {
                      auto connected = connect_transport(r, on_host({0, 1}, r.rank()));
                      TR_MUST_OK(connected.status());
                      Transport& transport = *connected.value();
                      const int me = r.rank();
                      FifoTx& tx = *transport.tx({LinkId::Kind::kPair, 0, me, 1 - me}).value();
                      FifoRx& rx = *transport.rx({LinkId::Kind::kPair, 0, 1 - me, me}).value();
                      std::vector<double> ms;
                      for (std::uint64_t m = 0; m < 1000; ++m) {
                        const std::size_t bytes = m % 2 == 0 ? 8 : 1000;
                        const auto start = std::chrono::steady_clock::now();
                        for (const bool sends : {me == 0, me == 1}) {
                          if (sends) {
                            TR_MUST(wait_for(transport, [&] { return tx_ready(tx, bytes, 1024); }));
                            (void)tx_payload(tx, bytes);
                            tx_post(tx, m);
                            transport.pump()->flush();
                          } else {
                            TR_MUST(wait_for(transport, [&] { return rx_ready(rx); }));
                            rx_release(rx);
                          }
                        }
                        const auto took = std::chrono::steady_clock::now() - start;
                        ms.push_back(std::chrono::duration<double, std::milli>(took).count());
                      }
                      std::sort(ms.begin(), ms.end());
                      TR_MUST(ms[500] < 20);  // half of them, on however busy a machine
                      return r.barrier();
                    }),
      "");
}

// A rank's state reaches the others at once, though they do nothing but compute.
TEST(Tcp, BoardsAreMirrored) {
  EXPECT_EQ(run_processes(
                3,
                [](TestRendezvous& r) -> std::string {
                  auto connected = connect_transport(r, on_host({0, 1, 1}, r.rank()));
                  TR_MUST_OK(connected.status());
                  Transport& transport = *connected.value();
                  Board& own = transport.board(r.rank());
                  TR_MUST_OK(transport.check_peers());
                  TR_MUST_EQ(r.barrier(), "");
                  if (r.rank() == 0) {
                    own.issued.store(412, std::memory_order_relaxed);
                    own.ops[3].count.store(77, std::memory_order_relaxed);
                    own.ops[3].sequence.store(4, std::memory_order_release);
                    std::strcpy(own.cause, "the disk is full");
                    own.code.store(static_cast<std::uint32_t>(Code::kSystem),
                                   std::memory_order_relaxed);
                    own.state.store(RankState::kFailed, std::memory_order_release);
                    transport.push_board();
                    return r.barrier();
                  }
                  Board& mirror = transport.board(0);
                  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                  while (mirror.state.load(std::memory_order_acquire) != RankState::kFailed)
                    TR_MUST(std::chrono::steady_clock::now() < limit);
                  TR_MUST(mirror.issued.load(std::memory_order_relaxed) == 412);
                  TR_MUST(mirror.ops[3].sequence.load(std::memory_order_relaxed) == 4);
                  TR_MUST(mirror.ops[3].count.load(std::memory_order_relaxed) == 77);
                  const Status status = transport.check_peers();
                  TR_MUST_EQ(status.message(), "rank 0 failed: the disk is full");
                  TR_MUST(status.code() == Code::kSystem);
                  return r.barrier();
                }),
            "");
}

// A question brings the board of a rank that computes: the mirror follows without a push.
TEST(Tcp, ARankThatComputesAnswers) {
  EXPECT_EQ(run_processes(2,
                          [](TestRendezvous& r) -> std::string {
                            auto connected = connect_transport(r, on_host({0, 1}, r.rank()));
                            TR_MUST_OK(connected.status());
                            Transport& transport = *connected.value();
                            if (r.rank() == 0) {
                              transport.board(0).issued.store(5, std::memory_order_relaxed);
                              TR_MUST_EQ(r.barrier(), "");
                              return r.barrier();
                            }
                            TR_MUST_EQ(r.barrier(), "");
                            const Board& mirror = transport.board(0);
                            TR_MUST(wait_for(transport, [&] {
                              (void)transport.check_peers().ok();
                              return mirror.issued.load(std::memory_order_relaxed) == 5;
                            }));
                            return r.barrier();
                          }),
            "");
}

TEST(Tcp, AKilledRankIsNamed) {
  SurvivorBarrier survivors(2);
  EXPECT_EQ(run_processes(3,
                          [&](TestRendezvous& r) -> std::string {
                            auto connected = connect_transport(r, on_host({0, 1, 2}, r.rank()));
                            TR_MUST_OK(connected.status());
                            Transport& transport = *connected.value();
                            if (r.rank() == 1) ::kill(::getpid(), SIGKILL);
                            Status status;
                            TR_MUST(wait_for(transport, [&] {
                              status = transport.check_peers();
                              return !status.ok();
                            }));
                            TR_MUST(status.code() == Code::kRemote);
                            TR_MUST(status.message().starts_with("rank 1 (at "));
                            TR_MUST(status.message().ends_with(") ended"));
                            TR_MUST(transport.has_ended(1));
                            TR_MUST(survivors.wait());
                            return "";
                          },
                          1, {1}),
            "");
}

// H16: a forked child neither harms its parent's connections nor keeps them open.
TEST(Tcp, H16AForkedChildDoesNotHideItsParentsEnd) {
  SurvivorBarrier survivors(2);  // the child and rank 0
  EXPECT_EQ(
      run_processes(2,
                    [&](TestRendezvous& r) -> std::string {
                      auto connected = connect_transport(r, on_host({0, 1}, r.rank()));
                      TR_MUST_OK(connected.status());
                      Transport& transport = *connected.value();
                      if (r.rank() == 1) {
                        const pid_t parent = ::getpid();
                        const pid_t child = ::fork();
                        if (child == 0) {
                          connected.value().reset();  // as a destructor at exit would
                          ::kill(parent, SIGKILL);
                          (void)survivors.wait();  // lives until rank 0 has noticed, or ten seconds
                          ::_exit(0);
                        }
                        for (;;) ::pause();
                      }
                      Status status;
                      const auto start = std::chrono::steady_clock::now();
                      TR_MUST(wait_for(transport, [&] {
                        status = transport.check_peers();
                        return !status.ok();
                      }));
                      TR_MUST(std::chrono::steady_clock::now() - start < std::chrono::seconds(9));
                      TR_MUST(status.message().ends_with(") ended"));
                      TR_MUST(survivors.wait());
                      return "";
                    },
                    1, {1}),
      "");
}

TEST(Tcp, AnUnknownInterfaceIsAnErrorOnAllRanks) {
  EXPECT_EQ(run_threads(2,
                        [](TestRendezvous& r) -> std::string {
                          TransportOptions options = on_host({0, 1}, r.rank());
                          if (r.rank() == 1) options.interfaces = "nosuch0";
                          const Status status = connect_transport(r, options).status();
                          TR_MUST(status.code() == Code::kInvalidArgument);
                          TR_MUST(status.message().find("rank 1: ") == 0);
                          TR_MUST(status.message().find("nosuch0") != std::string::npos);
                          return "";
                        }),
            "");
}

}  // namespace
}  // namespace treering::test
