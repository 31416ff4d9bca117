#!/usr/bin/env python3
"""Usage: test_tsan.py ROOT CUDA_HEADERS LIBTREERING_SIM LIBCUDASIM [CLANG++]

ThreadSanitizer over the library's kernels in the emulator: silent on all protocols as they are, and it names
the line of a post without release (algos/cuda/fault.cuh). The kernels are built with it,
the rest of the library and the emulator are not. TAP.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from tap import Tap

RACE = 'WARNING: ThreadSanitizer: data race'
# Fault, protocol, and files that the report must show; none: it must be silent.
CASES = [('kNone', 'Simple', []), ('kNone', 'LL', []), ('kNone', 'LL128', []),
         ('kNone', 'windows', []), ('kRelaxedPost', 'Simple', ['prims.cuh', 'simple.cuh']),
         ('kRelaxedPost', 'windows', ['windows.cuh', 'simple.cuh'])]


def title(fault, protocol, files):
    return f'{protocol}, {fault}: ' + ('a race' if files else 'no race')


def run(command, limit_s=120):
    env = {**os.environ, 'TSAN_OPTIONS': 'exitcode=66 atexit_sleep_ms=50'}
    env.pop('UBSAN_OPTIONS', None)  # read after TSAN_OPTIONS; Meson's ask for an abort
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=limit_s)
    return done.returncode, done.stdout + done.stderr


def compile_one(compiler, root, headers, source, fault, output):
    return run([compiler, '-std=c++20', '-O1', '-g', '-fsanitize=thread', '-Wno-unknown-pragmas', f'-I{root}',
                f'-I{root}/src', f'-I{root}/include', f'-I{root}/tests', f'-DTR_TEST_FAULT={fault}',
                '-include', f'{root}/tests/cudasim/cudasim.h', '-isystem', headers, '-x', 'c++', '-c', source,
                '-o', output])


def build(compiler, root, headers, libraries, folder):
    """A program for each fault; (faults to programs, what went wrong)."""
    main = os.path.join(folder, 'main.o')
    code, output = compile_one(compiler, root, headers, os.path.join(HERE, 'tsan_ring.cpp'), 'kNone', main)
    programs = {}
    for fault in dict.fromkeys(fault for fault, _, _ in CASES):
        kernels, program = os.path.join(folder, f'{fault}.o'), os.path.join(folder, fault)
        if code == 0:
            code, output = compile_one(compiler, root, headers, os.path.join(HERE, 'few_kernels.cu'), fault, kernels)
        if code == 0:
            code, output = run([compiler, '-fsanitize=thread', main, kernels, *libraries, '-lhwy',
                                *os.environ.get('TEST_LIBRARIES', '').split(), '-pthread', '-ldl', '-o', program])
        programs[fault] = program
    return programs, '' if code == 0 else output


def main():
    root, headers, *libraries = sys.argv[1:5]
    compiler = sys.argv[5:]
    tap = Tap()
    why = '' if compiler else 'no clang++ (g++ 12 needs milliseconds to make a fiber for ThreadSanitizer)'
    with tempfile.TemporaryDirectory() as folder:
        prefix = []
        if compiler:
            programs, problem = build(compiler[0], root, headers, libraries, folder)
            if not tap.check('built', not problem, problem[-4000:]):
                tap.done()
            # Some kernels place memory where ThreadSanitizer does not expect it; setarch -R helps.
            for prefix in [[], ['setarch', os.uname().machine, '-R']]:
                if 'unexpected memory mapping' not in run([*prefix, programs['kNone'], 'Simple'])[1]:
                    break
            else:
                why = 'ThreadSanitizer does not run here'
        for fault, protocol, files in CASES:
            if why:
                tap.skip(title(fault, protocol, files), why)
                continue
            code, output = run([*prefix, programs[fault], protocol])
            good = (code == 66 and RACE in output and all(f in output for f in files)) if files else \
                   (code == 0 and RACE not in output)
            tap.check(title(fault, protocol, files), good, f'exit status {code}', output[-4000:])
    tap.done()


main()
