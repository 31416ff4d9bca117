// Memory under the kernels: flags, data, the lines of the protocols. As ptx.cuh: what differs
// between a GPU and the emulator, the two bodies side by side.
//
// "System scope" means: seen in this order by all GPUs and the CPU. Every pointer is to global
// memory: of this GPU, of a peer, or pinned host memory. "Line" is what one protocol moves as a
// whole.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "algos/cuda/fault.cuh"
#include "algos/cuda/ptx.cuh"

namespace treering::cuda {

struct alignas(16) Vec16 {
  std::uint64_t lo;
  std::uint64_t hi;
};

#ifdef __CUDACC__
namespace detail {
template <class T>
TR_DEVICE std::uint64_t global(const T* p) {
  return __cvta_generic_to_global(p);
}
}  // namespace detail
#endif

// --- Flags: aligned words of 32 or 64 bits, at system scope --------------------------------------

template <class T>
concept Flag = std::same_as<T, std::uint32_t> || std::same_as<T, std::uint64_t>;

#ifdef __CUDACC__
// The two forms of an instruction on a flag.
#define TR_PTX_LOAD(order, out, p)                       \
  if constexpr (sizeof(out) == 8) {                      \
    asm volatile("ld." order ".sys.global.u64 %0, [%1];" \
                 : "=l"(out)                             \
                 : "l"(detail::global(p))                \
                 : "memory");                            \
  } else {                                               \
    asm volatile("ld." order ".sys.global.u32 %0, [%1];" \
                 : "=r"(out)                             \
                 : "l"(detail::global(p))                \
                 : "memory");                            \
  }
#define TR_PTX_STORE(order, p, v)                        \
  if constexpr (sizeof(v) == 8) {                        \
    asm volatile("st." order ".sys.global.u64 [%0], %1;" \
                 :                                       \
                 : "l"(detail::global(p)), "l"(v)        \
                 : "memory");                            \
  } else {                                               \
    asm volatile("st." order ".sys.global.u32 [%0], %1;" \
                 :                                       \
                 : "l"(detail::global(p)), "r"(v)        \
                 : "memory");                            \
  }
#endif

// What other threads wrote before their store_release of the value read is visible afterwards.
template <Flag T>
TR_DEVICE T load_acquire(const T* p) {
#ifdef __CUDACC__
  T v;
  TR_PTX_LOAD("acquire", v, p)
  return v;
#else
  return cudasim::load<__ATOMIC_ACQUIRE>(p);
#endif
}

// A fresh value, no order: for an abort flag, or where a later load_acquire orders.
template <Flag T>
TR_DEVICE T load_relaxed(const T* p) {
#ifdef __CUDACC__
  T v;
  TR_PTX_LOAD("relaxed", v, p)
  return v;
#else
  return cudasim::load<__ATOMIC_RELAXED>(p);
#endif
}

// All that this thread wrote before, and all that it has seen at a barrier, is visible to whoever
// reads the value with load_acquire.
template <Flag T>
TR_DEVICE void store_release(T* p, std::type_identity_t<T> v) {
#ifdef __CUDACC__
  TR_PTX_STORE("release", p, v)
#else
  cudasim::store<__ATOMIC_RELEASE>(p, v);
#endif
}

// Arrives, orders nothing: partner of load_relaxed.
template <Flag T>
TR_DEVICE void store_relaxed(T* p, std::type_identity_t<T> v) {
#ifdef __CUDACC__
  TR_PTX_STORE("relaxed", p, v)
#else
  cudasim::store<__ATOMIC_RELAXED>(p, v);
#endif
}

#ifdef __CUDACC__
#undef TR_PTX_LOAD
#undef TR_PTX_STORE
#endif

// Adds, returns what was there; releases as store_release and acquires as load_acquire.
template <Flag T>
TR_DEVICE T fetch_add(T* p, std::type_identity_t<T> v) {
#ifdef __CUDACC__
  T old;
  if constexpr (sizeof(T) == 8) {
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(detail::global(p)), "l"(v)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(detail::global(p)), "r"(v)
                 : "memory");
  }
  return old;
#else
  return cudasim::fetch_add<__ATOMIC_ACQ_REL>(p, v);
#endif
}

