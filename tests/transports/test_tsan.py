#!/usr/bin/env python3
"""Usage: test_tsan.py ROOT COMPILER...

ThreadSanitizer finds a race in a FIFO whose post or release lost its order, and none in the FIFO as it is.
TAP.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

TRIVIAL = 'int main() {}'


def compile_with_tsan(root, compiler, source, program, defines):
    return subprocess.run(
        [*compiler, '-std=c++20', '-O1', '-fsanitize=thread', f'-I{root}', f'-I{root}/src',
         *[f'-D{d}' for d in defines], source, '-o', program, '-pthread'], capture_output=True, text=True)


def run(program):
    env = {**os.environ, 'TSAN_OPTIONS': 'exitcode=66 halt_on_error=1'}
    done = subprocess.run([program], capture_output=True, text=True, env=env, timeout=60)
    return done.returncode, done.stdout + done.stderr


def main():
    root, compiler = sys.argv[1], sys.argv[2:]
    test = os.path.join(root, 'tests', 'transports', 'fifo_race.cpp')
    cases = [('the FIFO as it is has no race', [], False),
             ('a post without release is a race', ['TR_TEST_RELAXED_POST'], True),
             ('a release of slots without release order is a race', ['TR_TEST_RELAXED_RELEASE'], True)]
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        trivial = os.path.join(folder, 'trivial.cpp')
        with open(trivial, 'w') as file:
            file.write(TRIVIAL)
        program = os.path.join(folder, 'trivial')
        built = compile_with_tsan(root, compiler, trivial, program, [])
        works = built.returncode == 0 and subprocess.run([program]).returncode == 0
        for name, defines, is_broken in cases:
            if not works:
                tap.skip(name, 'ThreadSanitizer does not work here')
                continue
            program = os.path.join(folder, '_'.join(['fifo', *defines]))
            built = compile_with_tsan(root, compiler, test, program, defines)
            if built.returncode != 0:
                tap.check(name, False, built.stderr)
                continue
            code, output = run(program)
            has_race = 'WARNING: ThreadSanitizer: data race' in output
            expected = (has_race and code == 66) if is_broken else (not has_race and code == 0)
            tap.check(name, expected, f'exit status {code}', output[-4000:])
    tap.done()


main()
