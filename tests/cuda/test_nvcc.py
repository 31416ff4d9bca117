#!/usr/bin/env python3
"""Usage: test_nvcc.py ROOT [COMPILE_REPORT LINK_REPORT LINKED_OBJECT] -- [NVCC ARGUMENTS...]

What nvcc makes of the library's kernels. From the build (algos/cuda/run-nvcc): registers, stack and size are within
their budgets. By compiling again: the instructions that were meant are there, and all kernels compile for other
architectures, warnings are errors. TAP.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

# Of a thread, by protocol, callees included. A block has 256 threads and a multiprocessor 65536 registers: with up
# to 255 it holds one block, with up to 128 two. It is the 8-bit floats, 16 to a pack, that need most.
REGISTERS = {'Simple': 255, 'LL': 200, 'LL128': 255}
# CUDA sets aside 1 KiB of stack for each thread; a kernel that needs more waits for the device when it is launched.
STACK_BYTES = 640
# What step(), which all kernels share, may save of its callers' registers, once at either end. ptxas counts that as
# spills, too; those of a loop would be loaded more often than stored.
SAVED_BYTES = 64
# Before sm_90 ptxas makes calls (__cuda_sm70_shflsync and its like) of warp functions, where it cannot know that all
# lanes come: LL128's step has some, and saves nearly all registers.
BEFORE_SM_90 = {'LL128': {'stack': 1024, 'saved': 512}}
LINKED_BYTES_PER_ARCHITECTURE = 3 << 20
OTHER_ARCHITECTURES = ['sm_80', 'sm_100']

# What step() of a protocol must contain.
INSTRUCTIONS = {
    'Simple': ['ld.acquire.sys.global.u64', 'st.release.sys.global.u64', r'ld(.global)?.v2.[bu]64',
               r'st(.global)?.v2.[bu]64', 'bar.sync', '%globaltimer'],
    'LL': ['ld.acquire.sys.global.u64', 'st.release.sys.global.u64', 'ld.volatile.global.v4.u32',
           'st.volatile.global.v4.u32', 'bar.sync', '%globaltimer'],
    'LL128': ['ld.acquire.sys.global.u64', 'st.release.sys.global.u64', 'ld.volatile.global.v2.u64',
              'st.volatile.global.v2.u64', 'shfl.sync.bfly', 'bar.sync', '%globaltimer'],
}
# A multiply-add rounds once where the host rounds twice; ptxas makes one of mul.f32 and add.f32, not of mul.rn.f32.
CONTRACTED = re.compile(r'\b(?:fma|mad)\.[\w.]*f(?:32|64)\b|\b(?:add|sub|mul)\.(?:ftz\.)?f(?:32|64)\b')


def protocol_of(function):
    """'Simple', of a kernel or of CudaPrims<Simple>::step; None for other functions."""
    found = re.search(r'(?:9run_calls|12run_messages|9CudaPrims)INS0_\d+(Simple|LL128|LL)(?:Routines)?E', function)
    return found.group(1) if found else None


def is_kernel(function):
    return '9run_callsINS0_' in function or '12run_messagesINS0_' in function


def is_step(function):
    return re.search(r'9CudaPrimsINS0_\d+\w+?EE4step', function) is not None and not is_kernel(function)


def plain(function):
    """'collectives, Simple': as a reader would call a kernel."""
    for part, name in {'run_messages': 'sends and receives', 'run_calls': 'collectives', '4step': 'step'}.items():
        if part in function:
            return f'{name}, {protocol_of(function)}'
    return function


def functions_of(report):
    """[(function, stack, stored, loaded)] of ptxas' report, in bytes."""
    found = re.findall(r"Function properties for '?(\S+?)'?\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, "
                       r'(\d+) bytes spill loads', report)
    return [(name, *map(int, numbers)) for name, *numbers in found]


def linked_of(report):
    """[(kernel, registers, stack)] of nvlink's report."""
    found = re.findall(r"Function properties for '?(\S+?)'?:.*\nnvlink info\s*: used (\d+) registers,.*? (\d+) stack",
                       report)
    return [(name, int(registers), int(stack)) for name, registers, stack in found]


def architectures_of(report):
    """['90'] of ptxas' report."""
    return sorted(set(re.findall(r"for 'sm_(\d+)\w*'", report)))


def budget_of(what, normal, function, architectures):
    old = any(int(number) < 90 for number in architectures)
    return BEFORE_SM_90.get(protocol_of(function), {}).get(what, normal) if old else normal


def spills(report):
    """Complaints about ptxas' report."""
    out = []
    for function, _, stored, loaded in functions_of(report):
        if is_step(function):
            budget = budget_of('saved', SAVED_BYTES, function, architectures_of(report))
            if stored > budget or loaded > stored:
                out.append(f'{plain(function)} stores {stored} bytes of registers and loads {loaded}; '
                           f'{budget} may be saved and restored')
        elif stored or loaded:
            out.append(f'{plain(function)} spills: {stored} bytes stored, {loaded} loaded')
    return out


def over_budget(report, architectures):
    """Complaints about nvlink's report, which does not say for which architectures it is."""
    out = []
    for kernel, registers, stack in linked_of(report):
        budget = REGISTERS.get(protocol_of(kernel), 0)
        if registers > budget:
            out.append(f'{plain(kernel)}: {registers} registers, the budget is {budget}')
        limit = budget_of('stack', STACK_BYTES, kernel, architectures)
        if stack > limit:
            out.append(f'{plain(kernel)}: {stack} bytes of stack, the budget is {limit}')
    return out


