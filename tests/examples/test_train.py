"""train_mlp, byte_lm, plan and break_it, run as their readers would run them. V16, V17, V20 and what a program
must do beside training: report, save, resume, refuse.

    test_train.py FOLDER_OF_PROGRAMS LAUNCHER BACKENDS

With TR_TEST_LONG: ten epochs of Fashion-MNIST in every layout, and the byte model, too.
"""
import json
import math
import os
import re
import sys
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from tap import Tap  # noqa: E402
from train_programs import (BACKENDS, LAUNCHER, PROGRAMS, ROOT, metrics, param_hash, path, run, shown,  # noqa: E402
                            threads, train)

FASHION = '/usr/share/datasets/fashion-mnist'
LONG = bool(os.environ.get('TR_TEST_LONG'))
tap = Tap()


LAYOUTS = {
    'serial': [],
    'dp4': threads('--dp', '4'),
    'zero3': threads('--dp', '4', '--zero', '3'),
    'tp2': threads('--tp', '2'),
    'tp4': threads('--tp', '4'),
    'pp2': threads('--pp', '2', '--micro-batch', '32'),
    '2x2x2': threads('--dp', '2', '--pp', '2', '--tp', '2', '--micro-batch', '16'),
}

# ---- V16: quality on real data, and the curves laid over each other
DEEP = ['--hidden', '64,64,64,64,64,64,64,64']
accuracies = {}
for name, layout in {**LAYOUTS, 'gather2': threads('--tp', '2', '--tp-mode', 'gather'),
                     'pp4': [*threads('--pp', '4', '--micro-batch', '32'), *DEEP],
                     'interleaved': [*threads('--pp', '2', '--vpp', '2', '--micro-batch', '32'), *DEEP],
                     'zb-h1': [*threads('--pp', '2', '--schedule', 'zb-h1', '--micro-batch', '32')],
                     'sp2': threads('--tp', '2', '--sp', '--batch', '64')}.items():
    result = train('--data', 'digits', '--metrics', path(name), '--min-accuracy', '0.955', *layout)
    tests = [row['test_accuracy'] for row in metrics(name) if 'test_accuracy' in row] if os.path.exists(path(name)) else []
    accuracies[name] = tests[-1] if tests else 0
    tap.check(f'V16 digits, {name}: 50 epochs, test accuracy of 0.955 at least',
              result.returncode == 0 and accuracies[name] >= 0.955, shown(result))
same = [accuracies[name] for name in LAYOUTS]
tap.check('V16 digits: layouts of one net are within a point of each other', max(same) - min(same) <= 0.01, accuracies)

svg = path('curves.svg')
result = run(os.path.join(ROOT, 'tools/plot-curves'), '-o', svg, *[f'{name}={path(name)}' for name in LAYOUTS])
ok = result.returncode == 0
if ok:
    drawn = [[tuple(map(float, p.split(','))) for p in line.get('points').split()]
             for line in xml.parse(svg).getroot().iter('{http://www.w3.org/2000/svg}polyline')]
    ok = len(drawn) == len(LAYOUTS) and all(len(points) == 50 for points in drawn)
    # Equal trainings lie over each other to a pixel; a falling loss goes down the page.
    ok = ok and all(abs(a[1] - b[1]) < 1.5 for points in drawn[1:] for a, b in zip(drawn[0], points))
    ok = ok and all(points[0][1] < points[-1][1] for points in drawn)
tap.check('the loss curves of all layouts lie over each other in one picture', ok, shown(result))

if os.path.isdir(FASHION):
    epochs, least = ('10', 0.875) if LONG else ('2', 0.845)
    four = ['--hidden', '256,128,128']
    nets = {'serial': [], 'dp4': LAYOUTS['dp4'], '2x2x2': LAYOUTS['2x2x2']}
    if LONG:
        nets.update({'zero3': LAYOUTS['zero3'], 'tp4': LAYOUTS['tp4'],
                     'pp4': [*threads('--pp', '4', '--micro-batch', '32'), *four]})
    results = {}
    for name, layout in nets.items():
        result = train('--data', 'fashion', '--epochs', epochs, '--metrics', path('fashion-' + name), *layout, limit=1200)
        tests = [row['test_accuracy'] for row in metrics('fashion-' + name) if 'test_accuracy' in row]
        results[name] = tests[-1] if tests else 0
        tap.check(f'V16 Fashion-MNIST, {name}: {epochs} epochs, {least} at least',
                  result.returncode == 0 and results[name] >= least, [results, *shown(result)])
    tap.check('V16 Fashion-MNIST: within a point', max(results.values()) - min(results.values()) <= 0.01, results)
