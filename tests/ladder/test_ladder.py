#!/usr/bin/env python3
"""Usage: test_ladder.py LADDER

Every step of the teaching ladder on the emulator: exact results for several numbers of ranks, odd sizes and
shuffled threads; what is printed; waits that end; arguments that are refused. TAP.
"""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

LADDER = sys.argv[1]
STEPS = ['1_gather', '2_ring', '3_pipelined', '4_vectorised', '5_ll', '6_library']
# name: the bytes that the busiest rank's kernel loads and stores, over those of the vector, for n = 2, 3, 4.
MOVED = {'1_gather': (4, 6, 8), '2_ring': (4.5, 6, 6.75), '3_pipelined': (4, 14 / 3, 5), '4_vectorised': (4, 14 / 3, 5),
         '5_ll': (6, 22 / 3, 8), '6_library': (4, 14 / 3, 5)}
tap = Tap()


def ladder(*args, **env):
    return subprocess.run([LADDER, *map(str, args)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **{k: str(v) for k, v in env.items()}})


def row_of(step, text):
    """(time, GB/s, bytes over S, MB) of a step's row, or None."""
    match = re.search(rf'^{step} .* (\d+\.\d) +(\d+\.\d+)  .*= +(\d+\.\d+) S = (\d+\.\d+) MB$', text, re.M)
    return match and [float(x) for x in match.groups()]


def exact(what, args, steps=STEPS, **env):
    run = ladder('--steps', ','.join(str(STEPS.index(s) + 1) for s in steps), *args, **env)
    for step in steps:
        tap.check(f'{step}: {what}: exact', row_of(step, run.stdout) is not None, run.stdout, run.stderr)
    tap.check(f'{what}: exit status 0, nothing on stderr', run.returncode == 0 and not run.stderr,
              f'{run.returncode}', run.stderr)
    return run.stdout


# One float; fewer floats than ranks; no multiple of 16 bytes; several rounds on each channel.
for ranks in 2, 3, 4:
    for size in 4, 12, 4012, 100004, 1048588:
        text = exact(f'{ranks} ranks, {size} bytes', ['--ranks', ranks, '--bytes', size, '--runs', 2])
    wrong = [f'{step}: {row_of(step, text)}, expected {moved[ranks - 2]}' for step, moved in MOVED.items()
             if not row_of(step, text) or abs(row_of(step, text)[2] - moved[ranks - 2]) > 0.006
             or abs(row_of(step, text)[3] - moved[ranks - 2] * 1.048588) > 0.001]
    tap.none(f'{ranks} ranks: the bytes moved are those of the formulas', wrong)
    tap.check(f'{ranks} ranks: says that these times mean nothing', 'MEAN NOTHING FOR A GPU' in text, text)
exact('8 ranks, 2 channels', ['--ranks', 8, '--bytes', '64K', '--channels', 2, '--runs', 1])
for seed in range(1, 5):
    exact(f'3 ranks, one channel, seed {seed}', ['--ranks', 3, '--bytes', 1000004, '--channels', 1, '--runs', 1],
          STEPS[:5], CUDASIM_SEED=seed)

# A rank that does not come: the others say so, soon.
for i, step in enumerate(STEPS):
    start = time.monotonic()
    run = ladder('--ranks', 3, '--bytes', '300K', '--steps', i + 1, '--stall', 2, '--timeout', 0.5)
    took = time.monotonic() - start
    # Rank 1 waits for rank 0, which waits for rank 2; either may be the first whose time is up.
    names = r'in vain for message \d+ from rank [02]' if step == '6_library' else \
            r'rank 0: block \d, thread \d+ waited for message 0 from rank 2$'
    tap.check(f'{step}: a rank that does not come is waited for as long as said, and who waited is told',
              run.returncode == 1 and re.search(names, run.stdout, re.M) and took < 20, f'{took:.1f} s, {run.returncode}',
              run.stdout, run.stderr)

for args, words in [
        (['--ranks', 1], '--ranks 1: must be a whole number from 2 to 8'), (['--ranks', 'two'], '--ranks two: must'),
        (['--bytes', 6], '--bytes 6: must be a multiple of 4'), (['--bytes', '2G'], 'must be a whole number from 1 to 1'),
        (['--bytes', 0], '--bytes 0: must'), (['--bytes', ''], '--bytes : must'), (['--bytes', '-4'], '--bytes -4: must'),
        (['--steps', '1,7'], '--steps 7: must be a whole number from 1 to 6'), (['--steps', '1,'], '--steps : must'),
        (['--channels', 17], '--channels 17: must'), (['--runs', 0], '--runs 0: must'),
        (['--timeout', 'soon'], '--timeout soon: must be seconds'), (['--stall', 4], '--stall 4: there are 4 ranks'),
        (['--rank', 2], 'unknown argument --rank'), (['--ranks'], '--ranks needs a value'),
        (['--ranks', 8, '--channels', 13], 'take fewer channels')]:
    run = ladder(*args)
    tap.check(f'{" ".join(map(str, args))}: refused, and why', run.returncode == 2 and words in run.stderr and not run.stdout,
              f'{run.returncode}', run.stdout, run.stderr)
run = ladder('--help')
tap.check('--help', run.returncode == 0 and run.stdout.startswith('usage: ladder'), run.stdout)
run = ladder('--steps', 1, CUDASIM_DEVICES=0)
tap.check('no device: said', run.returncode == 1 and 'looking for a device: no CUDA-capable device' in run.stderr, run.stderr)
tap.done()