// Orders all accesses of this thread, at system scope. (ThreadSanitizer does not see it: publish
// with store_release where you can.)
TR_DEVICE void fence_system() {
#ifdef __CUDACC__
  __threadfence_system();
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// --- Data: 16 aligned bytes ----------------------------------------------------------------------

// Memory of which this thread is the only user, or whose writers a flag or barrier has ordered.
TR_DEVICE Vec16 load_vec(const Vec16* p) {
#ifdef __CUDACC__
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  return {v.x, v.y};
#else
  cudasim::check_access(p, sizeof *p);
  return *p;
#endif
}
TR_DEVICE void store_vec(Vec16* p, Vec16 v) {
#ifdef __CUDACC__
  *reinterpret_cast<ulonglong2*>(p) = make_ulonglong2(v.lo, v.hi);
#else
  cudasim::check_access(p, sizeof *p);
  *p = v;
#endif
}

// The same, for data that is used once: it need not stay in the caches.
TR_DEVICE Vec16 load_vec_streaming(const Vec16* p) {
#ifdef __CUDACC__
  const ulonglong2 v = __ldcs(reinterpret_cast<const ulonglong2*>(p));
  return {v.x, v.y};
#else
  return load_vec(p);
#endif
}
TR_DEVICE void store_vec_streaming(Vec16* p, Vec16 v) {
#ifdef __CUDACC__
  __stcs(reinterpret_cast<ulonglong2*>(p), make_ulonglong2(v.lo, v.hi));
#else
  store_vec(p, v);
#endif
}

// Memory that a peer may be writing or reading: never from a stale cache, each 8-byte half whole,
// no order.
TR_DEVICE Vec16 load_vec_relaxed(const Vec16* p) {
  Vec16 v;
#ifdef __CUDACC__
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.lo), "=l"(v.hi)
               : "l"(detail::global(p))
               : "memory");
#else
  cudasim::check_access(p, sizeof *p);
  v.lo = __atomic_load_n(&p->lo, __ATOMIC_RELAXED);
  v.hi = __atomic_load_n(&p->hi, __ATOMIC_RELAXED);
#endif
  return v;
}
TR_DEVICE void store_vec_relaxed(Vec16* p, Vec16 v) {
#ifdef __CUDACC__
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(detail::global(p)), "l"(v.lo),
               "l"(v.hi)
               : "memory");
#else
  cudasim::check_access(p, sizeof *p);
  __atomic_store_n(&p->lo, v.lo, __ATOMIC_RELAXED);
  __atomic_store_n(&p->hi, v.hi, __ATOMIC_RELAXED);
#endif
}

// --- Protocol LL: each 4 bytes of data travel with their flag ------------------------------------

struct alignas(16) LlLine {
  std::uint32_t data0, flag0, data1, flag1;
};

// Each half, data and flag, arrives whole; the halves in any order. Partner: ll_load.
TR_DEVICE void ll_store(LlLine* line, std::uint64_t data, std::uint32_t flag) {
  const auto low = static_cast<std::uint32_t>(data);
  const auto high = static_cast<std::uint32_t>(data >> 32);
#ifdef __CUDACC__
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(detail::global(line)),
               "r"(low), "r"(flag), "r"(high), "r"(flag)
               : "memory");
#else
  cudasim::check_access(line, sizeof *line);
  cudasim::before_access();
  auto* halves = reinterpret_cast<std::uint64_t*>(line);
  const std::uint64_t half[2] = {std::uint64_t{flag} << 32 | low, std::uint64_t{flag} << 32 | high};
  const int first = cudasim::coin() ? 1 : 0;
  __atomic_store_n(halves + first, half[first], __ATOMIC_RELAXED);
  cudasim::after_post();
  __atomic_store_n(halves + 1 - first, half[1 - first], __ATOMIC_RELAXED);
  cudasim::after_post();
#endif
}

// True, and *data set, if both halves have the flag. Partner: ll_store.
TR_DEVICE bool ll_load(const LlLine* line, std::uint32_t flag, std::uint64_t* data) {
  std::uint32_t low, flag0, high, flag1;
#ifdef __CUDACC__
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(low), "=r"(flag0), "=r"(high), "=r"(flag1)
               : "l"(detail::global(line))
               : "memory");
