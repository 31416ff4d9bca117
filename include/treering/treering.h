/* Treering: collective communication on host memory and on GPUs.
 *
 * This is the whole C API. It has NCCL's shape and vocabulary on purpose; where it differs, the
 * comment says so. Every function returns a tr_result_t; on any error the text that explains it is
 * tr_get_last_error() on the calling thread. No function throws or exits. Warnings go to stderr;
 * TR_LOG=off silences them, TR_LOG=info and TR_LOG=debug ask for more.
 *
 * Words: a *rank* is one participant of a communicator (a process or a thread), 0..size-1. A count
 * is in elements of the given type, 64 bits, and zero is legal. `sendbuf` is only read, `recvbuf`
 * only written, except in place. Buffers may have any alignment that is a multiple of the element
 * size. Both buffers of a call lie in host memory or both in device memory; with device memory the
 * stream is NULL or one from tr_stream_from_cuda.
 *
 * Threads: a communicator may be used by one thread at a time; a second thread that enters at the
 * same time gets TR_INVALID_USAGE and nothing happens. tr_comm_abort and tr_comm_get_async_error
 * may be called from any thread at any time. Different communicators are independent.
 *
 * Errors: TR_INVALID_ARGUMENT, TR_INVALID_USAGE and TR_UNSUPPORTED mean that nothing happened and
 * the communicator is as before. TR_SYSTEM_ERROR, TR_REMOTE_ERROR, TR_TIMEOUT, TR_MISMATCH and
 * TR_ABORTED leave the communicator failed: every later call on it returns the same error; the
 * other ranks get one as soon as they wait for this rank. The error names the first cause, on every
 * rank. Destroy it, after tr_comm_shrink if the ranks that are left should go on. Received data is
 * undefined after them.
 */
#ifndef TREERING_TREERING_H_
#define TREERING_TREERING_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || !defined(__GNUC__)
#define TR_API
#else
#define TR_API __attribute__((visibility("default")))
#endif

#define TR_VERSION_MAJOR 0
#define TR_VERSION_MINOR 1
#define TR_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  TR_SUCCESS = 0,
  TR_INVALID_ARGUMENT = 1, /* a null pointer, absurd count, unknown type or operator, wrong root */
  TR_INVALID_USAGE = 2,    /* destroyed handle, two threads at once, call order, process forked */
  TR_UNSUPPORTED = 3,    /* legal request that this build or machine cannot do; the text says why */
  TR_SYSTEM_ERROR = 4,   /* the operating system refused something; the text has errno in words. Or
                            an operator of the program's threw an exception */
  TR_REMOTE_ERROR = 5,   /* another rank died, left or failed; the text names it */
  TR_TIMEOUT = 6,        /* the deadline passed; the text says which rank did not do what */
  TR_MISMATCH = 7,       /* ranks called different operations, counts, types or roots */
  TR_ABORTED = 8,        /* tr_comm_abort was called on this or another rank */
  TR_INTERNAL_ERROR = 9, /* a broken invariant: please report it */
} tr_result_t;

typedef int32_t tr_type_t; /* no enum: a wrong number must be an error, not undefined */
enum {
  TR_INT8 = 0,
  TR_UINT8 = 1,
  TR_INT32 = 2,
  TR_UINT32 = 3,
  TR_INT64 = 4,
  TR_UINT64 = 5,
  TR_FLOAT16 = 6,
  TR_BFLOAT16 = 7,
  TR_FLOAT32 = 8,
  TR_FLOAT64 = 9,
  TR_FLOAT8_E4M3 = 10, /* OCP e4m3fn: no infinity, overflow becomes NaN */
  TR_FLOAT8_E5M2 = 11, /* OCP e5m2: IEEE-like, overflow becomes infinity */
  TR_NUM_TYPES = 12
};