else:
    tap.skip('V16 Fashion-MNIST', 'no dataset-fashion-mnist')

# ---- The same as processes, and over other libraries (V17), on 2, 4 and 8 ranks
def losses(name):
    return [row['loss'] for row in metrics(name) if 'loss' in row]


def steps(name, *args):
    return ['--steps', '20', '--log-every', '1', '--gemm', 'ref', '--metrics', path(name), *args]


reference = train(*steps('one'))
in_rank_order = param_hash(train(*steps('two'), *threads('--dp', '2', '--reduce-order', 'rank')))
for backend in BACKENDS:
    if backend == 'nccl':
        continue
    for n, layout in ((2, ['--dp', '2']), (4, ['--dp', '2', '--tp', '2']),
                      (8, ['--dp', '2', '--pp', '2', '--tp', '2', '--micro-batch', '32'])):
        name = f'{backend}-{n}'
        launch = (['mpirun', '--oversubscribe', '--allow-run-as-root', '--bind-to', 'none', '-n', str(n)]
                  if backend == 'mpi' else [LAUNCHER, 'run', '-n', str(n), '--'])
        result = run(*launch, os.path.join(PROGRAMS, 'train_mlp'), '--backend', backend, *steps(name), *layout)
        good = result.returncode == 0 and len(losses(name)) >= 20
        worst = max((abs(a / b - 1) for a, b in zip(losses('one'), losses(name))), default=1) if good else 1
        tap.check(f'V17 {" ".join(layout)} over {backend}: the losses of a serial run within 1e-6', worst < 1e-6,
                  [worst, *shown(result)])
        if n == 2:  # there is one sum of two numbers, whoever computes it
            tap.check(f'V17 two replicas over {backend}: the bits of sums in rank order',
                      in_rank_order is not None and param_hash(result) == in_rank_order, [in_rank_order, *shown(result)])
for n, layout in ((4, ['--dp', '4']), (8, ['--dp', '4', '--pp', '2', '--micro-batch', '32'])):
    hashes = [param_hash(run(*command, os.path.join(PROGRAMS, 'train_mlp'), *steps('order'), *layout, *more, '--reduce-order', 'rank'))
              for command, more in (([LAUNCHER, 'run', '-n', str(n), '--'], []), (['env'], ['--backend', 'threads']))]
    tap.check(f'V17 {" ".join(layout)}: processes and threads, both in rank order, have the same bits',
              hashes[0] is not None and hashes[0] == hashes[1], hashes)
result = train('--backend', 'nccl')
tap.check('nccl without a GPU: one sentence', result.returncode == 1 and 'nccl' in result.stderr and
          result.stderr.count('\n') == 1, shown(result))

# ---- --verify: a serial run beside it
for words, args in {'bit for bit': threads('--dp', '4', '--reduce-order', 'rank'),
                    'millionths': threads('--dp', '2', '--tp', '2', '--gemm', 'ref')}.items():
    result = train('--steps', '20', '--verify', *args)
    tap.check(f'--verify {" ".join(args)}: {words}', result.returncode == 0 and words in result.stdout, shown(result))

# ---- Bytes and memory of a dry run (V14), for ranks that do not exist
def sent(result, line):
    found = re.search(rf'^  {line} +[\d.]+ calls +(\d+) bytes', result.stdout, re.M)
    return int(found.group(1)) if found else None


