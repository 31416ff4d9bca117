// Compute: what the layers do with matrices, on one device. The only place with arithmetic on
// elements.
//
// Host: sums are accumulated in accumulator_of(type). Two matrix products behind one interface, so
// that exactness and speed can be had in turn:
// - "ref": every output is summed over k = 0, 1, ... in this order, one rounding per multiplication
//   and one per addition, whatever the shapes and the CPU are. Splitting the rows or columns of the
//   output over ranks does not change a bit; splitting k does (a partial sum per rank).
// - "openblas": several times faster. Its order depends on the shape, so equal bits need equal
//   shapes. It runs on one thread: the ranks are the parallelism.
// "dry": no arithmetic and no memory, for counting bytes and memory of layouts that do not fit.
// A device's Compute enqueues on its stream and returns; but what hands numbers to the host, or
// takes them from it, waits.
//
// Errors: shapes or types that do not fit are TR_INVALID_ARGUMENT and name the operation. Threads:
// an object serves one rank's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "treering/parallel/tensor.hpp"

namespace tr::par {

enum class Transpose : bool { kNo, kYes };
enum class Update : bool { kOverwrite, kAdd };
enum class Activation : std::uint8_t { kNone, kRelu, kGelu };  // GELU: the tanh form

// Sums over the rows that were given, not means.
struct Score {
  double loss_sum = 0.0;
  std::int64_t correct = 0;
  std::int64_t rows = 0;
};

// Which elements dropout zeroes: a function of the element's global place, so that every layout
// zeroes the same ones.
struct DropoutKey {
  std::uint64_t seed = 0, stream = 0;
  std::int64_t first_row = 0, first_col = 0;  // global place of the view's first element
  std::int64_t global_cols = 0;
  double probability = 0.0;
};

struct AdamWOptions {  // Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

class Compute {
 public:
  virtual ~Compute() = default;
  virtual const char* name() const = 0;
  virtual Memory& memory() = 0;
  // Are the bits of an output the same, whatever rows and columns are computed with it?
  virtual bool outputs_are_independent() const = 0;
  virtual bool is_dry() const { return false; }
  // The CUDA stream on which a device's enqueues; nothing on the host.
  virtual std::optional<void*> stream() const { return std::nullopt; }
  // Waits for what was enqueued; nothing on the host.
  virtual Status synchronize() = 0;

  virtual Status fill(const View& to, double value) = 0;
  virtual Status copy(const View& from, const View& to) = 0;  // converts the type
  virtual Status add(const View& from, const View& to) = 0;   // to += from
  virtual Status scale(const View& x, double factor) = 0;
  // Host memory of the view's shape and type, contiguous.
  virtual Status upload(const void* from, const View& to) = 0;
  virtual Status download(const View& from, void* to) = 0;

  // c = op(a) op(b), or c += : op(a) is m x k, op(b) k x n. c is of the inputs' type or of its
  // accumulator type. c overlaps neither a nor b. Any of m, n, k may be 0. What is added is the
  // finished product, in one addition: gradients that are accumulated over micro-batches have the
  // bits of those that are summed over replicas.
  virtual Status multiply(Transpose ta, Transpose tb, const View& a, const View& b, const View& c,
                          Update update = Update::kOverwrite) = 0;
  virtual Status add_row(const View& row, const View& x) = 0;  // to every row of x
  // Column sums of x, rows in order.
  virtual Status sum_rows(const View& x, const View& row, Update update) = 0;

  virtual Status activate(Activation kind, const View& z, const View& a) = 0;
  // dz = da * act'(z); dz may be da.
  virtual Status activate_backward(Activation kind, const View& z, const View& da,
                                   const View& dz) = 0;
  // y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta, of each row (Ba, Kiros, Hinton, "Layer
  // normalization", 2016). stats: rows x 2 in the accumulator's type: mean, 1 / deviation.
  virtual Status layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                            const View& stats) = 0;
  // dx may be dy.
  virtual Status layer_norm_backward(const View& x, const View& gamma, const View& stats,
                                     const View& dy, const View& dx, const View& dgamma,
                                     const View& dbeta, Update update) = 0;
  // y = x / (1 - p) where kept, else 0. Backward is the same with the same key. y may be x.
  virtual Status dropout(const DropoutKey& key, const View& x, const View& y) = 0;

  // Softmax cross entropy of the rows' labels; dlogits = d(loss_sum) / normalizer, times `factor`
  // (the loss scale). `normalizer` is the *global* number of rows: gradients of ranks and
  // micro-batches are then summed, never averaged. No dlogits (data == nullptr): the score only.
  virtual Result<Score> cross_entropy(const View& logits, std::span<const std::int32_t> labels,
                                      double normalizer, double factor, const View& dlogits) = 0;
  // loss_sum = sum of the squared elements.
  virtual Result<Score> mean_square(const View& outputs, double normalizer, double factor,
                                    const View& doutputs) = 0;

  virtual Result<double> sum_of_squares(const View& x) = 0;
  // The flat index of the first NaN or infinity.
  virtual Result<std::optional<std::int64_t>> find_not_finite(const View& x) = 0;

  // One step over flat views of one length; moments and master of the accumulator's type. step
  // counts from 1. Element by element: equal gradients give equal parameters, bit for bit.
  virtual Status adamw(const AdamWOptions& options, std::int64_t step, const View& gradient,
                       const View& m, const View& v, const View& master) = 0;
  virtual Status sgd(double lr, double momentum, const View& gradient, const View& velocity,
                     const View& master) = 0;
};

// "ref", "openblas", "dry"; TR_UNSUPPORTED, with what is missing, if this build has no OpenBLAS.
Result<std::unique_ptr<Compute>> make_host_compute(std::string_view name);
bool have_openblas();
// On GPU number local_rank, modulo their number, which becomes the thread's current one: make it
// before the communicator, which takes that one. "ref" has the bits of the host's, but where exp
// and log (and tanh, in fp64) of the device round in their own way; "cublas" (TR_UNSUPPORTED
// without it) is fast; "auto": cublas, else ref. TR_UNSUPPORTED in a build without CUDA.
Result<std::unique_ptr<Compute>> make_cuda_compute(std::string_view gemm, int local_rank);

}  // namespace tr::par
