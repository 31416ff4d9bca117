#include "train/data.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <zlib.h>

#include "treering/parallel/rng.hpp"

namespace train {
namespace {

tr::Error bad_file(const std::string& file, const std::string& what) {
  return {TR_INVALID_ARGUMENT, file + ": " + what};
}

// All of a .gz file, unpacked.
tr::Result<std::vector<unsigned char>> read_gz(const std::string& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  if (!in) return bad_file(file, "cannot be opened");
  std::vector<unsigned char> all;
  std::array<unsigned char, 1 << 16> piece;
  for (;;) {
    const int got = gzread(in.get(), piece.data(), piece.size());
    if (got < 0) return bad_file(file, "is not a whole gzip file");
    if (got == 0) return all;
    all.insert(all.end(), piece.begin(), piece.begin() + got);
  }
}

// An idx file: big-endian magic 0x08 <dimensions>, the sizes, the bytes. Appends the bytes to
// `values`.
tr::Status read_idx(const std::string& file, const std::vector<std::uint32_t>& sizes,
                    std::vector<unsigned char>& values) {
  auto read = read_gz(file);
  if (!read) return read.error();
  const std::vector<unsigned char>& raw = read.value();
  const auto word = [&](std::size_t i) {
    return static_cast<std::uint32_t>(raw[4 * i] << 24 | raw[4 * i + 1] << 16 |
                                      raw[4 * i + 2] << 8 | raw[4 * i + 3]);
  };
  std::size_t header = 4 * (1 + sizes.size()), bytes = 1;
  for (const std::uint32_t size : sizes) bytes *= size;
  if (raw.size() != header + bytes) return bad_file(file, "is not of the expected length");
  if (word(0) != 0x0800 + sizes.size()) return bad_file(file, "is not an idx file of bytes");
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (word(d + 1) != sizes[d]) return bad_file(file, "does not have the expected shape");
  }
  values.assign(raw.begin() + static_cast<std::ptrdiff_t>(header), raw.end());
  return {};
}

tr::Result<std::unique_ptr<Table>> read_fashion_part(const std::string& prefix,
                                                     std::uint32_t rows) {
  std::vector<unsigned char> pixels, labels;
  if (auto s = read_idx(prefix + "-images-idx3-ubyte.gz", {rows, 28, 28}, pixels); !s) {
    return s.error();
  }
  if (auto s = read_idx(prefix + "-labels-idx1-ubyte.gz", {rows}, labels); !s) return s.error();
  if (*std::max_element(labels.begin(), labels.end()) > 9) {
    return bad_file(prefix + "-labels-idx1-ubyte.gz", "has a label above 9");
  }
  auto table = std::make_unique<Table>(28 * 28, 10);
  table->x.resize(pixels.size());
  std::transform(pixels.begin(), pixels.end(), table->x.begin(),
                 [](unsigned char p) { return static_cast<float>(p) / 255.0f; });
  table->y.assign(labels.begin(), labels.end());
  return table;
}

// The rows that `order` names.
std::unique_ptr<Table> rows_of(const Table& from, std::span<const std::int64_t> order) {
  auto to = std::make_unique<Table>(from.features(), from.classes());
  to->x.resize(order.size() * static_cast<std::size_t>(from.features()));
  to->y.resize(order.size());
  from.read(order, to->x, to->y);
  return to;
}

}  // namespace