for args, expected in [
        (['--dp', '4'], {'dp +all_reduce': 25165824}),
        (['--dp', '4', '--zero', '1'], {'dp +reduce_scatter': 12582912, 'dp +all_gather': 12582912}),
        (['--dp', '4', '--zero', '3'], {'dp +reduce_scatter': 12582912, 'dp +all_gather': 25165824}),
        (['--tp', '4', '--tp-mode', 'gather'], {'tp +all_gather': 1572864, 'tp +reduce_scatter': 1179648}),
        (['--tp', '4'], {'tp +all_reduce': 2359296}),
        (['--pp', '2', '--micro-batch', '32'], {'pp +send': 524288})]:
    result = train('--preset', 'cs336', '--backend', 'count', *args)
    found = {line: sent(result, line) for line in expected}
    tap.check(f'V14 cs336 {" ".join(args)}: bytes as the formula says', found == expected, [found, *shown(result)])
result = train('--preset', 'cs336', '--backend', 'count', '--dp', '512', '--pp', '4', '--tp', '8', '--batch', '65536')
tap.check('a dry run of 16,384 ranks', result.returncode == 0 and '16384 ranks (count)' in result.stdout, shown(result))

# ---- Save, kill, resume (V13 from outside)
whole = train('--steps', '24', *threads('--dp', '2', '--zero', '1'))
first = train('--steps', '12', '--save', path('ckpt'), *threads('--dp', '2', '--zero', '1'))
rest = train('--steps', '24', '--load', path('ckpt'), *threads('--dp', '2', '--zero', '1'))
tap.check('V13 12 steps, saved, loaded, 12 more: the parameters of 24 at once', param_hash(whole) is not None and
          param_hash(whole) == param_hash(rest) and 'goes on after step 12' in rest.stdout, [*shown(first), *shown(rest)])
other = train('--steps', '24', '--load', path('ckpt'), *threads('--pp', '2', '--tp', '2', '--micro-batch', '32'))
tap.check('V13 loaded into another layout', other.returncode == 0 and 'goes on after step 12' in other.stdout, shown(other))
result = train('--steps', '24', '--load', path('ckpt'), '--hidden', '96')
tap.check('V13 another net is refused, with both shapes', result.returncode == 1 and '64x96' in result.stderr and
          '64x128' in result.stderr, shown(result))

# ---- Trace: a process a rank, arrows from send to receive
result = train('--steps', '4', '--trace', path('trace.json'), *threads('--dp', '2', '--pp', '2', '--micro-batch', '16'))
with open(path('trace.json'), encoding='utf-8') as file:
    trace = json.load(file)
events = trace['traceEvents'] if isinstance(trace, dict) else trace
starts = {e['id'] for e in events if e['ph'] == 's'}
ends = {e['id'] for e in events if e['ph'] == 'f'}
tap.check('the trace has four ranks, computation, and an arrow for every message', result.returncode == 0 and
          {e['pid'] for e in events if e['ph'] == 'X'} == {0, 1, 2, 3} and starts == ends and len(starts) >= 4 * 2 * 4 * 2 / 2 and
          any(e['ph'] == 'X' and e['name'] == 'F0' for e in events), [len(starts), len(ends), *shown(result)])

# ---- Simulated links: the same times on every machine; overlap hides, a slow link shows
def step_ms(*args, bucket_mb='0.3'):
    result = train('--preset', 'cs336', '--steps', '2', '--hidden', '256,256,256,256,256,256', '--bucket-mb', bucket_mb, *args,
                   '--metrics', path('sim'), *threads('--dp', '4'))
    if result.returncode != 0:
        return math.nan
    rows = metrics('sim')
    os.unlink(path('sim'))
    return rows[0]['step_ms']


fast = ['--peak-gflops', '100', '--sim-bw', '10,10']
overlapped, bucketed = step_ms(*fast), step_ms(*fast, '--overlap', 'off')
naive = step_ms(*fast, '--overlap', 'off', bucket_mb='1000')
tap.check('simulated: overlapped is faster than bucketed; the same twice',
          overlapped < bucketed and naive >= bucketed * 0.99 and step_ms(*fast) == overlapped, [overlapped, bucketed, naive])
slow = step_ms('--peak-gflops', '100', '--sim-bw', '10,0.1', '--ranks-per-node', '2')
tap.check('simulated: links between nodes that are 100 times slower', slow > 3 * overlapped, [slow, overlapped])

# ---- Faults (V20)
result = train('--inject', 'nan:1:2', '--nan-check', '--steps', '5', *threads('--dp', '2'))
tap.check('V20 NaN: rank and layer are named', result.returncode == 1 and 'rank 1' in result.stderr and 'layer' in result.stderr,
          shown(result))
