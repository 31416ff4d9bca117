#!/usr/bin/env python3
"""Usage: test_ptx.py ROOT [NVCC]

ptx*.cuh and launch.cuh compile with nvcc without a warning, and become the instructions that were meant. TAP.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

ARCHITECTURES = ['sm_80', 'sm_90', 'sm_100']
# kernel: the instructions that its text must contain
EXPECTED = {
    'flags': ['ld.acquire.sys.global.u64', 'ld.acquire.sys.global.u32', 'st.release.sys.global.u64',
              'st.release.sys.global.u32', 'ld.relaxed.sys.global.u64', 'ld.relaxed.sys.global.u32',
              'st.relaxed.sys.global.u64', 'st.relaxed.sys.global.u32', 'atom.acq_rel.sys.global.add.u64',
              'atom.acq_rel.sys.global.add.u32', 'membar.sys|fence.sc.sys|fence.acq_rel.sys'],
    'data': [r'ld.global.v2.(u|b)64', r'st.global.v2.(u|b)64', r'ld.global.cs.v2.(u|b)64',
             r'st.global.cs.v2.(u|b)64', 'ld.relaxed.sys.global.v2.u64', 'st.relaxed.sys.global.v2.u64'],
    'lines': ['ld.volatile.global.v4.u32', 'st.volatile.global.v4.u32', 'ld.volatile.global.u64',
              'ld.volatile.global.v2.u64', 'st.volatile.global.v2.u64', 'vote.sync', 'bar.warp.sync'],
    'groups': [r'bar.sync', 'bar.red.or.pred', 'bar.warp.sync', 'shfl.sync.idx', 'shfl.sync.bfly', 'vote.sync',
               '%globaltimer'],
}


def kernels_of(ptx):
    """{kernel's name: its text}"""
    parts = re.split(r'^\.visible \.entry _Z\d+([a-z]+)', ptx, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def run(root, nvcc, folder):
    tap = Tap()
    for architecture in ARCHITECTURES:
        name = f'{architecture}: compiles, warnings are errors'
        if not nvcc:
            tap.skip(name, 'no nvcc')
            continue
        # The text, and then the machine code: only ptxas reads what is inside asm().
        for form in ['-cubin', '-ptx']:
            done = subprocess.run(
                [nvcc[0], '-std=c++20', f'-arch={architecture}', '-Werror', 'all-warnings', f'-I{root}', form,
                 os.path.join(root, 'tests', 'cudasim', 'ptx_all.cu'), '-o', os.path.join(folder, 'out')],
                capture_output=True, text=True)
            if done.returncode != 0:
                break
        if not tap.check(name, done.returncode == 0, done.stderr[-4000:]):
            continue
        with open(os.path.join(folder, 'out')) as file:
            text = file.read()
        kernels = kernels_of(text)
        for kernel, instructions in EXPECTED.items():
            tap.none(f'{architecture}: {kernel} has the instructions meant',
                     [f'no {i}' for i in instructions if not re.search(i, kernels.get(kernel, ''))])
    tap.done()



with tempfile.TemporaryDirectory() as temporary:
    run(sys.argv[1], sys.argv[2:], temporary)
