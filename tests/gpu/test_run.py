#!/usr/bin/env python3
"""tests/gpu/run --dry: the steps of a GPU run, small, under the emulator. TAP.

Usage: test_run.py RUN PTX_SIM MATRIX_SIM TREERING_SIM   (the programs lie where RUN looks for them in the build)
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap  # noqa: E402

RUN, PTX = sys.argv[1:3]
BUILD = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(PTX))))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(RUN))))

tap = Tap()
scratch = tempfile.TemporaryDirectory()
state = os.path.join(scratch.name, 'state')
results_before = sorted(os.listdir(os.path.join(ROOT, 'perf', 'results')))


def run(*args, **extra):
    return subprocess.run([RUN, *args], env={**os.environ, **extra}, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=110)


def shown(result):
    logs = [f'{path}:\n{open(path).read()[-1500:]}' for path in sorted(glob.glob(state + '/*.log'))]
    return [f'status {result.returncode}', result.stdout, result.stderr, *logs]


def records():
    out = {}
    for path in glob.glob(state + '/*.json'):
        with open(path) as file:
            record = json.load(file)
        if 'status' in record:
            out[record['name']] = record
    return out


# A run that has no time says so; what was done counts for the next.
result = run('--dry', '--build', BUILD, '--state', state, '--seconds', '0')
tap.check('no time: nothing is begun, status 3', result.returncode == 3 and records() == {} and
          'no time left' in result.stdout, shown(result))

first = run('--dry', '--build', BUILD, '--state', state)
done = records()
bad = {name: record['text'] for name, record in done.items() if record['status'] == 'failed'}
tap.check('all steps pass or are skipped', first.returncode == 0 and not bad, shown(first))
tap.check('every step of a GPU run is there', {'hardware', 'ptx', 'compute', 'trainer', 'matrix-2', 'matrix-4',
          'matrix-8', 'processes', 'processes-mps', 'memcheck', 'racecheck', 'perf-all_reduce-4-Simple', 'perf-all_reduce-4-LL', 'perf-all_reduce-4-LL128',
          'perf-nccl'} <= set(done),
          sorted(done))
tap.check('tests ran, the rest is counted as skipped',
          all(done.get(name, {}).get('status') == 'passed' for name in
              ('ptx', 'matrix-2', 'matrix-4', 'matrix-8', 'processes', 'perf-all_reduce-4-Simple', 'perf-all_reduce-4-LL',
               'perf-all_reduce-4-LL128')) and
          all(done.get(name, {}).get('status') == 'skipped' for name in ('processes-mps', 'memcheck', 'racecheck')),
          {name: record['status'] for name, record in done.items()})
lines = first.stdout.strip().split('\n')
tap.check('it says first and last that no GPU was used', lines[0].startswith('DRY RUN: NO GPU IS USED') and
          lines[-1].startswith('NO GPU WAS USED'), shown(first))

reports = glob.glob(state + '/*-dry.md')
report = open(reports[0]).read() if reports else ''
tap.check('the report: hardware, command, tables with the ceiling, and what they are worth',
          '**No GPU was used.**' in report and '--dry' in report and ' of copy' in report and
          'treering:two_shot' in report and '- 8 bytes, 4 ranks: ' in report and
          report.count('measure kernels and memory, not NVLink. Emulated: no GPU was used.') == report.count('\n## '),
          [report[:3000]])
tap.check('a dry run leaves no result in the repository',
          sorted(os.listdir(os.path.join(ROOT, 'perf', 'results'))) == results_before)

# Again: nothing is run again but what failed.
os.remove(os.path.join(state, 'hardware.json'))
second = run('--dry', '--build', BUILD, '--state', state)
tap.check('an interrupted run goes on where it stopped', second.returncode == 0 and
          second.stdout.count(': passed before') + second.stdout.count(': skipped before') == len(done) - 1 and
          'hardware: passed,' in second.stdout, shown(second))

# Packed for a machine that has nothing, with time for the first steps only.
packed = os.path.join(scratch.name, 'packed')
run('--dry', '--build', BUILD, '--state', state, '--pack', packed)
result = subprocess.run([os.path.join(packed, 'tests', 'gpu', 'run'), '--dry', '--state', packed + '-state', '--seconds',
                         '6'], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
tap.check('packed: the same steps from a folder of its own', 'ptx: passed' in result.stdout and
          'failed,' not in result.stdout and any('libhwy' in name for name in os.listdir(os.path.join(packed, 'lib'))),
          shown(result))

# Without --dry and without a GPU it refuses.
result = run('--build', BUILD, '--state', state + '-gpu', CUDA_VISIBLE_DEVICES='')
tap.check('no GPU: status 2, and why', result.returncode == 2 and
          ('no GPU or no driver' in result.stderr or 'is not built' in result.stderr or 'no CUDA' in result.stderr),
          shown(result))
tap.done()