tr::Result<Dataset> load_digits(const std::string& file) {
  constexpr int kFeatures = 64, kTrainRows = 1437, kRows = 1797;
  auto text = read_gz(file);
  if (!text) return text.error();
  Table all(kFeatures, 10);
  const char* at = reinterpret_cast<const char*>(text.value().data());
  const char* end = at + text.value().size();
  for (std::size_t column = 0; at != end; column = (column + 1) % (kFeatures + 1)) {
    const bool is_label = column == kFeatures;
    int value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value > (is_label ? 9 : 16) || stop == end ||
        *stop != (is_label ? '\n' : ',')) {
      return bad_file(file, "line " + std::to_string(all.y.size() + 1) +
                                " is not 64 pixels 0..16 and a label 0..9");
    }
    if (is_label) {
      all.y.push_back(value);
    } else {
      all.x.push_back(static_cast<float>(value) / 16.0f);
    }
    at = stop + 1;
  }
  if (all.rows() != kRows || all.y.size() != kRows)
    return bad_file(file, "does not have 1797 rows");
  std::vector<std::int64_t> order(kRows);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::uint64_t left = kRows; left > 1; --left) {  // Fisher-Yates
    std::swap(order[left - 1], order[tr::par::random_bits(0, tr::par::kSplitStream, left) % left]);
  }
  return Dataset{rows_of(all, std::span(order).first(kTrainRows)),
                 rows_of(all, std::span(order).subspan(kTrainRows))};
}

tr::Result<Dataset> load_fashion(const std::string& folder) {
  auto train = read_fashion_part(folder + "/train", 60000);
  if (!train) return train.error();
  auto test = read_fashion_part(folder + "/t10k", 10000);
  if (!test) return test.error();
  return Dataset{std::move(train).value(), std::move(test).value()};
}

tr::Result<Dataset> load_bytes(const std::string& file, std::size_t train_bytes,
                               std::size_t test_bytes) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return bad_file(file, std::string("cannot be read: ") + std::strerror(errno));
  std::vector<unsigned char> text(train_bytes + test_bytes);
  in.read(reinterpret_cast<char*>(text.data()), static_cast<std::streamsize>(text.size()));
  if (static_cast<std::size_t>(in.gcount()) != text.size()) {
    return bad_file(file, "has " + std::to_string(in.gcount()) + " bytes, and " +
                              std::to_string(text.size()) + " are needed");
  }
  const auto middle = text.begin() + static_cast<std::ptrdiff_t>(train_bytes);
  return Dataset{std::make_unique<Bytes>(std::vector(text.begin(), middle)),
                 std::make_unique<Bytes>(std::vector(middle, text.end()))};
}

Dataset make_noise(int rows, int features, std::uint64_t seed) {
  auto table = std::make_unique<Table>(features, 0);
  table->x.resize(static_cast<std::size_t>(rows) * features);
  for (std::size_t i = 0; i < table->x.size(); ++i) {
    // Three uniform numbers of variance 1/3 add up to variance 1.
    double sum = 0.0;
    for (std::size_t j = 0; j < 3; ++j) {
      sum += tr::par::random_symmetric(seed, tr::par::kInputStream, 3 * i + j);
    }
    table->x[i] = static_cast<float>(sum);
  }
  return {std::move(table), nullptr};
}

Dataset outline(int rows, int features) {
  class Outline final : public tr::par::Data {
   public:
    Outline(int rows, int features) : rows_(rows), features_(features) {}
    std::int64_t rows() const override { return rows_; }
    std::int64_t features() const override { return features_; }
    void read(std::span<const std::int64_t>, std::span<float>,
              std::span<std::int32_t>) const override {}

   private:
    int rows_, features_;
  };
  return {std::make_unique<Outline>(rows, features), nullptr};
}

void Table::read(std::span<const std::int64_t> rows, std::span<float> features,
                 std::span<std::int32_t> labels) const {
  const auto width = static_cast<std::size_t>(features_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(rows[i]);
    if (!features.empty()) std::copy_n(&x[row * width], width, &features[i * width]);
    if (!labels.empty()) labels[i] = y[row];
  }
}

void Bytes::read(std::span<const std::int64_t> rows, std::span<float> features,
                 std::span<std::int32_t> labels) const {
  std::fill(features.begin(), features.end(), 0.0f);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const unsigned char* const at = &text_[static_cast<std::size_t>(rows[i])];
    for (std::size_t c = 0; c < kContext && !features.empty(); ++c) {
      features[(i * kContext + c) * kValues + at[c]] = 1.0f;
    }
    if (!labels.empty()) labels[i] = at[kContext];
  }
}

}  // namespace train