def incomplete(report):
    """Complaints if the report does not list what it must: of all protocols, both kernels and one step."""
    names = [name for name, *_ in functions_of(report)]
    out = []
    for protocol in REGISTERS:
        kernels = {name for name in names if is_kernel(name) and protocol_of(name) == protocol}
        steps = {name for name in names if is_step(name) and protocol_of(name) == protocol}
        if len(kernels) < 2 or len(steps) != 1:
            out.append(f'{protocol}: {len(kernels)} kernels, {len(steps)} steps')
    return out


def missing_instructions(ptx):
    functions = dict(re.findall(r'^\.(?:weak|visible) \.(?:func|entry)\s+(?:\([^)]*\)\s*)?(\w+)\((.*?)^}', ptx,
                                re.M | re.S))
    out = [f'{plain(name)}: {found.group()}, which may become a multiply-add' for name, text in functions.items()
           if (found := CONTRACTED.search(text))]
    for protocol, instructions in INSTRUCTIONS.items():
        steps = [text for name, text in functions.items() if is_step(name) and protocol_of(name) == protocol]
        if len(steps) != 1:
            out.append(f'{protocol}: {len(steps)} steps')
            continue
        out += [f'step of {protocol}: no {i}' for i in instructions if not re.search(i, steps[0])]
    return out


KERNEL = '_ZN8treering4cuda9run_callsINS0_14SimpleRoutinesENS0_11DeviceCallsILi8ELi288EEEEEvT0_'
STEP = '_ZN8treering4cuda9CudaPrimsINS0_2LLEE4stepENS_5algos4VerbE'


def self_test():
    """The rules bite, on samples in ptxas' and nvlink's words."""
    def ptxas(name, stored, loaded):
        return (f'ptxas info    : Function properties for {name}\n    216 bytes stack frame, {stored} bytes spill '
                f'stores, {loaded} bytes spill loads\n')

    def nvlink(registers, stack):
        return (f"nvlink info    : Function properties for '{KERNEL}': (target: sm_80)\nnvlink info    : used {registers} "
                f'registers, used 1 barriers, {stack} stack, 12352 bytes smem\n')
    ptx = f'.weak .func  {STEP}(\n.param .b64 x\n)\n{{\n\tadd.rn.f32 a;\n\tmul.f32 a;\n}}\n'
    def wide_step(architecture):
        return (ptxas(STEP.replace('2LL', '5LL128'), 500, 500)
                + f"ptxas info    : Compiling entry function '{KERNEL}' for 'sm_{architecture}'\n")
    expected = [(spills(ptxas(KERNEL, 0, 0)), 0), (spills(ptxas(KERNEL, 4, 4)), 1), (spills(ptxas(STEP, 24, 24)), 0),
                (spills(ptxas(STEP, 24, 28)), 1), (spills(ptxas(STEP, 68, 68)), 1), (spills(wide_step('80')), 0),
                (spills(wide_step('90')), 1), (over_budget(nvlink(255, 640), ['90']), 0),
                (over_budget(nvlink(256, 641), ['80', '90']), 2), (incomplete(ptxas(KERNEL, 0, 0)), 3),
                (missing_instructions(ptx), 3 + len(INSTRUCTIONS['LL']))]
    return [f'case {i}: {got}' for i, (got, count) in enumerate(expected) if len(got) != count]


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def check_build(tap, reports):
    names = ['the build reported every kernel', 'no kernel spills', 'registers and stack are within their budgets',
             'size is within its budget']
    if not reports:
        for name in names:
            tap.skip(name, 'THE KERNELS WERE NOT BUILT WITH NVCC')
        return
    compiled, linked = map(read, reports[:2])
    architectures = architectures_of(compiled)
    tap.none(names[0], incomplete(compiled))
    tap.none(names[1], spills(compiled))
    kernels = [name for name, *_ in functions_of(compiled) if is_kernel(name)]
    tap.none(names[2], over_budget(linked, architectures) if len(linked_of(linked)) == len(kernels) else
             [f'{len(kernels)} kernels were compiled and {len(linked_of(linked))} linked'])
    size, budget = os.path.getsize(reports[2]), len(architectures) * LINKED_BYTES_PER_ARCHITECTURE
    tap.check(f'{names[3]}: {size >> 10} KiB for {len(architectures)} architectures', size <= budget, f'{budget} bytes')


def check_compiling(tap, root, nvcc):
    source = os.path.join(root, 'algos', 'cuda', 'kernels.cu')
    for architecture in OTHER_ARCHITECTURES:
        names = [f'{architecture}: all kernels compile, warnings are errors, and none spills',
                 f'{architecture}: the kernels have the instructions meant']
        if not nvcc:
            for name in names:
                tap.skip(name, 'NO NVCC')
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([*nvcc, f'-arch={architecture}', '-Werror', 'all-warnings', '-cubin', '-Xptxas=-v',
                                  '--keep', f'--keep-dir={folder}', source, '-o', os.path.join(folder, 'kernels.cubin')],
                                 capture_output=True, text=True, check=False)
            if run.returncode != 0:
                tap.check(names[0], False, run.stderr[-4000:])
                continue
            tap.none(names[0], incomplete(run.stderr) + spills(run.stderr))
            tap.none(names[1], missing_instructions(read(os.path.join(folder, 'kernels.ptx'))))


def main(root, *arguments):
    split = arguments.index('--')
    tap = Tap()
    tap.none('self-test: the budgets bite', self_test())
    check_build(tap, arguments[:split])
    check_compiling(tap, root, arguments[split + 1:])
    tap.done()


main(*sys.argv[1:])