/* Reduction operators. One rule each, the same for every algorithm, on every rank:
 * - Integers wrap (two's complement) in sum and prod.
 * - min/max: NaN wins over every number (the result is a quiet NaN), and -0 < +0.
 * - avg is sum, then one division by the number of ranks (integers: truncated toward zero, of the
 *   wrapped sum; floats: multiplication by 1/n before the last rounding for 8- and 16-bit types).
 * - 8- and 16-bit floats are widened to float32 within one rank's fold and rounded once at its
 *   end, to nearest even; NaN stays NaN; the same bits on every CPU. README: "Reduction rules".
 * - Pre-multiplied sum (tr_op_create_premul_sum): each rank's input is multiplied by its own
 *   factor and rounded to the type, then summed.
 */
typedef int32_t tr_op_t;
enum { TR_SUM = 0, TR_PROD = 1, TR_MIN = 2, TR_MAX = 3, TR_AVG = 4, TR_NUM_BUILTIN_OPS = 5 };

typedef struct tr_comm_s* tr_comm_t;
typedef struct tr_stream_s* tr_stream_t; /* NULL: block on the calling thread, no hand-over */
typedef struct tr_event_s* tr_event_t;
typedef struct tr_window_s* tr_window_t;

#define TR_UNIQUE_ID_BYTES 128
/* Names a communicator to be: the address of its root and a 128-bit random key. Plain bytes: send
 * it to the other ranks by any means; whoever has it can join. */
typedef struct {
  unsigned char bytes[TR_UNIQUE_ID_BYTES];
} tr_unique_id_t;

/* ---- Version, errors --------------------------------------------------------------------------
 */
TR_API int tr_version(void); /* MAJOR*10000 + MINOR*100 + PATCH */
TR_API const char* tr_result_string(tr_result_t result);
/* The full explanation of the last error on this thread; never NULL; valid until the next call. */
TR_API const char* tr_get_last_error(void);
TR_API size_t tr_type_size(tr_type_t type); /* bytes of one element; 0 for an unknown type */

/* ---- Communicators ----------------------------------------------------------------------------
 */
/* Starts the root of a new communicator in this process (a listening socket and one thread, which
 * end when the communicator has formed and been destroyed, or with the process). */
TR_API tr_result_t tr_get_unique_id(tr_unique_id_t* id);
/* Collective over `size` callers with the same id and distinct ranks; blocks until all have come or
 * the deadline passes (TR_TIMEOUT_S), and then names the missing ranks. */
TR_API tr_result_t tr_comm_init_rank(tr_comm_t* comm, int size, tr_unique_id_t id, int rank);
/* As tr_comm_init_rank, with rank, size and meeting place from the environment: `treering run`,
 * torchrun, mpirun (Open MPI, MPICH) or srun. With none of them: one rank. */
TR_API tr_result_t tr_comm_init_env(tr_comm_t* comm);
/* `size` ranks inside this process: comms[0..size-1]. Use each from its own thread, or all from one
 * thread inside tr_group_start/end. */
TR_API tr_result_t tr_comm_init_all(tr_comm_t* comms, int size);
/* Collective over comm. Ranks with the same colour (>= 0) form a new communicator, ordered by (key,
 * old rank). Colour TR_SPLIT_NONE: take part, get *newcomm = NULL. */
#define TR_SPLIT_NONE (-1)
TR_API tr_result_t tr_comm_split(tr_comm_t comm, int color, int key, tr_comm_t* newcomm);
TR_API tr_result_t tr_comm_size(tr_comm_t comm, int* size);
TR_API tr_result_t tr_comm_rank(tr_comm_t comm, int* rank);
/* Waits until all operations issued on comm are done. Local. */
TR_API tr_result_t tr_comm_finalize(tr_comm_t comm);
/* Finalizes and frees comm. Local: it waits for this rank's operations only. TR_MISMATCH if ranks
 * have called different operations and no call has said so yet; comm is freed all the same. A
 * destroyed or garbage handle: TR_INVALID_USAGE. */
