"""Every example, run as a reader would run it: alone, over 2, 3 and 4 ranks, and by `treering run`.

    test_examples.py FOLDER_OF_PROGRAMS [LAUNCHER]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import LIMIT_S, Run, find, params_hash  # noqa: E402
from tap import Tap  # noqa: E402

PROGRAMS = sys.argv[1]
LAUNCHER = sys.argv[2] if len(sys.argv) > 2 else None
FASHION = '/usr/share/datasets/fashion-mnist'
tap = Tap()


def example(size, name, *args):
    return Run(size, os.path.join(PROGRAMS, name), *args)


# ---- 01 -------------------------------------------------------------------------------------------
for n in (1, 2, 3, 4):
    run = example(n, '01_hello_ranks')
    hellos = sorted(re.findall(r'^hello from rank (\d+) of (\d+): I am process \d+$', run.all, re.M))
    tap.check(f'hello from {n} ranks',
              run.ok and hellos == [(str(q), str(n)) for q in range(n)]
              and run.out.endswith('everyone heard from the left neighbour\n')
              and run.all.count('everyone heard') == 1, run.why())

# ---- 02 -------------------------------------------------------------------------------------------
def sections(text):
    """{'all_reduce': ['6 10 14 18', ...one a rank]}"""
    found, current = {}, None
    for line in text.splitlines():
        rank = re.fullmatch(r'  rank (\d+): ?(.*)', line)
        if rank and current is not None and int(rank.group(1)) == len(current):
            current.append(rank.group(2))
        else:
            current = found.setdefault(re.match(r'\w+', line).group(0), [])
    return found


for n in (1, 2, 3, 4):
    run = example(n, '02_collectives')
    sums = [sum(i + r for r in range(n)) for i in range(n)]
    row = ' '.join(str(s) for s in sums)
    expected = {
        'start': [' '.join(str(i + r) for i in range(n)) for r in range(n)],
        'all_reduce': [row] * n,
        'reduce_scatter': [str(s) for s in sums],
        'all_gather': [row] * n,
        'broadcast': [' '.join(str(i + n - 1) for i in range(n))] * n,
        'scatter': [str(s) for s in sums],
        'all_to_all': [' '.join(str(10 * q + r) for q in range(n)) for r in range(n)],
        'all': [],
    }
    tap.check(f'collectives over {n} ranks', run.ok and sections(run.out) == expected,
              f'expected {expected}', run.why())
    if n == 4:
        tap.check('all_reduce of [0 1 2 3] + rank is 6 10 14 18', '\n  rank 3: 6 10 14 18\n' in run.out)

environment = dict(os.environ, TR_ALGO='all_reduce:teleport')
done = subprocess.run([os.path.join(PROGRAMS, '02_collectives')], env=environment, text=True, capture_output=True)
tap.check('an error is told with its kind, once',
          done.returncode == 1 and done.stderr.count('invalid argument: ') == 1, done.stdout, done.stderr)

# ---- 03 to 07: each checks its own numbers, and ends with another status if one is wrong --------------
LESSONS = {
    '03_data_parallel': r"mean of the ranks' means instead: +relative error 1\.2e-02, a wrong gradient",
    '04_tensor_parallel': r'dy summed over ranks would be 4 times the gradient',
    '05_pipeline': r'gradients are the serial ones bit for bit; bubble \(n-1\)/\(m\+n-1\) = 27\.3 %',
    '06_zero': r'ZeRO-3: sent +82944 bytes a step and rank, keeps +27648 bytes\n.* equal bit for bit',
    '07_parameter_server': r'server: +rank 0 moves 2 \(n-1\) S += +6\.0 MiB',
}
for name, said in LESSONS.items():
    for n in (1, 2, 4):
        run = example(n, name)
        tap.check(f'{name} over {n} ranks', run.ok and (n < 4 or re.search(said, run.out)), run.why())

# ---- 10: starts its ranks by itself; checks its curve against one rank alone ------------------------
for victim, step in ((1, 12), (0, 5), (3, 23)):
    run = example(1, '10_survive', '4', str(victim), str(step))
    curve = re.findall(r'^step +(\d+)  (\d) ranks  loss ([\d.]+)  alone ([\d.]+)$', run.out, re.M)
    tap.check(f'10_survive: rank {victim} of four is killed in step {step}, three finish', run.ok
              and f'rank {victim} ' in run.out and f'3 ranks go on with step {step}' in run.out
              and [int(c[0]) for c in curve] == list(range(24))
              and [int(c[1]) for c in curve] == [4] * step + [3] * (24 - step)
              and all(abs(float(c[2]) - float(c[3])) < 1e-4 * float(c[3]) for c in curve), run.why())

# Killed wherever it is: one survivor may be a step ahead of another.
for milliseconds in range(0, 30, 3):
    run = example(1, '10_survive', '4', '2', f'{milliseconds}ms')
    steps = re.findall(r'^step +(\d+)  ([34]) ranks', run.out, re.M)
    tap.check(f'10_survive: rank 2 is killed after {milliseconds} ms', run.ok and [int(s) for s, _ in steps] == list(range(24))
              and [n for _, n in steps] == sorted((n for _, n in steps), reverse=True), run.why())

run = example(1, 'break_it')
tap.check('break_it: what breaks is named, rank by rank, with what to do', run.ok
          and 'rank 1: all_reduce of 1000 float64, sum' in run.out and run.out.count('   what to do: ') == 11, run.why())

# ---- 08 -------------------------------------------------------------------------------------------
for n in (1, 2, 4):
    run = example(n, '08_bandwidth', '1')
    table = re.findall(r'^ +(\d+)((?: +[\d.]+){3})$', run.out, re.M)
    tap.check(f'bandwidth over {n} ranks: sizes up to 1 MiB',
              run.ok and len(table) >= 4 and int(table[-1][0]) == 2**20, run.why())
    if n == 1:
        continue
    wrong = find(r'S = the output .* = ([\d.]+) GB/s', run.out)
    right = find(r'S = n outputs .* = ([\d.]+) GB/s', run.out)
    ms = find(r'last row, ([\d.]+) ms', run.out)
    if tap.check('both countings are printed', None not in (wrong, right, ms), run.why()):
        truth = (n - 1) / n * 2**20 / (float(ms) * 1e6)
        tap.check(f'the slip is the factor {n}, and the right figure is (n-1)/n S / t',
                  abs(float(right) - truth) < 0.02 * truth + 0.002
                  and abs(float(wrong) - truth / n) < 0.02 * truth + 0.002, run.why())
run = example(1, '08_bandwidth', 'much')
tap.check('bandwidth refuses a size that is none', not run.ok and 'number of MiB' in run.errors[0],
          run.why())

# ---- 09 -------------------------------------------------------------------------------------------
for n in (1, 2, 3, 4):
    run = example(n, '09_custom_algorithm')
    tap.check(f'the algorithm of lesson 9 gathers over {n} ranks',
              run.ok and f'gathered {n} real chunk{"s" if n > 1 else ""}\n' in run.out, run.why())
tap.check('it is recorded and proven', 'proven for 1 to 17 ranks\n' in run.out
          and run.out.count('  lane 0') == 4 and run.out.count('  lane 1') == 2, run.why())
tap.check('the missing chunk is caught', find(r'^one hop short: +(.*out\[\d\] = .*)', run.out) is not None,
          run.why())
tap.check('the deadlock is caught', find(r'^everyone waits: +(.*rank \d.*)', run.out) is not None, run.why())

# ---- train_mlp, byte_lm ------------------------------------------------------------------------------
TRAINER = 'train_mlp'


def train(n, *args):
    return example(n, TRAINER, *args)


if not os.path.exists(os.path.join(PROGRAMS, TRAINER)):
    tap.skip('the trainers', 'they were not built: zlib or CLI11 is missing')
    tap.done()

run = train(1, '--backend', 'threads', '--dp', '2', '--min-accuracy', '0.955')
accuracy = find(r'^epoch 50/50 .* test ([\d.]+)', run.out)
tap.check(f'digits reach 0.955 (here {accuracy})', run.ok and accuracy is not None and float(accuracy) >= 0.955,
          run.why())
run = train(1, '--epochs', '1', '--min-accuracy', '0.955')
tap.check('a test accuracy below --min-accuracy fails, status 3', run.codes == [3] and 'is below --min-accuracy 0.9550'
          in run.errors[0], run.why())

# In rank order, and with a fixed order of sums in products, replicas cannot change a bit. (The epoch's last batch is
# short: one rank does not cut it as the replicas do.)
for n in (1, 2, 3, 4):
    run = train(n, '--verify', '--steps', '11', '--gemm', 'ref', '--reduce-order', 'rank', '--bucket-mb', '0.04',
                '--first-bucket-mb', '0.01')
    tap.check(f'{n} processes train what one trains, bit for bit', run.ok
              and 'against a serial run: every loss is equal bit for bit' in run.out, run.why())
for layout in (['--dp', '2', '--tp', '2'], ['--pp', '2', '--dp', '2', '--micro-batch', '16'], ['--dp', '4', '--zero', '3']):
    run = train(4, '--verify', '--epochs', '2', '--gemm', 'ref', *layout)
    tap.check(f'{" ".join(layout)}: within 2e-6 of it', run.ok and 'against a serial run: ' in run.out, run.why())

# With the order of the sums fixed, buckets and overlap cannot change a bit.
hashes = {}
for name, args in {'one bucket': [], 'overlap off': ['--overlap', 'off'],
                   'small buckets': ['--bucket-mb', '0.001', '--first-bucket-mb', '0.001']}.items():
    hashes[name] = params_hash(train(3, '--epochs', '2', '--gemm', 'ref', '--reduce-order', 'rank', *args))
tap.check('neither buckets nor overlap change a bit', None not in hashes.values()
          and len(set(hashes.values())) == 1, str(hashes))
again = params_hash(train(3, '--epochs', '2', '--gemm', 'ref', '--reduce-order', 'rank', '--seed', '2'))
tap.check('the seed does', again is not None and again not in hashes.values(), str(again))

with tempfile.TemporaryDirectory() as folder:
    metrics = os.path.join(folder, 'm.jsonl')
    run = train(4, '--preset', 'cs336', '--steps', '4', '--log-every', '1', '--metrics', metrics)
    lines = [json.loads(line) for line in open(metrics)] if run.ok else []
    saved = os.path.join(folder, 'saved')
    first = train(2, '--steps', '10', '--save', saved)
    rest = train(2, '--steps', '20', '--load', saved)
    whole = train(2, '--steps', '20')
tap.check('preset cs336 over 4 ranks: the loss falls',
          len(lines) == 7 and 'step_memory_mb' in lines[5] and lines[0]['loss'] > lines[1]['loss'] > lines[3]['loss'] > 0
          and [line['step'] for line in lines[:4]] == [1, 2, 3, 4], run.why(), str(lines))
tap.check('it sends 2 (n-1)/n x 16 MiB = 25165824 bytes per rank and step',
          lines and any(line.get('sent_per_step', {}).get('dp all_reduce') == 25165824 for line in lines), run.why())
tap.check('a training that was saved goes on as if it had not been ended', first.ok and 'goes on after step 10' in rest.out
          and params_hash(rest) is not None and params_hash(rest) == params_hash(whole), rest.why(), whole.why())

if os.path.exists(FASHION):
    run = train(2, '--data', 'fashion', '--epochs', '1', '--min-accuracy', '0.82')
    tap.check(f'Fashion-MNIST, one epoch (test {find(r" test ([0-9.]+)", run.out)})', run.ok, run.why())
else:
    tap.skip('Fashion-MNIST', f'{FASHION} is absent: install dataset-fashion-mnist')

with tempfile.TemporaryDirectory() as folder:
    text = os.path.join(folder, 'text')
    with open(text, 'w') as file:
        file.write('In the beginning was the word, and the word was with the ring. ' * 18000)
    run = example(2, 'byte_lm', '--data-path', text, '--steps', '40', '--log-every', '20')
bits = find(r'^test: ([\d.]+) bits per byte', run.out)
tap.check(f'byte_lm learns a text: {bits} bits per byte', run.ok and bits is not None and float(bits) < 4, run.why())

for args, said in ((['--data', 'cats'], 'cats'), (['--batch', '0'], '--batch: must be a whole number from 1 to 1073741824, not 0'),
                   (['--batch', 'x'], '--batch'), (['--steps', '-1'], '--steps: must be a whole number from 0 to 2147483647, not -1'),
                   (['--lr', 'nan'], '--lr: must be a finite number larger than 0, not nan'), (['--min-accuracy', '2'], '--min-accuracy'),
                   (['--fast'], '--fast'), (['--device', 'tpu'], 'tpu'),
                   (['--device', 'cuda', '--backend', 'gloo'], 'move memory of a GPU, not gloo')):
    run = train(1, *args)
    tap.check(f'{" ".join(args)} is refused with status 2, in words that fit a line',
              run.codes == [2] and said in run.errors[0] and max(map(len, run.errors[0].splitlines())) < 120, run.why())

for args, said in ((['--data-path', '/nonexistent'], '/nonexistent/digits.csv.gz'),
                   (['--metrics', '/nonexistent/m'], '/nonexistent/m'),
                   (['--dp', '3'], 'dp 3 x pp 1 x tp 1 makes 3 ranks, but there are 1'),
                   (['--gemm', 'cublas'], "no matrix products named 'cublas'")):
    run = train(1, *args)
    tap.check(f'{" ".join(args)} is refused and explained', run.codes == [1] and said in run.errors[0], run.why())

# ---- by the launcher -------------------------------------------------------------------------------
PLAN = ['--mlp', '--layers', '4', '--hidden', '1024', '--fp32', '--batch', '128', '--ranks', '4']
run = example(1, 'plan', *PLAN, '--dp', '2', '--pp', '2', '--micro-batch', '16')
tap.check('plan says what a layout sends, and its bubble',
          run.ok and 'sent       dp 8.39 MB, tp 0 B, pp 262 kB each way' in run.out and '(20.0 %)' in run.out,
          run.why())
run = example(1, 'plan', *PLAN, '--dp', '3')
tap.check('plan names a product that is not the ranks',
          run.codes == [1] and 'dp 3 x pp 1 x tp 1 makes 3 ranks, but there are 4' in run.errors[0], run.why())
run = example(1, 'plan', '--ranks', 'many')
tap.check('plan refuses what is no number', run.codes == [2] and '--ranks many: not a number' in run.errors[0],
          run.why())

if LAUNCHER is None:
    tap.skip('treering run', 'the command was not built')
else:
    for name, args, said in (('01_hello_ranks', [], 'everyone heard from the left neighbour'),
                             ('02_collectives', [], 'rank 3: 6 10 14 18'),
                             ('08_bandwidth', ['0.25'], 'wrong, 4 times too small'),
                             ('09_custom_algorithm', [], 'gathered 4 real chunks'),
                             (TRAINER, ['--epochs', '1', '--verify'], 'against a serial run: ')):
        done = subprocess.run([LAUNCHER, 'run', '-n', '4', '--timeout', str(LIMIT_S), '--',
                               os.path.join(PROGRAMS, name), *args], text=True, capture_output=True)
        tap.check(f'treering run -n 4 -- {name}', done.returncode == 0 and said in done.stdout,
                  f'exit status {done.returncode}', done.stdout, done.stderr)

tap.done()
