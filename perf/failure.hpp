// How the functions of the benchmark answer: nullopt when they did it, otherwise the sentence that
// says what was wrong. (The library's own Status stays inside the library.)
#pragma once

#include <optional>
#include <string>

namespace treering::perf {

using Failure = std::optional<std::string>;

// "cannot open /x: No such file or directory"
std::string with_errno(std::string what, int errno_value);

}  // namespace treering::perf
