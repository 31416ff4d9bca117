"""treering perf from outside: its table, its JSON, its exit status, and what it leaves behind.

Usage: test_perf.py TREERING FAKE_PEER [mpi] [gloo]   (the peers that were built)
"""
import contextlib
import glob
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import Tap  # noqa: E402

TREERING, FAKE = sys.argv[1:3]
PEERS = sys.argv[3:]
OPS = ['all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'gather', 'scatter',
       'all_to_all', 'barrier', 'scan', 'exscan', 'send_recv']
# A mark in the environment finds every process that a run started, whoever its parent is by now.
MARK = 'TREERING_TEST_MARK=' + uuid.uuid4().hex
SHORT = ['--rounds', '2', '--batch-ms', '0.5']

tap = Tap()
# Under nohup and behind a script's "&" signals are ignored, and children inherit that: these tests are about defaults.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
scratch = tempfile.TemporaryDirectory()
tmp = os.path.join(scratch.name, 'tmp')
os.mkdir(tmp)
shared_before = os.listdir('/dev/shm')


def environment(**extra):
    name, value = MARK.split('=')
    return {**os.environ, name: value, 'TMPDIR': tmp, **extra}


def perf(*args, limit=120, **extra):
    return subprocess.run([TREERING, 'perf', *args], env=environment(**extra), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit)


def perf_json(*args, **extra):
    path = os.path.join(scratch.name, 'out.json')
    result = perf(*args, '--json', path, **extra)
    if result.returncode not in (0, 1, 3):
        return result, None
    with open(path) as file:
        return result, json.load(file)


def marked():
    """Pids of the living processes that carry the mark."""
    out = []
    for path in glob.glob('/proc/[0-9]*/environ'):
        try:
            with open(path, 'rb') as file:
                if MARK.encode() in file.read().split(b'\0'):
                    out.append(int(path.split('/')[2]))
        except OSError:
            pass
    return [pid for pid in out if pid != os.getpid()]


def left_files():
    return os.listdir(tmp) + [name for name in os.listdir('/dev/shm') if name not in shared_before]


def gone(seconds=8):
    deadline = time.monotonic() + seconds
    while marked() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not marked()


def shown(result):
    return [f'status {result.returncode}', result.stdout, result.stderr]


def by_library(report):
    return {(row['library'], row['bytes']): row for row in report['results']}


# ---- every operation, our library alone -----------------------------------------------------------
for op in OPS:
    result, report = perf_json(op, '-n', '3', '-b', '8', '-e', '64K', '-f', '90', '--root', '1', '--check',
                               '--type', 'int8,bfloat16,float32', '--redop',
                               'sum,max', *SHORT)
    ok = report is not None and result.returncode == 0
    rows = report['results'] if ok else []
    timings = [row[mode] for row in rows for mode in ('out_of_place', 'in_place') if row[mode]]
    modes = 1 if op in ('barrier', 'send_recv') else 2
    wrong = {timing['wrong'] for timing in timings}
    tap.check(f'{op}: right in every size, type and mode',
              ok and len(timings) == len(rows) * modes > 0 and
              wrong == ({None} if op == 'barrier' else {0}), shown(result))

