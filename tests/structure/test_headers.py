#!/usr/bin/env python3
"""Usage: test_headers.py ROOT

Every header compiles alone, included twice, with the include path and warnings that its users have; the C
header also as C99. TAP, one test per header. A header that its own .cpp includes first is proven by the
build; it is compiled here too where TR_TEST_LONG is set.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap
from tree import HEADERS, Tree

WARNINGS = ['-Wall', '-Wextra', '-Werror']
CXX = [os.environ.get('CXX', 'c++'), '-x', 'c++', '-std=c++20', '-fsyntax-only', '-Wno-interference-size',
       *WARNINGS]
C99 = [os.environ.get('CC', 'cc'), '-x', 'c', '-std=c99', '-pedantic', '-fsyntax-only', *WARNINGS]
# Headers of other projects, and the pkg-config module that says where they are.
OPTIONAL = {'mpi.h': 'ompi-c', 'gloo/': 'libgloo', 'hwy/': 'libhwy', 'gtest/': 'gtest', 'cblas.h': 'openblas'}
LONG = bool(os.environ.get('TR_TEST_LONG'))


def compile_alone(command, name, root):
    """'' or what the compiler says about a file that includes `name`, and nothing else, twice."""
    # Highway's -inl headers are made to be included once per instruction set, not once.
    times = 1 if name.endswith('-inl.hpp') else 2
    run = subprocess.run([*command, '-'], cwd=root, input=f'#include "{name}"\n' * times,
                         capture_output=True, text=True, check=False)
    return '' if run.returncode == 0 else run.stderr


def foreign_flags(text):
    """([flags], None), or ([], what is missing) for the other projects' headers that `text` includes."""
    flags = []
    for header, module in OPTIONAL.items():
        if not re.search(rf'^\s*#\s*include\s*[<"]{re.escape(header)}', text, re.M):
            continue
        run = subprocess.run(['pkg-config', '--cflags', module], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            flags += run.stdout.split()
        elif not header.endswith('/') or not os.path.isdir(f'/usr/include/{header}'):
            return [], module
    return flags, None


def proven_by_build(tree, path):
    partner = os.path.splitext(path)[0] + '.cpp'
    if partner not in tree.paths:
        return False
    first = re.search(r'^#include ["<]([^">]+)', tree.text(partner), re.M)
    return first is not None and ('/' + path).endswith('/' + first.group(1))


def jobs(tree):
    """(test name, command, name to include, missing module or None) of every header."""
    for path in tree.code(*HEADERS):
        if 'cuda' in path or path.endswith('.cuh') or (not LONG and proven_by_build(tree, path)):
            continue  # CUDA: compiled by nvcc, in the build
        flags, absent = foreign_flags(tree.text(path))
        if path.startswith('include/'):
            name = path.removeprefix('include/')
            yield f'{path} as C++', [*CXX, '-pedantic', '-Iinclude', *flags], name, absent
            if path.endswith('.h'):
                yield f'{path} as C99', [*C99, '-Iinclude', *flags], name, absent
        else:
            folder = os.path.dirname(path)
            yield path, [*CXX, '-I.', '-Isrc', '-Iinclude', '-Iexamples', f'-I{folder}', *flags], path, absent


def main(root):
    tap = Tap()
    if shutil.which(CXX[0]) is None:
        tap.skip('headers', f'no {CXX[0]}')
        tap.done()
    lacking = 'inline std::vector<int> f() { return {}; }\n'
    run = subprocess.run([*CXX, '-'], input=lacking, capture_output=True, text=True, check=False)
    tap.check('self-test: a header that lacks an include is refused', run.returncode != 0)
    tree = Tree(root)
    todo = list(jobs(tree))
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = [None if absent else pool.submit(compile_alone, command, name, root)
                   for _, command, name, absent in todo]
        for (test, _, _, absent), result in zip(todo, results):
            if absent:
                tap.skip(test, f'{absent} is not installed')
            else:
                message = result.result()
                tap.check(test, not message, message.splitlines()[:15])
    tap.done()


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
