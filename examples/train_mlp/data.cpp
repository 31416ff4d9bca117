#include "train_mlp/data.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <numeric>
#include <zlib.h>

#include "train_mlp/counter_rng.hpp"

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

tr::Status read_fashion_part(const std::string& prefix, std::uint32_t rows, Table& to) {
  std::vector<unsigned char> pixels;
  if (auto s = read_idx(prefix + "-images-idx3-ubyte.gz", {rows, 28, 28}, pixels); !s) return s;
  if (auto s = read_idx(prefix + "-labels-idx1-ubyte.gz", {rows}, to.y); !s) return s;
  if (*std::max_element(to.y.begin(), to.y.end()) > 9) {
    return bad_file(prefix + "-labels-idx1-ubyte.gz", "has a label above 9");
  }
  to.features = 28 * 28;
  to.classes = 10;
  to.x.resize(pixels.size());
  std::transform(pixels.begin(), pixels.end(), to.x.begin(),
                 [](unsigned char p) { return static_cast<float>(p) / 255.0f; });
  return {};
}

}  // namespace

tr::Result<Dataset> load_digits(const std::string& file) {
  constexpr int kFeatures = 64, kTrainRows = 1437, kRows = 1797;
  auto text = read_gz(file);
  if (!text) return text.error();
  Table all{.features = kFeatures, .classes = 10, .x = {}, .y = {}};
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
      all.y.push_back(static_cast<std::uint8_t>(value));
    } else {
      all.x.push_back(static_cast<float>(value) / 16.0f);
    }
    at = stop + 1;
  }
  if (all.rows() != kRows || all.y.size() != kRows)
    return bad_file(file, "does not have 1797 rows");
  const auto order = permutation(kRows, 0, kSplitStream);
  Dataset data;
  gather_rows(all, std::span(order).first(kTrainRows), data.train);
  gather_rows(all, std::span(order).subspan(kTrainRows), data.test);
  return data;
}

tr::Result<Dataset> load_fashion(const std::string& folder) {
  Dataset data;
  if (auto s = read_fashion_part(folder + "/train", 60000, data.train); !s) return s.error();
  if (auto s = read_fashion_part(folder + "/t10k", 10000, data.test); !s) return s.error();
  return data;
}

Dataset make_noise(int rows, int features, std::uint64_t seed) {
  Dataset data;
  data.train.features = features;
  data.train.x.resize(static_cast<std::size_t>(rows) * features);
  for (std::size_t i = 0; i < data.train.x.size(); ++i) {
    // Three uniform numbers of variance 1/3 add up to variance 1.
    float sum = 0.0f;
    for (std::size_t j = 0; j < 3; ++j) sum += random_symmetric(seed, kInputStream, 3 * i + j);
    data.train.x[i] = sum;
  }
  return data;
}

std::vector<std::uint32_t> permutation(int rows, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint64_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random_bits(seed, stream, left) % left]);
  }
  return order;
}

Range share(int rows, int rank, int size) {
  const auto edge = [&](int r) {
    return static_cast<int>(static_cast<std::int64_t>(rows) * r / size);
  };
  return {edge(rank), edge(rank + 1)};
}

void gather_rows(const Table& from, std::span<const std::uint32_t> order, Table& to) {
  to.features = from.features;
  to.classes = from.classes;
  to.x.resize(order.size() * from.features);
  to.y.resize(from.y.empty() ? 0 : order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::copy_n(from.x.data() + static_cast<std::size_t>(order[i]) * from.features, from.features,
                to.x.data() + i * from.features);
    if (!to.y.empty()) to.y[i] = from.y[order[i]];
  }
}

}  // namespace train