# ---- against real peers ----------------------------------------------------------------------------
real = [peer for peer in ('mpi', 'gloo') if peer in PEERS]
if real:
    result, report = perf_json('all_reduce', '-n', '2', '-b', '8', '-e', '128K', '-f', '128', '--against',
                               ','.join(real), '--check', *SHORT)
    rows = by_library(report) if report else {}
    libraries = {library for library, _ in rows}
    expected = {'treering'}
    expected |= {'mpi', 'mpi-nocma'} if 'mpi' in real else set()
    expected |= {f'gloo:{name}' for name in ('ring', 'bcube', 'halving_doubling', 'halving_doubling_sync',
                                             'ring_chunked_sync')} if 'gloo' in real else set()
    tap.check('peers: every setting has a row for each of three sizes',
              libraries == expected and len(rows) == 3 * len(expected), shown(result))
    tap.check('peers: all are right', result.returncode == 0 and bool(rows) and
              all(row[mode]['wrong'] == 0 for row in rows.values() for mode in ('out_of_place', 'in_place')),
              shown(result))
    ratios = []
    for (library, size), row in rows.items():
        if library == 'treering':
            ours = row['out_of_place']['rounds_us']
            paired = [statistics.median(theirs / mine for theirs, mine in zip(other['out_of_place']['rounds_us'], ours))
                      for (name, bytes_), other in rows.items() if bytes_ == size and name != 'treering']
            ratios.append(abs(row['out_of_place']['ratio'] - min(paired)) < 1e-9)
    tap.check('peers: the ratio is paired by round, that of the best', len(ratios) == 3 and all(ratios), shown(result))
    tap.check('peers: the table has the same rows',
              sum(line.split()[5:6] == ['treering'] for line in result.stdout.splitlines()
                  if not line.startswith('#')) == 3, shown(result))
    described = report and report['machine']['cpu'] and report['machine']['cores'] == os.cpu_count()
    tap.check('json: says machine, command and libraries',
              bool(described) and 'all_reduce -n 2' in report['command'] and
              len(report['libraries']) == 1 + 1 + 2 * ('mpi' in real) + ('gloo' in real), [str(report)[:2000]])
    median_ok = all(sorted(t['rounds_us'])[0] <= t['time_us'] <= sorted(t['rounds_us'])[-1] and
                    t['min_us'] == min(t['rounds_us']) and t['max_us'] == max(t['rounds_us']) and
                    2 <= len(t['rounds_us']) <= 8 for row in rows.values() for t in [row['out_of_place']])
    tap.check('json: median and spread are those of the rounds', bool(rows) and median_ok)
else:
    tap.skip('peers: measured side by side', 'neither Open MPI nor Gloo was built')

# ---- wrong results, ratios, failures: with a peer that does as it is told ------------------------
fake = f'fake={FAKE}'
small = ['all_reduce', '-n', '2', '-b', '4K', '-e', '8K', '--against', fake, *SHORT]

result, report = perf_json(*small)
tap.check('a right peer: status 0', result.returncode == 0, shown(result))

result, report = perf_json(*small, '--check-iters', '3', FAKE_WRONG='5')
rows = by_library(report) if report else {}
tap.check('a wrong peer: status 1', result.returncode == 1 and 'FAILED' in result.stdout, shown(result))
tap.check('a wrong peer: 5 elements of one rank in 3 checks are 15',
          [rows['fake', size][mode]['wrong'] for size in (4096, 8192) for mode in ('out_of_place', 'in_place')]
          == [15] * 4 if rows else False, shown(result))
tap.check('a wrong peer: nothing is wrong with ours', bool(rows) and all(
    row['out_of_place']['wrong'] == 0 for (name, _), row in rows.items() if name == 'treering'))

result, report = perf_json(*small, '--min-ratio', '1e6')
tap.check('below --min-ratio: status 3, sizes listed',
          result.returncode == 3 and '4K out of place' in result.stdout and '8K in place' in result.stdout,
          shown(result))
result = perf('all_reduce', '-n', '2', '-b', '4K', '-e', '4K', '--out-of-place', '--against', fake, '--rounds', '2',
              '--min-ratio', '2', FAKE_SLEEP_US='100000')
tap.check('above --min-ratio: status 0', result.returncode == 0 and 'Below ratio 2.00     : 0 OK' in result.stdout,
          shown(result))

result = perf(*small, FAKE_DIE='1')
tap.check('a worker that dies is named, status 4',
          result.returncode == 4 and 'fake: rank 1 (pid' in result.stderr and 'died' in result.stderr,
          shown(result))
started = time.monotonic()
result = perf(*small, '--timeout', '3', FAKE_HANG='0')
tap.check('a worker that hangs is named in time, status 4',
          result.returncode == 4 and 'did not answer within 3 s' in result.stderr and
          'rank 0' in result.stderr and time.monotonic() - started < 25, shown(result))
tap.check('nothing of them is left', gone() and left_files() == [], [str(marked()), str(left_files())])

