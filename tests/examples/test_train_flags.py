"""train_mlp, byte_lm, plan and break_it: every flag is heeded or refused by its name, and what is promised for the end of
a training is true, or said at its beginning.

    test_train_flags.py FOLDER_OF_PROGRAMS LAUNCHER BACKENDS
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from programs import Run  # noqa: E402
from tap import Tap  # noqa: E402
from train_programs import (BACKENDS, LAUNCHER, PROGRAMS, metrics, param_hash, path, program, run, shown,  # noqa: E402
                            threads, train)

tap = Tap()
SOURCE_PATH = re.compile(r'^(\[\d+\] )?\S+\.[ch]pp:\d+', re.M)


def is_refused(result, flag, *words, status=(1, 2)):
    """Before anything was trained, with one error that begins with no source file and names the flag."""
    return (result.returncode in status and flag in result.stderr and all(word in result.stderr for word in words) and
            not SOURCE_PATH.search(result.stderr) and 'epoch ' not in result.stdout)


# ---- Numbers: no flag takes what is no number of its kind, and each says what it takes
REALS = ['--lr', '--dropout', '--momentum', '--bucket-mb', '--first-bucket-mb', '--clip', '--loss-scale', '--timeout',
         '--peak-gflops', '--min-accuracy']
WHOLES = ['--epochs', '--steps', '--batch', '--dp', '--pp', '--tp', '--vpp', '--tp-chunks', '--micro-batch', '--zero', '--ranks',
          '--save-every', '--log-every', '--check-sync', '--ranks-per-node', '--hidden']
problems = []
for flags, values in [(REALS, ['nan', 'inf', '-inf', '-1', '1e999', 'x', '']),
                      (WHOLES, ['nan', 'inf', '-1', '1.5', '99999999999999999999', '2147483648', 'x', ''])]:
    for flag in flags:
        for value in values:
            result = train(f'{flag}={value}')
            if not is_refused(result, flag, status=(2,)) or (value and value not in result.stderr):
                problems.append(f'{flag}={value}: {shown(result)}')
for value in ('nan,34', '436,nan', 'inf,34', '436,0', '-1,34', '436', '436,34,1', '436,34x', 'x'):
    result = train(f'--sim-bw={value}')
    if not is_refused(result, '--sim-bw', status=(2,)):
        problems.append(f'--sim-bw={value}: {shown(result)}')
tap.none('numbers that are none, or too large, are refused by each flag by its name', problems)

# ---- Products that no machine has, and what they are made of
problems = []
for words, args in [
        (['--dp', '--pp', '--tp', 'ranks'], ['--backend', 'count', '--dp', '1048576', '--pp', '1048576', '--tp', '1048576']),
        (['--backend threads', 'at most'], threads('--dp', '5000')),
        (['--batch', 'GB', 'smaller batch'], ['--data', 'noise', '--batch', '1073741824']),
        (['--epochs', 'steps'], ['--epochs', '2147483647', '--batch', '1']),
        (['--hidden', '16777216'], ['--hidden', '16777217'])]:
    result = train(*args)
    if not is_refused(result, words[0], *words[1:]):
        problems.append(f'{args}: {shown(result)}')
tap.none('products that are too large are refused by the names of their flags', problems)
result = train('--epochs', '2147483647', '--batch', '1', '--steps', '2')
tap.check('--steps makes any --epochs short', result.returncode == 0 and 'step 2/2' in result.stdout, shown(result))
result = train('--backend', 'count', '--preset', 'cs336', '--dp', '4', '--batch', '16777216')
tap.check('a dry run makes no noise', result.returncode == 0, shown(result))

# ---- Flags that nobody would heed
problems = []
for words, args in [
        (['--inject', 'no rank 2 among 2'], threads('--dp', '2', '--inject', 'nan:2:0')),
        (['--inject', 'no rank 7 among 1'], ['--inject', 'slow:7:1']),
        (['--inject', 'nan:RANK:STEP'], ['--inject', 'nan:-1:0']),
        (['--inject', 'no step 5'], ['--inject', 'kill:0:5', '--steps', '5']),
        (['--inject', 'no step 5'], ['--inject', 'skip:0:5', '--steps', '5']),
        (['--save-every', '--save'], ['--save-every', '5']),
        (['--ranks-per-node', '--sim-bw'], ['--ranks-per-node', '2']),
        (['--momentum', 'sgd'], ['--momentum', '0.5']),
        (['--ranks', 'threads'], ['--ranks', '4']),
        (['--algo', 'mpi'], ['--algo', 'ring', '--backend', 'mpi']),
        (['--data-path', 'noise'], ['--data', 'noise', '--data-path', path('x')]),
        (['--min-accuracy', 'noise'], ['--data', 'noise', '--min-accuracy', '0.5']),
        (['--preset', '--data'], ['--preset', 'cs336', '--data', 'digits']),
        (['--comm-log', 'count'], ['--backend', 'count', '--comm-log'])]:
    result = train(*args)
    if not is_refused(result, words[0], *words[1:]):
        problems.append(f'{args}: {shown(result)}')
tap.none('a flag that would have no effect is an error that names it', problems)
result = train('--optimizer', 'sgd', '--momentum', '0.5', '--lr', '0.1', '--steps', '3')
tap.check('--momentum of sgd is taken', result.returncode == 0, shown(result))
for tp, words in {'3': ['warning: --tp 3 splits no layer', 'layer 0 (64x128), layer 1 (128x128), layer 2 (128x10)'],
                  '2': ['--tp 2 leaves whole on every rank: layer 2 (128x10)']}.items():
    result = train('--steps', '2', *threads('--tp', tp))
    tap.check(f'--tp {tp}: what it does not split is said', result.returncode == 0 and all(w in result.stdout for w in words),
              shown(result))

# ---- Where results are to go, before anything is trained
with open(path('file'), 'w', encoding='utf-8') as file:
    file.write('x')
problems = []
for flag in ('--save', '--trace', '--metrics'):
    for place in (path('file') + '/inside', '/proc/nowhere/inside'):
        result = train(flag, place, '--steps', '2')
        if not is_refused(result, flag, place if flag != '--save' else path('file') if 'file' in place else '/proc'):
            problems.append(f'{flag} {place}: {shown(result)}')
tap.none('a place that cannot be written is found before the training', problems)
result = train('--metrics', '/dev/full', '--steps', '2')
tap.check('metrics that a full disk does not take are an error', result.returncode == 1 and '--metrics' in result.stderr and
          '/dev/full' in result.stderr, shown(result))
result = train('--trace', path('fresh.json'), '--save', path('fresh'), '--inject', 'kill:0:1', '--steps', '5')
tap.check('the trials leave nothing behind', result.returncode == -9 and not os.path.exists(path('fresh.json')) and
          os.listdir(path('fresh')) == [], shown(result))


# A disk of 96 KiB, which is there for these commands alone. 32 columns: a checkpoint of 77 kB; 64: of 149 kB.
os.mkdir(path('disk'))
commands = """
mount -t tmpfs -o size=160k none "$0" || exit 77
"$1" --backend threads --dp 2 --steps 5 --save "$0" --hidden 32,32 || exit 1
"$1" --backend threads --dp 2 --steps 9 --save "$0"; echo "second: $?"
ls "$0"
"$1" --backend threads --dp 2 --steps 7 --load "$0" --hidden 32,32
"""
result = run('unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', commands, path('disk'), program('train_mlp'))
if result.returncode == 77 or 'unshare' in result.stderr:
    tap.skip('a checkpoint on a full disk', 'no mount namespaces here: ' + result.stderr.strip().replace('\n', ' '))
else:
    seen = re.findall(r'^(second: \d+|latest.*|step-\d.*|goes on .*)$', result.stdout, re.M)
    tap.check('a checkpoint that finds no room leaves nothing half-written, and the older one loads', result.returncode == 0 and
              'step-9.unfinished' in result.stderr and 'No space left' in result.stderr and
              seen == ['second: 1', 'latest', 'step-5', 'goes on after step 5'], [seen, *shown(result)])

# ---- A launcher's processes are never trainings of their own
for backend, launch in [(backend, launch) for backend in ('threads', 'count', *(b for b in BACKENDS if b == 'mpi'))
                        for launch in ([[LAUNCHER, 'run', '-n', '2', '--']] +
                                       ([['mpirun', '--oversubscribe', '--allow-run-as-root', '--bind-to', 'none', '-n', '2']]
                                        if 'mpi' in BACKENDS and backend != 'mpi' else []))]:
    result = run(*launch, program('train_mlp'), '--backend', backend, '--steps', '2')
    words = result.stderr + result.stdout
    tap.check(f'--backend {backend} under {os.path.basename(launch[0])}: refused', result.returncode != 0 and
              f'--backend {backend}' in words and 'has started 2' in words and 'epoch ' not in words, shown(result))

# ---- Who died, and who left something out, by ranks of all
for layout in (['--dp', '2', '--tp', '2'], ['--dp', '2', '--pp', '2'], ['--dp', '4']):
    ranks = Run(4, program('train_mlp'), '--steps', '50', '--inject', 'kill:3:3', *layout)
    who = [re.findall(r'^error: .*', text, re.M) for text in ranks.errors]
    # Each rank names a rank of its own groups that has ended: the killed one, or one that ended because of it.
    named = [re.findall(r'of all ranks, rank \d+ is rank (\d+)', ' '.join(lines)) or
             re.findall(r'rank (\d+) \(process \d+\) ended', ' '.join(lines)) for lines in who]
    tap.check(f'{" ".join(layout)}, rank 3 killed: the others name ranks of all, and rank 2 that one', all(ranks.codes) and
              all(named[r] and str(r) not in named[r] for r in range(3)) and '3' in named[2 if '--dp 4' != ' '.join(layout) else 0],
              [named, *ranks.why()])
result = run(LAUNCHER, 'run', '-n', '2', '--', program('train_mlp'), '--inject', 'skip:1:3', '--steps', '12', TR_TIMEOUT_S='5')
tap.check('a rank that leaves a step out: an error names it', result.returncode != 0 and 'error: ' in result.stderr and
          'rank 1' in result.stderr, shown(result))

# ---- plan and break_it
for name in ('plan', 'break_it', 'train_mlp', 'byte_lm'):
    result = run(program(name), '--help')
    tap.check(f'{name} --help', result.returncode == 0 and name in result.stdout + name and len(result.stdout) > 100 and
              result.stderr == '', shown(result))
result = run(program('plan'), '--dp', '8', '--tp', '8')
tap.check('plan: a transformer has tokens, numbers have three digits', result.returncode in (0, 3) and
          re.search(r'^[\d.]+ G parameters, 18 bytes each: [\d.]+ GB$', result.stdout, re.M) and
          re.search(r'[\d.]+ [kM]tokens/s', result.stdout), shown(result))
result = run(program('plan'), '--mlp', '--layers', '4', '--hidden', '1024', '--fp32', '--batch', '128', '--ranks', '4', '--dp', '2',
             '--pp', '2', '--micro-batch', '16')
tap.check('plan: a perceptron has samples', result.returncode == 0 and re.search(r'[\d.]+ [kMG]?samples/s', result.stdout),
          shown(result))


# ---- A schedule of one's own: every batch is cut into its micro-batches
def gpipe_csv(p, m):
    lines = [f'{r},{kind},{r},{mb}' for r in range(p) for kind in 'FB' for mb in range(m)]
    with open(path(f'gpipe-{p}-{m}.csv'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(['rank,action,stage,micro_batch', *lines]))
    return path(f'gpipe-{p}-{m}.csv')


for batch, what in {'128': '29 rows', '1436': '1 row', '359': '1 row'}.items():
    result = train('--epochs', '1', '--batch', batch, '--verify', '--schedule', gpipe_csv(2, 4), *threads('--pp', '2'))
    tap.check(f'a file of 4 micro-batches, an epoch that ends with {what}', result.returncode == 0 and
              'against a serial run' in result.stdout and re.search('bubble of the file .*: 20.0 % .4 micro-batches', result.stdout),
              shown(result))
with open(path('bad.csv'), 'w', encoding='utf-8') as file:
    file.write('0,B,0,0\n0,F,0,0\n1,F,1,0\n1,B,1,0\n')
for words, args in [('rank 0', ['--schedule', path('bad.csv'), '--pp', '2']),
                    ('pp 4', ['--schedule', gpipe_csv(2, 4), '--pp', '4', '--hidden', '64,64,64,64']),
                    ('micro_batch', ['--schedule', gpipe_csv(2, 4), '--pp', '2', '--micro-batch', '8']),
                    ('schedule', ['--schedule', 'fastest', '--pp', '2'])]:
    result = train(*threads(*args))
    tap.check(f'refused before the training: {" ".join(map(os.path.basename, args))}', is_refused(result, words), shown(result))

# ---- Sequence parallelism, where the test's 360 rows cannot be shared
result = train('--epochs', '1', '--metrics', path('sp'), '--batch', '126', '--hidden', '112,112', *threads('--tp', '7', '--sp'))
alone = train('--epochs', '1', '--metrics', path('sp1'), '--batch', '126', '--hidden', '112,112', '--gemm', 'ref')
tests = [row.get('test_accuracy') for name in ('sp', 'sp1') for row in metrics(name) if 'test_accuracy' in row]
tap.check('tp 7 with --sp tests 360 rows', result.returncode == 0 and len(tests) == 2 and abs(tests[0] - tests[1]) < 0.02,
          [tests, *shown(result), *shown(alone)])


# Losses that grow, times 65536: some gradients are too large for fp16, until the scale is halved.
OVERFLOWS = ['--batch', '32', '--lr', '1']


# ---- The end's report: training steps of this run, whatever else was sent
def dp_bytes(result):
    found = re.search(r'^  dp by the formula: (\d+) bytes; counted: (\d+)$', result.stdout, re.M)
    return (int(found.group(1)), int(found.group(2))) if found else None


train('--steps', '30', '--save', path('bytes'), *threads('--dp', '2', '--zero', '1'))
for what, args in {
        'after --load': ['--steps', '37', '--load', path('bytes'), '--dp', '2', '--zero', '1'],
        'ZeRO-3 and tests': ['--epochs', '2', '--dp', '2', '--zero', '3'],
        'ZeRO-3, micro-batches': ['--epochs', '2', '--dp', '2', '--zero', '3', '--micro-batch', '16'],
        'ZeRO-3, all computed again': ['--steps', '5', '--dp', '2', '--zero', '3', '--recompute', 'full'],
        'ZeRO-3, zb-h1': ['--epochs', '1', '--dp', '2', '--zero', '3', '--pp', '2', '--schedule', 'zb-h1', '--micro-batch', '16'],
        'ZeRO-1, skipped steps': ['--steps', '12', '--dp', '2', '--zero', '1', '--dtype', 'fp16', *OVERFLOWS],
        'tp': ['--epochs', '1', '--dp', '2', '--tp', '2']}.items():
    result = train(*threads(*args))
    sent = dp_bytes(result)
    tap.check(f'bytes per step, {what}: the formula to the byte', result.returncode == 0 and sent is not None and
              sent[0] == sent[1] > 0, [sent, *shown(result)])

for name, args in {'serial': ['--hidden', '512,512'], 'pp': ['--pp', '2', '--micro-batch', '16', '--hidden', '256,256,256,256'],
                   'gpipe': ['--pp', '2', '--micro-batch', '16', '--schedule', 'gpipe', '--hidden', '256,256,256,256'],
                   'tp': ['--tp', '2', '--hidden', '512,512'], 'zero3': ['--dp', '2', '--zero', '3', '--hidden', '512,512'],
                   'recompute': ['--recompute', 'full', '--hidden', '512,512']}.items():
    result = train('--batch', '512', '--steps', '4', '--metrics', path('memory-' + name), *threads(*args))
    found = [row['step_memory_mb'] for row in metrics('memory-' + name) if 'step_memory_mb' in row]
    # 0.03 MB: sums, norms, what ranks agree on.
    tap.check(f'memory, {name}: as predicted within 5 % and 0.03 MB', result.returncode == 0 and len(found) == 1 and
              abs(found[0]['measured'] - found[0]['predicted']) <= 0.05 * found[0]['predicted'] + 0.03, [found, *shown(result)])

SIM = ['--sim-bw', '100000,100000', '--peak-gflops', '100', '--data', 'noise', '--hidden', ','.join(['1024'] * 7), '--steps', '2']
for name, args in {'gpipe': ['--schedule', 'gpipe'], '1f1b': [], 'naive': ['--schedule', 'naive'],
                   'file': ['--schedule', gpipe_csv(4, 8)]}.items():
    cut = [] if name == 'file' else ['--micro-batch', '16']
    result = train(*SIM, *args, *cut, '--metrics', path('bubble-' + name), *threads('--pp', '4'))
    found = [row['bubble'] for row in metrics('bubble-' + name) if 'bubble' in row]
    tap.check(f'bubble, {name}: measured without --trace, within a tenth of what is expected', result.returncode == 0 and
              len(found) == 1 and abs(found[0]['measured'] / found[0]['expected'] - 1) <= 0.1, [found, *shown(result)])

# ---- Going on bit for bit, with what hooks and scalers remember
for what, args in {'int8': ['--dp', '2', '--compress', 'int8'], 'bf16': ['--dp', '2', '--compress', 'bf16'],
                   'int8, tp 2': ['--dp', '2', '--tp', '2', '--compress', 'int8'],
                   'fp16 with skipped steps': ['--dp', '2', '--dtype', 'fp16', '--dropout', '0.1', *OVERFLOWS]}.items():
    folder = path('resume ' + what)
    whole = train('--steps', '24', '--metrics', path('whole ' + what), *threads(*args))
    first = train('--steps', '11', '--save', folder, *threads(*args))
    rest = train('--steps', '24', '--load', folder, *threads(*args))
    skipped = sum(row.get('skipped', 0) for row in metrics('whole ' + what))
    tap.check(f'{what}: saved, loaded, and 13 more steps are the 24 at once', param_hash(whole) is not None and
              param_hash(whole) == param_hash(rest) and (skipped > 0) == ('skipped' in what),
              [skipped, param_hash(whole), param_hash(rest), *shown(first), *shown(rest)])
other = train('--steps', '14', '--load', path('resume int8'), '--dp', '4', '--compress', 'int8', '--backend', 'threads')
tap.check('int8: loaded by other replicas, which begin without residuals', other.returncode == 0, shown(other))

# ---- --algo and --comm-log
hashes = {algo: param_hash(train('--steps', '20', *threads('--dp', '4', *(['--algo', algo] if algo else []))))
          for algo in ('ring', 'all_reduce:ring', 'all_reduce:tree')}
tap.check('--algo: a ring sums in another order than a tree', None not in hashes.values() and
          hashes['ring'] == hashes['all_reduce:ring'] != hashes['all_reduce:tree'], hashes)
for algo in ('fastest', 'all_reduce:fastest', 'nothing:ring', 'all_reduce:'):
    result = train('--steps', '2', *threads('--dp', '2', '--algo', algo))
    tap.check(f'--algo {algo}: refused', is_refused(result, '--algo', algo), shown(result))
for extra in ([], ['--trace', path('comm.json')]):
    result = train('--preset', 'cs336', '--steps', '3', '--hidden', '64,64', '--comm-log', *extra, *threads('--dp', '2'))
    rows = re.findall(r'^(dp|tp|pp|other) +(\w+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$', result.stdout, re.M)
    calls = {(group, name, int(size)): int(count) for group, name, size, count, *_ in rows}
    # 1024x64, 64x64 and 64x1024 weights without biases, in one bucket of fp32, once a step.
    size = 4 * (1024 * 64 + 64 * 64 + 64 * 1024)
    tap.check(f'--comm-log {extra[:1]}: the gradients of three steps', result.returncode == 0 and
              calls.get(('dp', 'all_reduce', size)) == 3, [calls, *shown(result)])
tap.done()
