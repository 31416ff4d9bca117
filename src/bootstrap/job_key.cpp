#include "bootstrap/job_key.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "core/unique_fd.hpp"

namespace treering {
namespace {

// Hashes under it keep no secret by themselves.
constexpr Secret kOpenKey = {'t', 'r', 'e', 'e', 'r', 'i', 'n', 'g'};
constexpr std::size_t kMaxSecretBytes = 64 * 1024;

Result<std::string> read_secret_file(const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return invalid_argument("TR_SECRET_FILE is \"" + path + "\", which " + why);
  };
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return invalid_argument(
        system_error("TR_SECRET_FILE is \"" + path + "\", which cannot be opened", errno)
            .message());
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return bad("is no file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) return bad("belongs to another user");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return bad("others than its owner may use: chmod 600 it");
  }
  std::string text(kMaxSecretBytes, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  if (n < 0) return bad("cannot be read");
  text.resize(static_cast<std::size_t>(n));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kMinSecretChars) {
    return bad("holds " + std::to_string(text.size()) + " characters; at least " +
               std::to_string(kMinSecretChars) + " are needed");
  }
  return text;
}

}  // namespace

Result<JobKey> job_key(const LaunchEnv& env, const Config& config) {
  JobKey result;
  if (!config.job_key.empty()) {  // load_config admits 32 hexadecimal digits only
    std::string digits = config.job_key;
    for (char& c : digits) c = static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
    result.key = keyed_hash(kOpenKey, "key " + digits);
    result.is_secret = true;
    return result;
  }
  const std::string job = env.source + "|" + env.job;
  if (!config.secret.empty() && !config.secret_file.empty()) {
    return invalid_argument("TR_SECRET and TR_SECRET_FILE are both set: unset one of them");
  }
  std::string secret = config.secret;
  if (!config.secret_file.empty()) {
    TR_ASSIGN_OR_RETURN(secret, read_secret_file(config.secret_file));
  }
  if (!secret.empty()) {
    result.key = derive_secret(keyed_hash(kOpenKey, "secret " + secret), job);
    result.is_secret = true;
    return result;
  }
  if (config.require_auth) {
    return invalid_usage("TR_REQUIRE_AUTH is 1, but this job has no secret: " + env.source +
                         " gives its ranks none; set TR_SECRET or TR_SECRET_FILE on all ranks, "
                         "start them by treering run, or use a unique id");
  }
  result.key = keyed_hash(kOpenKey, "job " + job + "|" + std::to_string(::getuid()));
  return result;
}

}  // namespace treering