# ---- usage ------------------------------------------------------------------------------------------
for name, args, words in [
        ('an unknown operation', ['allreduce'], 'all_reduce'),
        ('no operation', [], 'all_reduce'),
        ('an unknown type', ['all_reduce', '--type', 'float33'], 'bfloat16'),
        ('an unknown operator', ['all_reduce', '--redop', 'plus'], 'prod'),
        ('a size that is none', ['all_reduce', '-e', '64Q'], '64Q'),
        ('a root out of range', ['broadcast', '-n', '2', '--root', '2'], '--root'),
        ('an unknown peer', ['all_reduce', '--against', 'ucc'], 'gloo'),
        ('an unknown option', ['all_reduce', '--fast'], '--fast'),
        ('no ranks', ['all_reduce', '-n', '0'], '--ranks'),
        ('fewer than no ranks', ['all_reduce', '-n', '-1'], '--ranks'),
        ('no iterations', ['all_reduce', '--iters', '0'], '--iters'),
        ('a JSON file that cannot be written', ['all_reduce', '-n', '2', '--json', '/nonexistent/x.json'],
         '/nonexistent/x.json: No such file'),
        ('a JSON file that is a folder', ['all_reduce', '-n', '2', '--json', tmp], 'Is a directory'),
        ('sizes without room for an element', ['all_to_all', '-n', '3', '-b', '7', '-e', '7'], 'takes 12 bytes'),
        ('sizes without room for half an element', ['all_reduce', '-n', '2', '-b', '3', '-e', '3'], 'takes 4 bytes'),
        ('an unknown algorithm', ['all_reduce', '-n', '2', '-e', '8', '--algo', 'teleport'], 'ring')]:
    result = perf(*args)
    said = result.stderr.count('invalid argument')
    tap.check(f'{name}: status 2, explained, before anything is measured', result.returncode == 2 and
              words in result.stderr and said <= 1 and (result.stdout == '' or '--algo' in args), shown(result))

# ---- sizes ------------------------------------------------------------------------------------------
for args, expected, words in [
        (['all_reduce', '-n', '2', '-b', '7', '-e', '7'], [4], 'rounded down to whole elements'),
        (['all_reduce', '-n', '2', '-b', '8', '-e', '16'], [8, 16], None),
        (['all_to_all', '-n', '3', '-b', '8', '-e', '40'], [12, 24], 'no room for one is left out'),
        (['all_gather', '-n', '3', '-b', '8', '-e', '16', '--type', 'int8,float32'], [6, 15, 12],
         'no room for one is left out')]:
    result, report = perf_json(*args, *SHORT)
    sizes = [row['bytes'] for row in report['results']] if report else []
    heads = [line for line in result.stdout.splitlines() if line.startswith('# size')]
    tap.check(f'{" ".join(args)}: sizes {expected}',
              sizes == expected and (any(words in line for line in heads) if words else not heads), shown(result))

result = perf('all_reduce', '-n', '2', '-e', '8', '--against', 'broken=/bin/false')
tap.check('a peer that cannot start: status 4, named',
          result.returncode == 4 and 'broken: could not be started' in result.stderr, shown(result))
if 'mpi' in PEERS:
    result = perf('all_reduce', '-n', '2', '--against', 'mpi', PATH='/nowhere')
    tap.check('no mpirun: status 4, says what to install',
              result.returncode == 4 and 'apt install openmpi-bin' in result.stderr, shown(result))
result = perf('--list-peers')
tap.check('--list-peers', set(result.stdout.split()) - {'nccl'} == set(PEERS), shown(result))  # nccl: where a GPU is