for n in ('2', '4', '8'):
    dead = int(n) // 2
    result = run(LAUNCHER, 'run', '-n', n, '--', os.path.join(PROGRAMS, 'train_mlp'), '--inject', f'kill:{dead}:3', '--steps', '50')
    tap.check(f'V20 kill, {n} ranks: the dead rank is named', result.returncode != 0 and f'rank {dead}' in result.stderr, shown(result))
result = train('--inject', 'slow:1:20', '--steps', '4', *threads('--dp', '2'))
tap.check('V20 slow: a slow rank is no error', result.returncode == 0, shown(result))
result = run(os.path.join(PROGRAMS, 'break_it'))
tap.check('V20 break_it: every fault gets its diagnosis', result.returncode == 0 and result.stdout.count('what to do:') == 11 and
          'MISSING' not in result.stdout, shown(result))
result = run(os.path.join(PROGRAMS, 'break_it'), 'nonsense')
tap.check('break_it knows its faults', result.returncode == 2 and 'hang' in result.stderr, shown(result))

# ---- Refusals
for words, args in [('dp 3 x pp 1 x tp 1', ['--ranks', '4', '--dp', '3']), ('cannot be 8 pipeline stages', ['--pp', '8']), ('stage_layers', ['--stages', '1,1', '--pp', '2']),
                    ('zero 0 only', ['--dp', '2', '--zero', '1', '--compress', 'bf16'])]:
    result = train(*threads(*args))
    tap.check(f'refused: {" ".join(args)}', result.returncode == 1 and words in result.stderr, shown(result))
for args in (['--zero', '4'], ['--schedule', path('none.csv')], ['--loss-scale', 'much'], ['--stages', '3,x'], ['--batch', '0']):
    result = train(*args)
    tap.check(f'usage: {" ".join(args[:1])} is wrong', result.returncode not in (0, 1) and result.stderr != '', shown(result))
result = train('--print-config', '--dp', '2')
tap.check('--print-config prints and ends', result.returncode == 0 and 'dp=2' in result.stdout and 'rank' not in
          result.stdout.split('\n')[-2], shown(result))

# ---- byte_lm, on this repository's own words
text = ''.join(open(os.path.join(ROOT, name), encoding='utf-8').read() for name in ('README.md', 'ARCHITECTURE.md', 'LINKS.md'))
data = text.encode() * ((1 << 20) // len(text.encode()) + 2)
with open(path('text'), 'wb') as file:
    file.write(data)
result = train('--data-path', path('text'), '--steps', '150', *threads('--dp', '2'), name='byte_lm')
found = re.search(r'^test: ([\d.]+) bits per byte$', result.stdout, re.M)
tap.check('byte_lm: 201,472 parameters, better than 4.5 bits a byte after 150 steps', result.returncode == 0 and
          '201472 parameters' in result.stdout and found is not None and float(found.group(1)) < 4.5, shown(result))
if LONG:
    bible = run('bible', '-f', 'gen1:1-rev22:21') if os.path.exists('/usr/bin/bible') else None
    if bible is None:
        tap.skip('byte_lm: KJV', 'no bible-kjv')
    else:
        with open(path('kjv'), 'w', encoding='utf-8') as file:
            file.write(bible.stdout)
        for layout in ([], threads('--dp', '4')):
            result = train('--data-path', path('kjv'), *layout, name='byte_lm', limit=1800)
            found = re.findall(r'^test: ([\d.]+) bits per byte$', result.stdout, re.M)
            tap.check(f'byte_lm: KJV {layout}: 2.1 bits per byte at most', found and float(found[-1]) <= 2.1, shown(result))

# ---- Lessons
for name, words in {'03_data_parallel': 'gradient against all rows', '04_tensor_parallel': 'Megatron',
                    '05_pipeline': 'bit for bit', '06_zero': 'equal bit for bit', '07_parameter_server': 'all-reduce'}.items():
    for n in ('1', '2', '4'):
        result = run(LAUNCHER, 'run', '-n', n, '--', os.path.join(PROGRAMS, name))
        tap.check(f'{name} over {n} ranks', result.returncode == 0 and words in result.stdout, shown(result))
tap.done()
