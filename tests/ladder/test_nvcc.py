#!/usr/bin/env python3
"""Usage: test_nvcc.py ROOT [NVCC]

The ladder compiles with nvcc, host half and all, without a warning. TAP.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

ROOT, NVCC = sys.argv[1], sys.argv[2:]
FLAGS = ['-std=c++20', '-arch=sm_90', '--expt-relaxed-constexpr', '-Werror', 'all-warnings', '-I.', '-Isrc', '-Iinclude']

tap = Tap()
name = 'sm_90: all steps and the driver compile, warnings are errors'
if NVCC:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([*NVCC, *FLAGS, '-c', 'examples/ladder/ladder.cu', '-o', os.path.join(folder, 'ladder.o')],
                             cwd=ROOT, capture_output=True, text=True)
    tap.check(name, run.returncode == 0, (run.stdout + run.stderr)[-4000:])
else:
    tap.skip(name, 'NO NVCC: what a GPU would run was not compiled')
tap.done()
