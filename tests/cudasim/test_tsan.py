#!/usr/bin/env python3
"""Usage: test_tsan.py ROOT CUDA_HEADERS LIBCUDASIM [CLANG++]

ThreadSanitizer over kernels in the emulator: it is silent on correct ones and names the line of a missing
barrier or a store without release. TAP.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

CORRECT = ['simple', 'll', 'll128']
# What is broken, and a line of the kernel that the report must show.
BROKEN = {'no_barrier_before_post': 'traffic.cuh', 'no_barrier_before_release': 'traffic.cuh',
          'relaxed_post': 'traffic.cuh', 'shared': 'tsan_traffic.cu'}
RACE = 'WARNING: ThreadSanitizer: data race'


def build(root, headers, library, compiler, program):
    folder = os.path.join(root, 'tests', 'cudasim')
    return subprocess.run(
        [compiler, '-std=c++20', '-O1', '-g', '-fsanitize=thread', '-Wno-unknown-pragmas', f'-I{root}',
         '-include', os.path.join(folder, 'cudasim.h'), '-isystem', headers,
         '-x', 'c++', os.path.join(folder, 'tsan_traffic.cu'), '-x', 'none', library, '-o', program,
         '-pthread', '-ldl'], capture_output=True, text=True)


def run(command):
    env = {**os.environ, 'TSAN_OPTIONS': 'exitcode=66 atexit_sleep_ms=50'}
    env.pop('UBSAN_OPTIONS', None)  # read after TSAN_OPTIONS; Meson's ask for an abort
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    return done.returncode, done.stdout + done.stderr


def main():
    root, headers, library, *compiler = sys.argv[1:]
    tap = Tap()
    names = [f'{name}: no race' for name in CORRECT] + [f'{name}: a race' for name in BROKEN]
    if not compiler:
        for name in names:
            tap.skip(name, 'no clang++ (g++ 12 needs milliseconds to make a fiber for ThreadSanitizer)')
        tap.done()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'tsan_traffic')
        built = build(root, headers, library, compiler[0], program)
        # Some kernels place memory where ThreadSanitizer does not expect it; setarch -R helps.
        prefixes = [[], ['setarch', os.uname().machine, '-R']]
        works = [p for p in prefixes if built.returncode == 0 and 'unexpected memory mapping' not in
                 run([*p, program, 'simple'])[1]]
        if built.returncode == 0 and not works:
            for name in names:
                tap.skip(name, 'ThreadSanitizer does not run here')
            tap.done()
        for name in CORRECT:
            if not tap.check(f'{name}: built', built.returncode == 0, built.stderr):
                break
            code, output = run([*works[0], program, name])
            tap.check(f'{name}: no race', code == 0 and RACE not in output, f'exit status {code}', output[-4000:])
        for name, file in BROKEN.items() if works else []:
            code, output = run([*works[0], program, name])
            tap.check(f'{name}: a race', code == 66 and RACE in output and file in output,
                      f'exit status {code}', output[-4000:])
    tap.done()


main()