#else
  cudasim::check_access(line, sizeof *line);
  cudasim::before_access();
  const auto* halves = reinterpret_cast<const std::uint64_t*>(line);
  const std::uint64_t half0 = __atomic_load_n(halves, __ATOMIC_RELAXED);
  const std::uint64_t half1 = __atomic_load_n(halves + 1, __ATOMIC_RELAXED);
  low = static_cast<std::uint32_t>(half0);
  flag0 = static_cast<std::uint32_t>(half0 >> 32);
  high = static_cast<std::uint32_t>(half1);
  flag1 = static_cast<std::uint32_t>(half1 >> 32);
#endif
  *data = std::uint64_t{high} << 32 | low;
  return flag0 == flag && (flag1 == flag || kFault == Fault::kOneFlagOfTwo);
}

// --- Protocol LL128: 120 bytes of data and an 8-byte flag, in lines of 128 bytes -----------------
//
// A warp moves four lines at `lines` (512 bytes, aligned to 128), lane i the 16 bytes at lines + i.
// Lane 7 of each 8 has the flag in `hi`. All 32 lanes call.

TR_DEVICE bool ll128_has_flag() { return lane_id() % 8 == 7; }

// Each line arrives whole, the four in any order. The `hi` of the flag lanes is replaced by the
// flag. Partner: ll128_arrived.
TR_DEVICE void ll128_store(Vec16* lines, Vec16 v, std::uint64_t flag,
                           [[maybe_unused]] Where where = Where::here()) {
  Vec16* const mine = lines + lane_id();
  if (ll128_has_flag()) v.hi = flag;
#ifdef __CUDACC__
  __syncwarp(kFullWarp);  // one instruction of eight lanes together is one store of a line
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(detail::global(mine)), "l"(v.lo),
               "l"(v.hi)
               : "memory");
#else
  // Lanes run one at a time: a line's flag must come after the last of its data. Two of the lines
  // are stored before the other two, which differs from message to message.
  cudasim::check_access(lines, 128);
  cudasim::check_access(mine, sizeof *mine);
  const bool is_first = (static_cast<std::uint64_t>(lane_id()) / 8 + flag) % 2 == 0;
  for (const bool turn : {true, false}) {
    if (is_first == turn) {
      __atomic_store_n(&mine->lo, v.lo, __ATOMIC_RELAXED);
      if (!ll128_has_flag()) __atomic_store_n(&mine->hi, v.hi, __ATOMIC_RELAXED);
    }
    __syncwarp(kFullWarp, where);
    if (is_first == turn && ll128_has_flag()) {
      __atomic_store_n(&mine->hi, v.hi, __ATOMIC_RELEASE);
      cudasim::after_post();
    }
  }
#endif
}

// True on all lanes if all four lines have the flag. Partner: ll128_store.
TR_DEVICE bool ll128_arrived(const Vec16* lines, std::uint64_t flag,
                             [[maybe_unused]] Where where = Where::here()) {
  const std::uint64_t* const mine = &lines[lane_id()].hi;
  const bool asks = kFault == Fault::kOneFlagOfFour ? lane_id() == 7 : ll128_has_flag();
#ifdef __CUDACC__
  std::uint64_t found = flag;
  if (asks) {
    asm volatile("ld.volatile.global.u64 %0, [%1];"
                 : "=l"(found)
                 : "l"(detail::global(mine))
                 : "memory");
  }
  return !any(kFullWarp, found != flag);
#else
  cudasim::check_access(lines, 128);
  cudasim::before_access();
  const bool is_missing = asks && __atomic_load_n(mine, __ATOMIC_ACQUIRE) != flag;
  return cudasim::warp(cudasim::WarpOp::kBallotSync, kFullWarp, is_missing, 0, where) == 0;
#endif
}

// The lane's part of lines that have arrived. (Not with the same load as the flag: the lanes of a
// load need not see memory at the same time. NCCL loads twice, too.)
TR_DEVICE Vec16 ll128_load(const Vec16* lines) {
  const Vec16* const mine = lines + lane_id();
  Vec16 v;
#ifdef __CUDACC__
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.lo), "=l"(v.hi)
               : "l"(detail::global(mine))
               : "memory");
#else
  cudasim::check_access(mine, sizeof *mine);
  v.lo = __atomic_load_n(&mine->lo, __ATOMIC_RELAXED);
  v.hi = __atomic_load_n(&mine->hi, __ATOMIC_RELAXED);
#endif
  return v;
}

}  // namespace treering::cuda