# ---- killed and interrupted in the middle ----------------------------------------------------------
def start_endless(against, prefix=()):
    process = subprocess.Popen([*prefix, TREERING, 'perf', 'all_reduce', '-n', '2', '-e', '8', '--rounds', '1000000',
                                '--batch-ms', '20', *(['--against', against] if against else [])],
                               env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    # The head of the table comes when all workers are there.
    while process.stdout.readline().split()[:2] != ['#', '(B)']:
        if process.poll() is not None:
            break
    time.sleep(0.5)
    return process


def end_of(process):
    try:
        out, err = process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return [f'status {process.returncode}', out, err]


def command_of(pid):
    try:
        with open(f'/proc/{pid}/cmdline', 'rb') as file:
            return file.read().split(b'\0')[0].decode()
    except OSError:
        return ''


victims = [('fake', fake, FAKE)]
if 'mpi' in PEERS:
    victims.append(('mpi-nocma', 'mpi-nocma', 'treering-peer-mpi'))
for team, against, program in victims:
    process = start_endless(against)
    pids = [pid for pid in marked() if command_of(pid).endswith(program)]
    if pids:
        os.kill(pids[0], signal.SIGKILL)
    ended = end_of(process)
    tap.check(f'kill -9 of a worker of {team}: named, status 4',
              len(pids) == 2 and process.returncode == 4 and f'{team}: rank' in ended[2] and
              f'(pid {pids[0]}) died' in ended[2], [str(pids), ended])
    tap.check(f'kill -9 of a worker of {team}: nothing is left', gone() and left_files() == [],
              [str([command_of(pid) for pid in marked()]), str(left_files())])

for number, status in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]:
    process = start_endless(','.join([fake] + real))
    process.send_signal(number)
    ended = end_of(process)
    tap.check(f'{number.name}: status {status}', process.returncode == status, ended)
    tap.check(f'{number.name}: nothing is left', gone() and left_files() == [],
              [str([command_of(pid) for pid in marked()]), str(left_files())])

def kill_driver(process):
    process.kill()


def kill_group(process):
    os.killpg(process.pid, signal.SIGKILL)


def kill_most(process):
    """All but the keeper of the directory, which nobody knows of."""
    for pid in marked():
        if program_of(pid) != 'perf-keeper':
            with contextlib.suppress(ProcessLookupError):  # it ended with the one before
                os.kill(pid, signal.SIGKILL)


def program_of(pid):
    try:
        with open(f'/proc/{pid}/comm') as file:
            return file.read().strip()
    except OSError:
        return ''


for name, kill in [('the driver', kill_driver), ('its process group', kill_group), ('all at once', kill_most)]:
    process = start_endless(','.join([fake] + real))
    had_files = left_files()
    kill(process)
    process.communicate()
    tap.check(f'kill -9 of {name}: nothing is left', gone(15) and left_files() == [] and had_files,
              [str([command_of(pid) for pid in marked()]), str(left_files())])

process = start_endless('')
tap.check('without peers there is no directory', left_files() == [], [str(left_files())])
process.kill()
process.communicate()
tap.check('kill -9 of the driver without peers: nothing is left', gone(15) and left_files() == [],
          [str([command_of(pid) for pid in marked()]), str(left_files())])

for against in ('', ','.join([fake] + real)):
    sweep = ' '.join([TREERING, 'perf all_reduce -n 2 -b 8 -e 64K', *SHORT, '--against ' + against if against else ''])
    result = subprocess.run(['bash', '-c', sweep + ' | head -n 2; echo ${PIPESTATUS[0]}'], env=environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    tap.check(f'| head -n 2 {against and "against peers"}: status 141, nothing is said',
              result.stdout.splitlines()[2:] == ['141'] and result.stderr == '', shown(result))
    tap.check('| head -n 2: nothing is left', gone() and left_files() == [],
              [str([command_of(pid) for pid in marked()]), str(left_files())])

process = start_endless(fake, prefix=['nohup'])
process.send_signal(signal.SIGHUP)
time.sleep(0.5)
tap.check('under nohup SIGHUP does nothing', process.poll() is None, [str(process.returncode)])
process.terminate()
end_of(process)

# ---- the bar --------------------------------------------------------------------------------------
result = perf(*small)
tap.check('no progress bar where stderr is no terminal', result.stderr == '', shown(result))
leader, follower = os.openpty()
subprocess.run([TREERING, 'perf', *small], env=environment(), stdout=subprocess.DEVNULL, stderr=follower,
               timeout=60)
os.close(follower)
bar = os.read(leader, 100000).decode()
tap.check('a progress bar on a terminal, cleared at the end',
          'all_reduce 4K' in bar and '/' in bar and bar.rsplit('\r', 1)[1].strip('\x1b[K') == '', [repr(bar)])

tap.done()