TR_API tr_result_t tr_comm_destroy(tr_comm_t comm);
/* Makes every operation on comm, on every rank, return TR_ABORTED soon, and never blocks: not for a
 * peer, whatever it does. What waits on this rank (a call, a stream, a group, a split, shrink or
 * registration under way) returns within a second. A communicator that has failed before keeps its
 * first cause. It must still be destroyed; destroying it does not wait for other ranks either. */
TR_API tr_result_t tr_comm_abort(tr_comm_t comm);
/* Collective over the ranks of comm that are left: those whose process lives and that have not
 * destroyed it. They agree on who is left, and get a communicator of their own, ordered as in comm
 * (tr_comm_rank of it says the new number). comm may have failed or been aborted: that is what this
 * is for; it works whichever ranks died, one that held the store or rank 0 too, and when another
 * dies meanwhile. Either all that survive the call get *newcomm or none: an error means that this
 * rank has none. A rank that is waiting for one in here gets TR_REMOTE_ERROR and should come as
 * well. Operations in flight end first, or fail comm. Afterwards comm is only to be destroyed, and
 * so are its windows; options set on comm hold in *newcomm, forced algorithms do not.
 *
 * Waits for ranks that live but do not call, up to comm's deadline (TR_OPT_TIMEOUT_MS); then
 * TR_TIMEOUT names them, and the same call may be made again, to go on waiting. tr_comm_abort ends
 * it. */
TR_API tr_result_t tr_comm_shrink(tr_comm_t comm, tr_comm_t* newcomm);
/* As tr_comm_shrink, and the `count` ranks of comm in `without` are out, though they may live
 * (stopped, hung, or no longer wanted). It is enough that one rank names them. One of them that
 * calls, too, gets TR_REMOTE_ERROR. timeout_ms: how long to wait for the others; 0: comm's
 * deadline. */
TR_API tr_result_t tr_comm_shrink_without(tr_comm_t comm, const int* without, int count,
                                          int64_t timeout_ms, tr_comm_t* newcomm);
/* Collective over comm and new ranks: a communicator of `newsize` ranks. The ranks of comm keep
 * their numbers and pass the same id (tr_get_unique_id on one of them, sent to the others and to
 * those that join); the new ones call tr_comm_init_rank(&c, newsize, id, rank) with the ranks from
 * comm's size on. Blocks until all have come or the deadline passes (TR_INIT_TIMEOUT_S), which
 * names the missing ranks. Settings are those of the environment, as for tr_comm_init_rank: what
 * was set on comm by calls the new ranks cannot know. comm must not have failed (shrink it first),
 * and goes on working. */
TR_API tr_result_t tr_comm_grow(tr_comm_t comm, int newsize, tr_unique_id_t id, tr_comm_t* newcomm);
/* *error: TR_SUCCESS, or why comm has failed. Also looks whether ranks have called different
 * operations that no rank has waited in, such as broadcasts from different roots. */
TR_API tr_result_t tr_comm_get_async_error(tr_comm_t comm, tr_result_t* error);
/* Text: size, transports per pair, memory, and for each collective the algorithm chosen per size
 * and why. Owned by comm, valid until the next tr_comm_explain on it. */
TR_API tr_result_t tr_comm_explain(tr_comm_t comm, const char** text);

/* ---- Streams and events -----------------------------------------------------------------------
 */
/* A host stream: calls on it enqueue and return; operations complete in the order given. Several
 * may be in flight at once where their buffers do not overlap. Streams are synchronized, destroyed
 * and events recorded outside groups only. */
TR_API tr_result_t tr_stream_create(tr_stream_t* stream);
/* A caller's CUDA stream (cudaStream_t) as a stream: for calls on device memory, in CUDA's order;
 * they can be captured into a graph. Destroy it with tr_stream_destroy, which leaves the CUDA
 * stream alone. A call fails if its kernel could not be started; what goes wrong later, such as a
 * rank that does not come, is an error of tr_stream_synchronize, of later calls, and of
 * tr_comm_get_async_error. Of a rank that dies tr_stream_synchronize learns soon; who waits with
 * CUDA's own functions, at the deadline. */
