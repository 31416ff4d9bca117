"""Fuzzes every parser of what comes from outside, from the stored corpus.

Usage: test_fuzz.py REPLAY SOURCE_ROOT

REPLAY runs the corpus in this build. With clang++ (and its libFuzzer) the parsers are also built with sanitizers and
fuzzed: 50 s (10 s for each of the five), or 300 s with TR_TEST_LONG. Without it that part is skipped, loudly.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from tap import Tap

TAP = Tap()
REPLAY, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CORPUS = sorted(glob.glob(f'{ROOT}/tests/fuzz/corpus/*'))
SECONDS = 300 if os.environ.get('TR_TEST_LONG') else 50


def run(*command, timeout=600):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                          timeout=timeout)


def sources():
    """What the parsers are made of: the core and the bootstrap, without CUDA."""
    for path in sorted(glob.glob(f'{ROOT}/src/core/*.cpp') + glob.glob(f'{ROOT}/src/bootstrap/*.cpp')):
        name = os.path.basename(path)
        if 'cuda' not in name and name not in ('sodium_hash.cpp', 'no_sodium.cpp'):
            yield path


def build(folder):
    """The fuzzer as one translation unit; None and why if it cannot be had."""
    clang = shutil.which('clang++')
    if clang is None:
        return None, 'clang++ is not installed'
    probe = f'{folder}/probe.cpp'
    with open(probe, 'w', encoding='utf-8') as file:
        file.write('extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n')
    flags = ['-fsanitize=fuzzer,address,undefined', '-fno-sanitize-recover=all', '-std=c++20', '-O1', '-g1']
    if run(clang, *flags, probe, '-o', f'{folder}/probe').returncode != 0:
        return None, 'clang++ has no libFuzzer'
    # Without libsodium's code: it was not built with sanitizers, and the parsers are the same.
    unit = f'{folder}/all.cpp'
    with open(unit, 'w', encoding='utf-8') as file:
        for path in [*sources(), f'{ROOT}/src/core/no_sodium.cpp', f'{ROOT}/tests/fuzz/targets.cpp']:
            file.write(f'#include "{path}"\n')
    made = run(clang, *flags, f'-I{ROOT}', f'-I{ROOT}/src', f'-I{ROOT}/include', unit, '-o', f'{folder}/fuzz',
               '-lpthread', '-ldl')
    return (f'{folder}/fuzz', None) if made.returncode == 0 else (None, made.stdout[-2000:])


replayed = run(REPLAY, *CORPUS)
TAP.check(f'the corpus of {len(CORPUS)} inputs', replayed.returncode == 0 and len(CORPUS) >= 10, replayed.stdout)
with tempfile.TemporaryDirectory() as scratch:
    fuzzer, why = build(scratch)
    if fuzzer is None and 'clang++' in why and len(why) < 60:
        TAP.skip('fuzzing', why)
    else:
        TAP.check('the fuzzer builds', fuzzer is not None, why)
    if fuzzer is not None:
        os.mkdir(f'{scratch}/new')
        done = run(fuzzer, f'-max_total_time={SECONDS}', '-max_len=512', '-rss_limit_mb=1024', '-timeout=10',
                   '-print_final_stats=1', f'-artifact_prefix={scratch}/', f'{scratch}/new',
                   f'{ROOT}/tests/fuzz/corpus', timeout=SECONDS + 200)
        runs = re.search(r'number_of_executed_units: *(\d+)', done.stdout)
        found = [open(path, 'rb').read() for kind in ('crash', 'oom', 'timeout', 'leak')
                 for path in glob.glob(f'{scratch}/{kind}-*')]
        TAP.check(f'{SECONDS} s without a finding', done.returncode == 0 and runs and int(runs[1]) > 1000,
                  done.stdout[-3000:], [f'input: {text!r}' for text in found])
        print(f'# {runs[1] if runs else 0} inputs')
TAP.done()
