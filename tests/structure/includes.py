"""Who may include whom (ARCHITECTURE.md, "Layers")."""
import os
import re

from tree import strip_comments

INSIDE = {'core', 'bootstrap', 'topo', 'transports', 'algos', 'sim', 'tuner', 'engine', 'comm'}
# room: the rooms whose headers it may include, besides its own.
MAY_INCLUDE = {
    'public': set(),
    'core': set(),
    'bootstrap': {'core'},
    'topo': {'core'},
    'transports': {'core'},
    'algos': {'core'},
    'sim': {'topo', 'algos', 'core'},
    'tuner': {'topo', 'algos', 'core'},
    'engine': {'transports', 'algos', 'core'},
    'comm': INSIDE | {'public'},
    'api': INSIDE | {'public'},
    'parallel': {'public'},
    'cli': {'public', 'perf'},
    'peers': {'public', 'perf'},
    'perf': {'public'},
    'python': {'public'},
    'examples': {'public'},
    'tests': INSIDE | {'public', 'api', 'cli', 'peers', 'perf', 'parallel', 'examples'},
}
# What is allowed beyond the table, and why.
EXCEPTIONS = [
    # Shared memory meets its peers through the interface, not through a socket of its own.
    (r'transports/', r'bootstrap/rendezvous\.hpp$'),
    # `treering explain` draws schedules, `treering perf` counts their bytes; the example proves an algorithm of the
    # reader's own.
    (r'src/cli/(explain|perf/traffic)', r'(algos|core)/'),
    (r'examples/\d+_custom_algorithm', r'(algos|core)/'),
    # `treering topo` shows what the room of topology reads.
    (r'src/cli/topo', r'(topo|core)/'),
    # The ladder's kernels are written with the flags and lines of the library's, those that compute are started as
    # these.
    (r'examples/ladder', r'algos/cuda/'),
    (r'src/parallel/cuda_', r'algos/cuda/'),
    # `treering status` shows boards in the communicator's words; `treering doctor` looks at the machine as detection
    # does.
    (r'src/cli/status', r'(comm|transports|algos|core)/'),
    (r'src/cli/doctor', r'(topo|core)/'),
    # `treering sim` runs schedules over described machines, `treering tune` stores what the choice reads, and
    # `treering explain` says how it would choose.
    (r'src/cli/sim', r'(sim|topo|algos|core)/'),
    (r'src/cli/(tune|explain/choice)', r'(tuner|algos|core)/'),
    # `treering env` prints the table of variables; `treering run` uses the core's handles and deadlines.
    (r'src/cli/(env|run)', r'core/'),
]
# What an algorithm template may use of the standard library: nothing that allocates or needs a host.
CONSTEXPR_STD = {'algorithm', 'array', 'bit', 'compare', 'concepts', 'cstddef', 'cstdint', 'limits',
                 'numeric', 'type_traits', 'utility'}
HOST_ONLY = re.compile(r'\b(throw|virtual|new|delete|malloc|std::(vector|string|map|function|deque))\b')
CUDA_HEADER = re.compile(r'^(cublas|cuda|nccl|nvml|nvtx|nvToolsExt|cooperative_groups|device_)')
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
# Programs over the public API: the root is not on their include path, so that they cannot look inside.
LOCAL_ROOMS = {'tests', 'peers', 'perf', 'examples', 'cli'}


def room_of(path):
    """'src/engine/plan.hpp' -> 'engine', 'transports/shm/shm.cpp' -> 'transports'."""
    parts = path.split('/')
    if parts[0] == 'include':
        return 'public'
    if parts[0] == 'src':
        return parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in MAY_INCLUDE and len(parts) > 1 else None


def room_of_include(name):
    """'engine/plan.hpp' -> 'engine', 'treering/treering.h' -> 'public', 'gtest/gtest.h' -> None."""
    first = name.split('/')[0]
    if first == 'treering':
        return 'public'
    return first if first in MAY_INCLUDE and first != 'public' and '/' in name else None


