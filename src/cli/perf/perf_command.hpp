// `treering perf`: measures the library's operations, against its peers if asked.
#pragma once

namespace CLI {
class App;
}

namespace treering {

// Adds the subcommands `perf` and, hidden, `perf-worker`. They run when the command line is parsed
// and answer with an exit status: CLI::RuntimeError, as CLI11 wants it. 0: fine; 1: wrong results;
// 2: bad usage; 3: a size is below --min-ratio; 4: a library could not be started or run; 128 + n:
// ended by signal n.
void add_perf_command(CLI::App& app);

}  // namespace treering
