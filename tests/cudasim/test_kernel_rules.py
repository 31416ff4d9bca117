#!/usr/bin/env python3
"""Usage: test_kernel_rules.py ROOT

What differs between a GPU and the emulator stays in ptx*.cuh and launch.cuh; all other CUDA code is plain
C++, so that it runs on both. TAP.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'structure')]
from tap import Tap
from tree import Tree, strip_comments

ALLOWED = ('algos/cuda/ptx.cuh', 'algos/cuda/ptx_memory.cuh', 'algos/cuda/launch.cuh')
FORBIDDEN = [
    (r'\b(__)?asm(__)?\b', 'inline PTX belongs into ptx*.cuh'),
    (r'\bvolatile\b', 'volatile: use the flags and lines of ptx_memory.cuh'),
    (r'\b__threadfence\w*', 'a fence: publish with store_release, which ThreadSanitizer sees'),
    (r'<<<', '<<<>>>: use launch()'),
    (r'\bextern\s+__shared__', 'extern __shared__: use dynamic_shared()'),
    (r'\b__CUDA_ARCH__\b', '__CUDA_ARCH__: one text for the GPU and the emulator'),
    (r'\b__activemask\b', '__activemask: name the lanes'),
    (r'\batomic[A-Z]\w*\s*\(', "CUDA's atomics: use fetch_add of ptx_memory.cuh"),
    (r'\b__(ld|st)(g|ca|cg|cs|cv|lu|wb|wt)\s*\(', 'cache hints belong into ptx_memory.cuh'),
    (r'^\s*(__device__|__constant__|__managed__)(?!.*\()[^;{}]*[;=]', 'a device global: pass it as an argument'),
]
LOADS = re.compile(r'\b(load_acquire|load_relaxed|ll_load|ll128_arrived)\b')


def is_kernel_code(path):
    """Device code and the host code beside it: algos/cuda, transports/cuda_*, cuda files of src, the ladder."""
    return path.endswith(('.cu', '.cuh', '.cpp', '.hpp', '.h')) and path not in ALLOWED and (
        path.startswith(('algos/cuda/', 'transports/cuda', 'examples/ladder/'))
        or (path.startswith('src/') and 'cuda' in path.lower()))


def end_of(code, start, opening, closing):
    """The position after the partner of the `opening` at `start`."""
    depth = 0
    for i in range(start, len(code)):
        depth += {opening: 1, closing: -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


def waits_without_pause(code):
    """Positions of loops that wait for memory and have no spin_pause: in the emulator nobody else would run."""
    for match in re.finditer(r'\bwhile\s*\(', code):
        end = end_of(code, match.end() - 1, '(', ')')
        if not LOADS.search(code[match.end():end]):
            continue
        rest = code[end:].lstrip()
        body = rest[:end_of(rest, 0, '{', '}')] if rest.startswith('{') else rest[:rest.find(';') + 1]
        before = code[:match.start()].rstrip()
        if body == ';' and before.endswith('}'):  # do { ... } while (...);
            body = before[before.rfind('{'):]
        if 'spin_pause' not in body:
            yield match.start()


def problems_of(path, text):
    if not is_kernel_code(path):
        return []
    code = strip_comments(text, strings=True)
    out = []
    for pattern, why in FORBIDDEN:
        for match in re.finditer(pattern, code, re.M):
            start = match.start() + len(match.group()) - len(match.group().lstrip())
            out.append(f'{path}:{code.count(chr(10), 0, start) + 1}: {why}')
    for position in waits_without_pause(code):
        out.append(f'{path}:{code.count(chr(10), 0, position) + 1}: a wait without spin_pause()')
    return out


K = 'algos/cuda/ring.cu'
SAMPLES = [  # path, text, must it be refused?
    (K, 'asm volatile("bar.sync 0;");', True), ('algos/cuda/ptx.cuh', 'asm volatile("bar.sync 0;");', False),
    (K, 'volatile int* p;', True), (K, '// volatile asm', False), (K, '__threadfence_system();', True),
    (K, 'k<<<1, 2>>>(p);', True), (K, 'extern __shared__ float x[];', True), (K, '__shared__ float x[4];', False),
    (K, '#if __CUDA_ARCH__ >= 900', True), (K, '__activemask()', True), (K, 'atomicAdd(p, 1);', True),
    (K, 'std::atomic<int> a;', False), (K, '__device__ int counter;', True), (K, '__constant__ int c[4] = {1};', True),
    (K, '__device__ int f(int x) { return x; }', False), (K, 'auto v = __ldcs(p);', True),
    (K, 'while (load_acquire(p) < 3) {}', True), (K, 'while (load_acquire(p) < 3);', True),
    (K, 'while (load_acquire(p) < 3) spin_pause();', False),
    (K, 'while (!ll_load(l, f, &d)) { check(); spin_pause(); }', False),
    (K, 'while (!ll128_arrived(l, f)) {}', True),
    (K, 'do { spin_pause(); } while (load_relaxed(p) == 0);', False),
    (K, 'do { check(); } while (load_relaxed(p) == 0);', True),
    (K, 'while (i < n) { sum += load_relaxed(p + i); }', False),
    ('transports/cuda_ipc/window.cpp', 'k<<<1, 2>>>(p);', True), ('src/engine/cuda_engine.cpp', 'asm("");', True),
    ('src/core/cuda/driver.hpp', 'asm("");', True), ('examples/ladder/2_ring.cu', 'k<<<1, 2>>>(p);', True),
    ('examples/ladder/ladder.cuh', 'while (load_acquire(p) < 3) {}', True), ('examples/must.hpp', 'asm("");', False),
    ('src/engine/reduce.hpp', 'asm("");', False),
]


def main(root):
    tap = Tap()
    tap.none('self-test: the rules bite, and only where they should',
             [f'{path}: {text!r} should {"" if bad else "not "}be refused: {problems_of(path, text)}'
              for path, text, bad in SAMPLES if bool(problems_of(path, text)) != bad])
    tree = Tree(root)
    tap.none('CUDA code outside ptx*.cuh and launch.cuh is plain C++',
             [p for path in tree.paths for p in problems_of(path, tree.text(path))])
    tap.done()


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