def is_template(path, text):
    """An algorithm, or the verbs: what also runs on a device."""
    return path.startswith('algos/') and path.endswith('.hpp') and '/cuda/' not in path and (
        path == 'algos/prims.hpp' or re.search(r'template <class P[,>]', text) is not None)


def problems_of(path, text):
    """What `path` with this text includes against the rules, one line each."""
    room = room_of(path)
    if room is None:
        return []
    out = []
    code = strip_comments(text)
    template = is_template(path, code)
    for match in INCLUDE.finditer(code):
        quote, name = match.groups()
        where = f'{path}:{code.count(chr(10), 0, match.start()) + 1}'
        target = room_of_include(name)
        if '..' in name.split('/'):
            out.append(f'{where}: "{name}" is relative; write it from the root or from src/')
            continue
        if CUDA_HEADER.match(name) and 'cuda' not in path.lower():
            out.append(f'{where}: <{name}>: CUDA headers belong into files that say cuda in their name')
        if template and quote == '<' and name not in CONSTEXPR_STD:
            out.append(f'{where}: <{name}>: an algorithm may use the constexpr part of std only')
        if target is None:
            if quote == '"' and '/' not in name and room not in LOCAL_ROOMS:
                out.append(f'{where}: "{name}": write it from the root or from src/')
            elif quote == '"' and room == 'public':
                out.append(f'{where}: "{name}": a public header includes nothing else of ours')
            continue
        if any(re.match(who, path) and re.match(what, name) for who, what in EXCEPTIONS):
            continue
        if target != room and target not in MAY_INCLUDE[room]:
            out.append(f'{where}: {room} must not include {target} ("{name}")')
        private = re.match(r'transports/(\w+)/', name)
        if private and room != 'tests' and not path.startswith(private.group(0)):
            out.append(f'{where}: "{name}" is private to {private.group(0)}')
    if template:
        for match in HOST_ONLY.finditer(code):
            line = code.count('\n', 0, match.start()) + 1
            out.append(f'{path}:{line}: {match.group(1)} in an algorithm template (it runs on devices too)')
    return out


MAP_ROW = re.compile(r'^\| (`[^|]*`) \|[^|]*\|([^|]*)\|$', re.M)
# How the map calls a room, where not by its name.
MAP_NAMES = {'include/treering': 'public', 'rendezvous': 'bootstrap'}


def untrue_rows(architecture, rooms):
    """Rows of ARCHITECTURE.md's map that do not say what the rules above allow. rooms: those that exist."""
    out, seen = [], set()
    for folders, cell in MAP_ROW.findall(architecture):
        row = {room_of(folder.removesuffix('/') + '/x/x') for folder in re.findall(r'`([^`]+)`', folders)} - {None}
        seen |= row
        if not row or 'all' in cell.split():
            continue
        sample = [f'src/{room}/{part}/x.cpp' for room in row for part in ('explain', 'topo', 'sim', 'tune', 'status')]
        sample += ['src/cli/run.cpp'] * ('cli' in row)
        sample += [f'{room}/09_custom_algorithm.cpp' for room in row]
        allowed = set().union(*(MAY_INCLUDE[room] for room in row))
        for who, what in EXCEPTIONS:
            if any(re.match(who, path) for path in sample):
                allowed |= {room for room in MAY_INCLUDE if re.search(rf'\b{room}\b', what)}
        words = re.findall(r'[\w/]+', cell)
        said = {MAP_NAMES.get(word, word) for word in words} & set(MAY_INCLUDE)
        if said - row != (allowed & rooms) - row:
            out.append(f'ARCHITECTURE.md: {folders} may include {", ".join(sorted(allowed & rooms))}; the map says '
                       f'"{cell.strip()}"')
    return out + [f'ARCHITECTURE.md: the map lacks {room}' for room in sorted(rooms - seen)]