TR_API tr_result_t tr_stream_from_cuda(tr_stream_t* stream, void* cuda_stream);
/* Waits for all operations on the stream; returns the first error among them. NULL: TR_SUCCESS. */
TR_API tr_result_t tr_stream_synchronize(tr_stream_t stream);
/* *done = 1 when all is done. Never blocks. */
TR_API tr_result_t tr_stream_query(tr_stream_t stream, int* done);
TR_API tr_result_t tr_stream_destroy(tr_stream_t stream); /* synchronizes first */
TR_API tr_result_t tr_event_create(tr_event_t* event);
TR_API tr_result_t tr_event_record(tr_event_t event, tr_stream_t stream);
TR_API tr_result_t tr_event_query(tr_event_t event, int* done);
TR_API tr_result_t tr_event_synchronize(tr_event_t event);
TR_API tr_result_t tr_stream_wait_event(tr_stream_t stream, tr_event_t event);
TR_API tr_result_t tr_event_destroy(tr_event_t event);

/* ---- Groups -----------------------------------------------------------------------------------
 */
/* Operations called between start and end are issued together at the outermost end and progress
 * together: the way to send and receive at once, and to drive several communicators from one
 * thread. If a call inside a group fails, tr_group_end returns that error and issues nothing.
 * Calls on device memory are issued in the order in which they are called: sends and receives
 * progress together from one collective of their communicator to the next, but for one that shares
 * a buffer with an earlier call of the group (one of the two writes it), which begins when that is
 * done. Collectives that follow each other directly, on one communicator and one stream, are one
 * kernel where that can be; such a kernel's results are there when all of them are. */
TR_API tr_result_t tr_group_start(void);
TR_API tr_result_t tr_group_end(void);

/* ---- Memory -----------------------------------------------------------------------------------
 */
/* Local: page-aligned host memory that peers can map once it is registered. */
TR_API tr_result_t tr_mem_alloc(void** ptr, size_t bytes);
TR_API tr_result_t tr_mem_free(void* ptr);
/* Collective over comm: every rank passes a range of its tr_mem_alloc memory, or every rank a range
 * of memory that it got from cudaMalloc on its device (sizes may differ). Either all ranks get a
 * window or none. Where all ranks' buffers of a call lie in windows, wherever in them, and it is
 * not small, data moves without copies through slots. All ranks must pass buffers of windows in the
 * same calls, or none. Device memory must not be freed before every rank has deregistered it or
 * destroyed comm. */
TR_API tr_result_t tr_comm_register(tr_comm_t comm, void* ptr, size_t bytes, tr_window_t* window);
TR_API tr_result_t tr_comm_deregister(tr_comm_t comm, tr_window_t window);

/* ---- Operators --------------------------------------------------------------------------------
 */
/* factor applies to this rank's inputs; floating-point types only. */
TR_API tr_result_t tr_op_create_premul_sum(tr_op_t* op, double factor);
/* combine(acc, in, count, type, user): acc[i] = acc[i] (op) in[i]; acc is the fold of lower ranks.
 * Called on the thread that makes progress, possibly on pieces of the vector, at any element
 * alignment. commutative = 0: the fold is in rank order. It must be associative, and it must not
 * call the library. An exception that it throws fails the communicator (TR_SYSTEM_ERROR, with its
 * text) and goes no further. */
typedef void (*tr_combine_fn)(void* acc, const void* in, size_t count, tr_type_t type, void* user);
TR_API tr_result_t tr_op_create(tr_op_t* op, tr_combine_fn combine, int commutative, void* user);
TR_API tr_result_t tr_op_destroy(tr_op_t op);

/* ---- Collectives: every rank of comm calls the same one, in the same order ----------------------
 */
/* recvbuf[i] = op over ranks of sendbuf[i]. In place: sendbuf == recvbuf. */
TR_API tr_result_t tr_all_reduce(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                                 tr_op_t op, tr_comm_t comm, tr_stream_t stream);
/* As all_reduce, the result on root only; recvbuf is ignored elsewhere (may be NULL). */
TR_API tr_result_t tr_reduce(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                             tr_op_t op, int root, tr_comm_t comm, tr_stream_t stream);
/* root's sendbuf to every recvbuf; sendbuf is ignored elsewhere. In place at root: equal pointers.
 */
