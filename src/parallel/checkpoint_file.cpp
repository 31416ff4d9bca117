#include "parallel/checkpoint_file.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace tr::par {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // so that bytes can be summed
constexpr std::string_view kEnd = "\nend\n";                   // of a header
constexpr std::string_view kMagic = "treering checkpoint 2";

Error system_error(const std::string& what, const std::string& path) {
  return {TR_SYSTEM_ERROR, what + " " + path + ": " + std::strerror(errno)};
}

// Closes on every way out.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<DType> type_from(const std::string& name) {
  for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name == name_of(type)) return type;
  }
  return Error{TR_INVALID_ARGUMENT, "unknown type '" + name + "'"};
}

}  // namespace

std::string to_text(const CheckpointHeader& h) {
  std::ostringstream out;
  out.precision(17);
  out << kMagic << "\nmodel " << h.model << "\ntype " << name_of(h.type) << "\nranks " << h.ranks
      << "\nstep " << h.state.step << "\nskipped " << h.state.skipped << "\nposition "
      << h.state.position << "\nseed " << h.state.seed << "\nloss_scale " << h.state.loss_scale
      << "\nclean_steps " << h.state.clean_steps << "\nhook " << h.hook << "\nhook_layout "
      << h.hook_layout << "\nhook_bytes " << h.hook_bytes << "\nchecksum " << h.checksum
      << "\npieces " << h.pieces.size() << '\n';
  for (const PieceHeader& p : h.pieces) {
    out << p.number << ' ' << p.tp_rank << ' ' << p.tp_size << ' ' << static_cast<int>(p.layout)
        << ' ' << p.first << ' ' << p.count << ' ' << p.has_m << ' ' << p.has_v << '\n';
  }
  out << "end\n";
  return out.str();
}

Result<CheckpointHeader> parse_header(const std::string& text, std::size_t* end) {
  const auto bad = [](const std::string& what) {
    return Error{TR_INVALID_ARGUMENT, "not a checkpoint file: " + what};
  };
  const std::size_t at = text.find(kEnd);
  if (text.compare(0, kMagic.size(), kMagic) != 0) return bad("it does not begin with its name");
  if (at == std::string::npos) return bad("its header has no end");
  *end = at + kEnd.size();
  std::istringstream in(text.substr(0, at));
  std::string line;
  std::getline(in, line);
  if (line != kMagic) return bad("another version: '" + line + "'");
  CheckpointHeader h;
  std::string key, type;
  std::size_t pieces = 0;
  in >> key;
  if (key != "model" || !std::getline(in >> std::ws, h.model)) return bad("no line 'model'");
  const auto read = [&](const char* name, auto& value) {
    return static_cast<bool>(in >> key >> value) && key == name;
  };
  if (!read("type", type) || !read("ranks", h.ranks) || !read("step", h.state.step) ||
      !read("skipped", h.state.skipped) || !read("position", h.state.position) ||
      !read("seed", h.state.seed) || !read("loss_scale", h.state.loss_scale) ||
      !read("clean_steps", h.state.clean_steps) || !read("hook", h.hook) ||
      !read("hook_layout", h.hook_layout) || !read("hook_bytes", h.hook_bytes) ||
      !read("checksum", h.checksum) || !read("pieces", pieces)) {
    return bad("a line is missing after '" + key + "'");
  }
  Result<DType> known = type_from(type);
  if (!known) return bad(known.error().message);
  h.type = known.value();
  if (h.ranks < 1) return bad("no ranks");
  if (h.hook_bytes < 0 || h.hook_bytes > kMostElements)
    return bad("its hook's state makes no sense");
  const TrainingState& state = h.state;
  if (state.step < 0 || state.skipped < 0 || state.position < 0 || state.clean_steps < 0 ||
      !std::isfinite(state.loss_scale) || state.loss_scale <= 0) {
    return bad("its state makes no sense");
  }
  for (std::size_t i = 0; i < pieces; ++i) {
    PieceHeader p;
    int layout = 0;
    if (!(in >> p.number >> p.tp_rank >> p.tp_size >> layout >> p.first >> p.count >> p.has_m >>
          p.has_v)) {
      return bad("piece " + std::to_string(i) + " of " + std::to_string(pieces) + " is missing");
    }
    if (p.number < 0 || p.tp_size < 1 || p.tp_rank < 0 || p.tp_rank >= p.tp_size || p.first < 0 ||
        p.count < 0 || p.count > kMostElements || layout < 0 ||
        layout >= static_cast<int>(Layout::kPartial)) {
      return bad("piece " + std::to_string(i) + " makes no sense");
    }
    p.layout = static_cast<Layout>(layout);
    h.pieces.push_back(p);
  }
  return h;
}

std::size_t CheckpointHeader::content_bytes() const {
  auto bytes = static_cast<std::size_t>(hook_bytes);
  for (const PieceHeader& p : pieces) {
    bytes += static_cast<std::size_t>(p.count) * size_of(type) * (1u + p.has_m + p.has_v);
  }
  return bytes;
}

Status write_file(const std::string& path, const std::string& bytes) {
  const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return system_error("cannot create", path);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("cannot write", path);
    done += static_cast<std::size_t>(wrote);
  }
  if (::fsync(file.get()) != 0) return system_error("cannot sync", path);
  return {};
}

Status sync_folder(const std::string& path) {
  const File folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return system_error("cannot open", path);
  if (::fsync(folder.get()) != 0) return system_error("cannot sync", path);
  return {};
}

namespace {

// Up to the end, or until `is_enough` of what was read so far.
template <class IsEnough>
Result<std::string> read_until(const std::string& path, std::size_t* size,
                               const IsEnough& is_enough) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("cannot open", path);
  struct stat about = {};
  if (::fstat(file.get(), &about) != 0) return system_error("cannot read", path);
  *size = static_cast<std::size_t>(about.st_size);
  std::string bytes;
  char buffer[1 << 14];
  while (!is_enough(bytes)) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", path);
    if (got == 0) break;
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  return bytes;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::size_t size = 0;
  return read_until(path, &size, [](const std::string&) { return false; });
}

Result<std::string> read_head(const std::string& path, std::size_t* bytes) {
  return read_until(path, bytes, [](const std::string& head) {
    return head.find(kEnd) != std::string::npos ||
           (head.size() >= kMagic.size() && head.compare(0, kMagic.size(), kMagic) != 0);
  });
}

}  // namespace tr::par