def check_map(tree):
    rooms = {room_of(path) for path in tree.code()} - {None}
    return untrue_rows(tree.text('ARCHITECTURE.md'), rooms)


def check(tree):
    return [p for path in tree.code() for p in problems_of(path, tree.text(path))]


# (path, text, must it be refused?): each line of the rules, shown to bite and not to bite.
SAMPLES = [
    ('src/core/a.hpp', '#include "engine/plan.hpp"', True),
    ('src/core/a.hpp', '#include "core/status.hpp"\n#include <vector>', False),
    ('algos/ring.hpp', '#include "transports/fifo.hpp"', True),
    ('transports/shm/shm.cpp', '#include "algos/ring.hpp"', True),
    ('transports/shm/shm.cpp', '#include "transports/shm/layout.hpp"', False),
    ('transports/shm/shm.cpp', '#include "transports/tcp/socket.hpp"', True),
    ('transports/shm/shm.hpp', '#include "bootstrap/rendezvous.hpp"', False),
    ('transports/shm/shm.hpp', '#include "bootstrap/store.hpp"', True),
    ('src/comm/a.cpp', '#include "transports/shm/layout.hpp"', True),
    ('src/engine/a.cpp', '#include "comm/communicator.hpp"', True),
    ('src/tuner/a.cpp', '#include "engine/plan.hpp"', True),
    ('src/comm/a.cpp', '#include "api/handles.hpp"', True),
    ('src/cli/perf/a.cpp', '#include "comm/communicator.hpp"', True),
    ('src/cli/explain.cpp', '#include "algos/registry.hpp"', False),
    ('src/cli/topo/text.cpp', '#include "topo/graph.hpp"', False),
    ('src/cli/perf/a.cpp', '#include "topo/graph.hpp"', True),
    ('src/topo/live.cpp', '#include "transports/fifo.hpp"', True),
    ('examples/01_hello.cpp', '#include "core/status.hpp"', True),
    ('examples/01_hello.cpp', '#include "treering/treering.hpp"', False),
    ('examples/ladder/ladder.cuh', '#include "algos/cuda/ptx.cuh"', False),
    ('examples/ladder/ladder.cuh', '#include "core/status.hpp"', True),
    ('src/parallel/cuda_rows.cu', '#include "algos/cuda/launch.cuh"', False),
    ('src/parallel/rows.hpp', '#include "algos/cuda/launch.cuh"', True),
    ('include/treering/a.hpp', '#include "core/status.hpp"', True),
    ('src/comm/a.cpp', '#include "../core/status.hpp"', True),
    ('src/comm/a.cpp', '#include "communicator.hpp"', True),
    ('src/comm/a.cpp', '// #include "api/handles.hpp"', False),
    ('src/engine/a.cpp', '#include <cuda_runtime.h>', True),
    ('src/core/ranges.cpp', '#include <nvtx3/nvToolsExt.h>', True),
    ('algos/x.hpp', '#include <vector>\ntemplate <class P>\nvoid f(P& p);', True),
    ('algos/x.hpp', '#include <cstdint>\ntemplate <class P>\nvoid f(P& p) { p.send(new int); }', True),
    ('algos/schedule.hpp', '#include <vector>\nstruct Schedule;', False),
]


# What the map may say of algos, and whether that is untrue.
MAP_SAMPLES = [('core', False), ('', True), ('core, engine', True)]


def self_test():
    core = '| `src/core/` | status | nothing of ours |\n'
    rows = [f'map: "{cell}" should be {"refused" if bad else "accepted"}' for cell, bad in MAP_SAMPLES
            if bool(untrue_rows(f'{core}| `algos/` | algorithms | {cell} |\n', {'algos', 'core'}))
            != bad]
    return rows + [f'{path}: {text!r} should be {"refused" if bad else "accepted"}: {problems_of(path, text)}'
            for path, text, bad in SAMPLES if bool(problems_of(path, text)) != bad]