TR_API tr_result_t tr_broadcast(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                                int root, tr_comm_t comm, tr_stream_t stream);
/* sendcount per rank; recvbuf holds size*sendcount, rank r's part at r*sendcount.
 * In place: sendbuf == recvbuf + rank*sendcount. */
TR_API tr_result_t tr_all_gather(const void* sendbuf, void* recvbuf, uint64_t sendcount,
                                 tr_type_t type, tr_comm_t comm, tr_stream_t stream);
/* sendbuf holds size*recvcount; rank r gets the reduction of part r.
 * In place: recvbuf == sendbuf + rank*recvcount. */
TR_API tr_result_t tr_reduce_scatter(const void* sendbuf, void* recvbuf, uint64_t recvcount,
                                     tr_type_t type, tr_op_t op, tr_comm_t comm,
                                     tr_stream_t stream);
/* sendcount from each rank to root's recvbuf (size*sendcount; ignored elsewhere).
 * In place at root: sendbuf == recvbuf + root*sendcount. */
TR_API tr_result_t tr_gather(const void* sendbuf, void* recvbuf, uint64_t sendcount, tr_type_t type,
                             int root, tr_comm_t comm, tr_stream_t stream);
/* root's sendbuf (size*recvcount; ignored elsewhere), part r to rank r.
 * In place at root: recvbuf == sendbuf + root*recvcount. */
TR_API tr_result_t tr_scatter(const void* sendbuf, void* recvbuf, uint64_t recvcount,
                              tr_type_t type, int root, tr_comm_t comm, tr_stream_t stream);
/* Both buffers hold size*count; part q of sendbuf goes to rank q's part `rank`. In place: equal. */
TR_API tr_result_t tr_all_to_all(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                                 tr_comm_t comm, tr_stream_t stream);
/* The v-variants: counts and displacements (elements) per rank, arrays of `size`, read during the
 * call only. all_gather_v and reduce_scatter_v: the same counts on all ranks. gather_v/scatter_v:
 * counts and displs are read on root only; elsewhere sendcount/recvcount is this rank's own.
 * all_to_all_v: sendcounts[q] here must equal recvcounts[this rank] on q. Displs NULL: parts lie
 * one after another. */
TR_API tr_result_t tr_all_gather_v(const void* sendbuf, void* recvbuf, const uint64_t* recvcounts,
                                   const uint64_t* displs, tr_type_t type, tr_comm_t comm,
                                   tr_stream_t stream);
TR_API tr_result_t tr_reduce_scatter_v(const void* sendbuf, void* recvbuf,
                                       const uint64_t* recvcounts, tr_type_t type, tr_op_t op,
                                       tr_comm_t comm, tr_stream_t stream);
TR_API tr_result_t tr_gather_v(const void* sendbuf, uint64_t sendcount, void* recvbuf,
                               const uint64_t* recvcounts, const uint64_t* displs, tr_type_t type,
                               int root, tr_comm_t comm, tr_stream_t stream);
TR_API tr_result_t tr_scatter_v(const void* sendbuf, const uint64_t* sendcounts,
                                const uint64_t* displs, void* recvbuf, uint64_t recvcount,
                                tr_type_t type, int root, tr_comm_t comm, tr_stream_t stream);
/* In place (sendbuf == recvbuf): send and receive counts and displacements must be equal. */
TR_API tr_result_t tr_all_to_all_v(const void* sendbuf, const uint64_t* sendcounts,
                                   const uint64_t* sdispls, void* recvbuf,
                                   const uint64_t* recvcounts, const uint64_t* rdispls,
                                   tr_type_t type, tr_comm_t comm, tr_stream_t stream);
