#!/usr/bin/env python3
"""treering perf --device cuda, with the library on the emulator. TAP.

Usage: test_perf.py TREERING_SIM TREERING NCCL_SIM FAKE_NCCL NCCL_WORKER|-
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap  # noqa: E402

SIM, REAL, NCCL_SIM, FAKE_NCCL, NCCL = sys.argv[1:6]
OPS = ['all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'gather', 'scatter', 'all_to_all',
       'barrier', 'scan', 'exscan', 'send_recv']
SHORT = ['--rounds', '2', '--batch-ms', '0.3']

tap = Tap()
scratch = tempfile.TemporaryDirectory()


def perf(program, *args, **extra):
    env = {**os.environ, 'CUDASIM_MEMORY_MIB': '512', 'CUDASIM_DEVICES': '1', **extra}
    return subprocess.run([program, 'perf', *args], env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100)


def cuda(*args, **extra):
    path = os.path.join(scratch.name, 'out.json')
    result = perf(SIM, *args, '--device', 'cuda', '--json', path, *SHORT, **extra)
    if result.returncode != 0:
        return result, None
    with open(path) as file:
        return result, json.load(file)


def shown(result):
    return [f'status {result.returncode}', result.stdout, result.stderr]


def timings(report):
    return [row[mode] for row in report['results'] for mode in ('out_of_place', 'in_place') if row[mode]]


for op in OPS:
    result, report = cuda(op, '-n', '3', '-b', '24', '-e', '8K', '-f', '40', '--root', '1', '--type', 'int8,float32',
                          '--redop', 'sum,max')
    found = timings(report) if report else []
    wrong = {timing['wrong'] for timing in found}
    tap.check(f'{op}: right in every size, type and mode',
              len(found) > 0 and wrong == ({None} if op == 'barrier' else {0}) and
              all(timing['time_us'] > 0 for timing in found), shown(result))

for ranks, extra in (('2', []), ('3', ['--processes'])):
    result, report = cuda('all_reduce', '-n', ranks, '-b', '1K', '-e', '1K', '--protocol', 'LL', '--algos',
                          'ring,two_shot', *extra)
    rows = {row['library']: row['out_of_place'] for row in report['results']} if report else {}
    tap.check(f'all_reduce, {ranks} ranks {extra}: a row for each algorithm, all right',
              set(rows) == {'treering', 'treering:ring', 'treering:two_shot'} and
              all(row['wrong'] == 0 for row in rows.values()), shown(result))
    # n = 2: of each half, one rank sends its part (read, write), the other folds it (2 reads), stores it and sends it
    # on (2 writes), and the first stores that (read, write): 8 half vectors, twice.
    moved = {name: row['moved_bytes'] for name, row in rows.items()}
    if ranks == '2':
        tap.check('bytes moved: counted for a named algorithm, the least for our own choice',
                  moved == {'treering': 4096, 'treering:ring': 8192, 'treering:two_shot': 8192} and
                  [rows[name]['moved_is_least'] for name in moved] == [True, False, False], shown(result))
    copies = report['copy_gb_s'] if report else 0
    row = rows.get('treering:ring')
    tap.check('the share of a copy is bytes over time over twice the bandwidth', row is not None and copies > 0 and
              abs(row['of_copy'] - row['moved_bytes'] / row['time_us'] / 1e3 / (2 * copies)) < 1e-9, shown(result))
    tap.check('the head says how many ranks share a GPU and what that means',
              f'{ranks} ranks share a GPU: these numbers measure kernels and memory, not NVLink' in result.stdout and
              f'{ranks} ranks, {"a process each" if extra else "threads of one process"}, on 1 GPU (' in result.stdout,
              shown(result))

for op, algorithms, extra in (('all_reduce', 'window,two_shot', []), ('all_gather', 'window', ['--processes']),
                              ('reduce_scatter', 'window', []),
                              ('all_reduce', 'window_one_shot', ['--out-of-place', '--processes'])):
    result, report = cuda(op, '-n', '3', '-b', '24', '-e', '100K', '-f', '50', '--registered', '--algos', algorithms,
                          *extra)
    found = timings(report) if report else []
    tap.check(f'{op} {extra}: registered buffers serve {algorithms}, all right',
              len(found) > 0 and all(timing['wrong'] == 0 for timing in found) and report['registered'] and
              'registered buffers' in result.stdout, shown(result))

result, report = cuda('all_reduce', '-n', '2', '-b', '8', '-e', '8', CUDASIM_DEVICES='2')
tap.check('a GPU a rank: nothing is shared', report is not None and ' on 2 GPUs (' in result.stdout and
          'share' not in result.stdout.replace('as a share', ''), shown(result))

# ---- NCCL, played by tests/cuda/fake_nccl.cpp ----------------------------------------------------------
os.symlink(os.path.abspath(NCCL_SIM), os.path.join(scratch.name, 'treering-peer-nccl'))
fake = {'TREERING_NCCL': FAKE_NCCL, 'TREERING_PEER_DIR': scratch.name}
for op in ['all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'gather', 'scatter', 'all_to_all',
           'send_recv']:
    reduces = op in ('all_reduce', 'reduce', 'reduce_scatter')
    result, report = cuda(op, '-n', '3', '-b', '24', '-e', '1K', '-f', '40', '--root', '2', '--against', 'nccl',
                          '--redop', 'sum,avg,premul_sum', *([] if reduces else ['--type', 'int8,bfloat16']), **fake)
    found = [row[mode] for row in (report['results'] if report else []) for mode in ('out_of_place', 'in_place')
             if row['library'] == 'nccl' and row[mode]]
    tap.check(f'nccl, {op}: right in every size, type and mode',
              len(found) == 2 * (3 if reduces else 2) * (1 if op == 'send_recv' else 2) and
              all(timing['wrong'] == 0 and timing['moved_is_least'] for timing in found) and
              'nccl: NCCL 2.30.7 (' in result.stdout, shown(result))
for op, why in (('barrier', 'NCCL has no barrier'), ('scan', 'NCCL has no scan')):
    result, report = cuda(op, '-n', '2', '-e', '8', '--against', 'nccl', **fake)
    tap.check(f'nccl, {op}: a note says that there is none', report is not None and 'nccl: ' + why in result.stdout,
              shown(result))
result, _ = cuda('all_reduce', '-n', '2', '-e', '8', '--against', 'nccl', FAKE_NCCL_VERSION='22809', **fake)
tap.check('an NCCL that puts one rank on a GPU: which, and what to do', result.returncode == 4 and
          'nccl: NCCL 2.28.9 puts one rank on a GPU (2.30.3 and later can put several), and there is 1 GPU: use -n 1'
          in result.stderr, shown(result))
result, report = cuda('all_reduce', '-n', '2', '-b', '8', '-e', '8', '--against', 'nccl', FAKE_NCCL_VERSION='22809',
                      CUDASIM_DEVICES='2', **fake)
tap.check('it takes as many ranks as there are GPUs', report is not None and len(report['results']) == 2, shown(result))

# ---- where it cannot be ---------------------------------------------------------------------------
for status, words, args, program, extra in [
        (4, 'treering perf: --device cuda: no GPU or no driver: ', [], SIM, {'CUDASIM_DEVICES': '0'}),
        (4, 'treering perf: --device cuda: no GPU or no driver: ', [], SIM, {'CUDASIM_DEVICES': '-1'}),
        (4, 'treering perf: --device cuda: ', [], REAL, {'CUDA_VISIBLE_DEVICES': ''}),
        (2, '--against mpi: it is measured on host memory only', ['--against', 'mpi'], SIM, {}),
        (4, 'treering perf: nccl: ' + ('treering-peer-nccl not found in ' if NCCL == '-' else 'no GPU or no driver: '),
         ['--against', 'nccl'], SIM, {}),
        (4, 'there is no protocol "LL129"', ['--protocol', 'LL129'], SIM, {})]:
    result = perf(program, 'all_reduce', '-n', '2', '-e', '8', '--device', 'cuda', *args, **extra)
    lines = result.stderr.strip().split('\n')
    tap.check(f'{" ".join(args)} {extra} {os.path.basename(program)}: status {status}, and why',
              result.returncode == status and words in lines[0], shown(result))
for args in (['--protocol', 'LL'], ['--processes'], ['--against', 'nccl']):
    result = perf(REAL, 'all_reduce', '-n', '2', '-e', '8', *args)
    tap.check(f'{" ".join(args)} without --device cuda is refused', result.returncode == 2 and
              '--device cuda' in result.stderr, shown(result))

if NCCL != '-':
    for extra, words in [({'TREERING_NCCL': '/nowhere/libnccl.so.2'}, 'no NCCL: /nowhere/libnccl.so.2: '),
                         ({'TREERING_NCCL': 'libc.so.6'}, 'this NCCL is too old: it has no ncclGetVersion')]:
        result = subprocess.run([NCCL, '--check', '2'], env={**os.environ, 'CUDA_VISIBLE_DEVICES': '', **extra},
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        tap.check(f'the NCCL worker with {extra}: one line', result.returncode == 1 and
                  result.stderr.startswith(words) and result.stderr.count('\n') == 1, shown(result))
    result = subprocess.run([NCCL, '--check', '2'], env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    tap.check('the NCCL worker without a GPU: one line',
              result.returncode == 1 and result.stderr.count('\n') == 1 and
              result.stderr.startswith(('no GPU or no driver: ', 'no NCCL: ')), shown(result))
tap.done()
