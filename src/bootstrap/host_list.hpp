// Lists of hosts as launchers write them.
#pragma once

#include <string>
#include <string_view>

namespace treering {

// The first name of Slurm's short form: "node[08-11,20],login" -> "node08". Empty: not understood.
std::string first_of_host_list(std::string_view list);

}  // namespace treering