/* No rank leaves before all have come. */
TR_API tr_result_t tr_barrier(tr_comm_t comm, tr_stream_t stream);
/* scan: recvbuf = fold of ranks 0..rank. exscan: of ranks 0..rank-1 (rank 0's recvbuf is
 * untouched). */
TR_API tr_result_t tr_scan(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                           tr_op_t op, tr_comm_t comm, tr_stream_t stream);
TR_API tr_result_t tr_exscan(const void* sendbuf, void* recvbuf, uint64_t count, tr_type_t type,
                             tr_op_t op, tr_comm_t comm, tr_stream_t stream);

/* ---- Point to point -----------------------------------------------------------------------------
 */
/* Matched in issue order per (communicator, source, destination); there are no tags. A send may
 * return when its data is buffered; a program that needs that is wrong: group a send and a receive
 * that must overlap. Peer may be the rank itself, inside a group. Count and type must be the same
 * at both ends, and either both buffers are host memory or both are device memory.
 *
 * On device memory the sends and receives of a group are one kernel, which runs as if on each of
 * their streams; at most 768 of a communicator (TR_UNSUPPORTED beyond). Those of different groups,
 * and single ones, take turns, whatever their streams; no collective waits for them, nor they for
 * one, but where the streams say so. */
TR_API tr_result_t tr_send(const void* sendbuf, uint64_t count, tr_type_t type, int peer,
                           tr_comm_t comm, tr_stream_t stream);
TR_API tr_result_t tr_recv(void* recvbuf, uint64_t count, tr_type_t type, int peer, tr_comm_t comm,
                           tr_stream_t stream);

/* ---- Options ------------------------------------------------------------------------------------
 */
/* TR_OPT_ORDERED: 1 = every reduction folds in rank order, so that its bits depend neither on
 * algorithm nor on partition (default 0). TR_OPT_TIMEOUT_MS: an operation
 * in which nothing has moved for so long, here or at a rank that this one waits for, is an error
 * (TR_TIMEOUT); 0: never. TR_OPT_WARN_MS: an operation that waits longer than this is reported
 * once, to stderr; 0: never.
 * TR_OPT_COPY_ENGINE: moves between windows of GPUs that run on their copy engines and leave all
 * multiprocessors free: 1 = long ones, 2 = all that can, 0 = none (default). The buffer that peers
 * read must then lie at the same offset of the same window on all ranks: sendbuf; recvbuf for a
 * broadcast and in place. Collective: all ranks set the same. */
typedef int32_t tr_option_t;
enum { TR_OPT_ORDERED = 0, TR_OPT_TIMEOUT_MS = 1, TR_OPT_COPY_ENGINE = 2, TR_OPT_WARN_MS = 3 };
TR_API tr_result_t tr_comm_set_option(tr_comm_t comm, tr_option_t option, int64_t value);
/* The two deadlines of the calls that this thread makes from now on, in milliseconds, in place of
 * their communicators'; 0: never, -1: the communicators' again. A call in a stream keeps what was
 * set when it was made. Of operations on host memory: kernels know the communicator's timeout only.
 */
TR_API tr_result_t tr_set_call_deadline(int64_t timeout_ms, int64_t warn_ms);
/* Writes the last calls of this rank, with their times, and what every rank is doing to `path`, for
 * `treering status PATH`. Any thread, at any time, also while a call waits. TR_INVALID_USAGE
 * without TR_FLIGHT_RECORDER; with it, an error of the communicator does the same by itself. */
TR_API tr_result_t tr_comm_save_flight(tr_comm_t comm, const char* path);
/* Forces an algorithm ("ring", "tree", "two_shot", ...) for a collective ("all_reduce", ...);
 * "auto" undoes it. A name that does not exist for it, or not for this many ranks:
 * TR_INVALID_ARGUMENT with the list of those that do. Collective: all ranks set the same. */
TR_API tr_result_t tr_comm_set_algorithm(tr_comm_t comm, const char* collective,
                                         const char* algorithm);

#ifdef __cplusplus
}
#endif
#endif /* TREERING_TREERING_H_ */
