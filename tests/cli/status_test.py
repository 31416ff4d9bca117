"""`treering status` on running jobs and on flight records, `treering doctor`. TAP.

    status_test.py TREERING HANGING_RANKS
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from tap import Tap

TREERING, RANKS = map(os.path.abspath, sys.argv[1:3])
TAP = Tap()
LIMIT_S = 60
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith('TR_')}


def treering(*arguments, **options):
    return subprocess.run([TREERING, *map(str, arguments)], env=ENVIRON, timeout=LIMIT_S, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options)


def status_json(name):
    done = treering('status', name, '--json')
    return (json.loads(done.stdout) if done.returncode == 0 else []), done


def eventually(ask, holds):
    """Asks until the answer holds, at most LIMIT_S; the last answer."""
    end = time.monotonic() + LIMIT_S
    while True:
        answer = ask()
        if holds(answer) or time.monotonic() > end:
            return answer
        time.sleep(0.05)


class Job:
    """`treering run -n 3 hanging_ranks MODE` in a folder of its own; ended with the block."""

    def __init__(self, mode, ranks=3, **variables):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([TREERING, 'run', '-n', str(ranks), '--', RANKS, mode],
                                        env={**ENVIRON, **variables}, cwd=self.folder.name, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.last_pid = None
        for line in self.process.stdout:
            found = re.search(r'last rank is process (\d+)', line)
            if found:
                self.last_pid = int(found.group(1))
                break

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for pid in filter(None, [self.last_pid]):
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.process.terminate()
        self.process.communicate()
        self.folder.cleanup()


def waiting(jobs):
    return [r['rank'] for r in jobs[0]['ranks'] if 'wait' in r] if jobs else []


def busy_rank():
    with Job('busy', TR_FLIGHT_RECORDER='8') as job:
        jobs, done = eventually(lambda: status_json(job.process.pid), lambda it: waiting(it[0]) == [0, 1])
        one = jobs[0] if jobs else {}
        TAP.check('status PID of treering run finds all ranks of the job',
                  len(jobs) == 1 and one['size'] == 3 and [r['rank'] for r in one['ranks']] == [0, 1, 2]
                  and one['not_found'] == [], done.stdout, done.stderr)
        if not one:
            return
        TAP.check('it says what each called and completed',
                  [r['issued'] for r in one['ranks']] == [3, 3, 2] and [r['completed'] for r in one['ranks']] == [2] * 3
                  and one['ranks'][0]['calls'][-1]['call'] == 'all_reduce of 1000 float32, sum'
                  and one['ranks'][2]['calls'][-1]['call'] == 'all_reduce of 10 float32, sum', done.stdout)
        TAP.check('it says who keeps whom waiting',
                  len(one['causes']) == 1 and one['causes'][0]['rank'] == 2 and one['causes'][0]['waiting'] == [0, 1]
                  and 'rank 2 has not called it' in one['causes'][0]['words'], one['causes'])
        TAP.check('a wait names its step', all(r['wait']['for_rank'] in (0, 1, 2) and r['wait']['operation'] == 2
                                               and 'has not sent chunk' in r['wait']['words']
                                               for r in one['ranks'][:2]), done.stdout)
        flight = {f['rank']: f['calls'] for f in one.get('flight', [])}
        TAP.check('it shows the flight records, with times',
                  sorted(flight) == [0, 1, 2] and [len(flight[r]) for r in range(3)] == [3, 3, 2]
                  and all('end_ns' in c and c['end_ns'] >= c['begin_ns'] for c in flight[2])
                  and 'end_ns' not in flight[0][2], flight)
        text = treering('status', job.process.pid)
        TAP.check('as text: a table and the cause', text.returncode == 0
                  and f'communicator {one["communicator"]} of 3 ranks' in text.stdout
                  and re.search(rf'^2 +{job.last_pid} +1, all_reduce of 10 float32, sum +2 ', text.stdout, re.M)
                  and 'rank 2 keeps ranks 0, 1 waiting: rank 2 has not called it' in text.stdout, text.stdout)
        by_number, done = status_json(one['communicator'][:8])
        TAP.check('status NUMBER finds it, too', [j['communicator'] for j in by_number] == [one['communicator']],
                  done.stdout, done.stderr)
        by_rank, done = status_json(job.last_pid)
        TAP.check('status PID of one rank shows all of its job',
                  len(by_rank) == 1 and len(by_rank[0]['ranks']) == 3, done.stdout, done.stderr)
        TAP.check('the job was not disturbed', job.process.poll() is None)


def stopped_rank():
    with Job('stopped') as job:
        jobs, done = eventually(lambda: status_json(job.process.pid),
                                lambda it: waiting(it[0]) == [0, 1] and 'is stopped' in it[1].stdout)
        words = jobs[0]['causes'][0]['words'] if jobs and jobs[0]['causes'] else ''
        TAP.check('a stopped rank is called so, with what to do', f'kill -CONT {job.last_pid}' in words, done.stdout,
                  done.stderr)
        os.kill(job.last_pid, signal.SIGCONT)
        out, err = job.process.communicate(timeout=LIMIT_S)
        TAP.check('let go on, all ranks end well', job.process.returncode == 0, out, err)


def ended_rank_and_record():
    with Job('busy', TR_FLIGHT_RECORDER='2', TR_TIMEOUT_S='2') as job:
        out, err = job.process.communicate(timeout=LIMIT_S)
        files = sorted(f for f in os.listdir(job.folder.name) if f.endswith('.flight'))
        TAP.check('an error writes the flight record and says where', files and 'the last calls are in ' in err, err,
                  out)
        if not files:
            return
        path = os.path.join(job.folder.name, files[0])
        rank = int(re.search(r'-rank(\d+)\.flight$', path).group(1))
        jobs, done = status_json(path)
        calls = jobs[0]['flight'][0]['calls'] if jobs else []
        TAP.check('status FILE reads it: the last 2 calls, the failed one not over', [c['number'] for c in calls] == [1, 2]
                  and 'end_ns' not in calls[1] and calls[1]['call'] == '2, all_reduce of 1000 float32, sum', done.stdout,
                  done.stderr)
        TAP.check('and what all ranks were doing then',
                  jobs and [r['rank'] for r in jobs[0]['ranks']] == [0, 1, 2]
                  and jobs[0]['ranks'][rank]['state'] == 'failed' and jobs[0]['ranks'][2]['issued'] == 2, done.stdout)
        with open(path, 'rb') as file:
            whole = file.read()
        for name, content in {'cut short': whole[:200], 'garbage': b'\xff' * 5000, 'empty': b''}.items():
            bad = os.path.join(job.folder.name, 'bad')
            with open(bad, 'wb') as file:
                file.write(content)
            done = treering('status', bad)
            TAP.check(f'a file that is {name} is refused', done.returncode == 1 and 'no flight record' in done.stderr,
                      done.stderr)


def mismatch():
    with Job('mismatch') as job:
        out, err = job.process.communicate(timeout=LIMIT_S)
        TAP.check('ranks that call different counts all get the error',
                  job.process.returncode == 7 and 'all_reduce of 1000' in err and 'all_reduce of 100 ' in err, out, err)


def nothing_found():
    done = treering('status', os.getpid())
    TAP.check('a process without a communicator is an error that says so',
              done.returncode == 1 and 'have no communicator' in done.stderr, done.stdout, done.stderr)
    done = treering('status', 'no-such-job')
    TAP.check('so is a name that means nothing',
              done.returncode == 1 and 'no process id, no communicator' in done.stderr, done.stdout, done.stderr)


def doctor():
    done = treering('doctor', '--json', '-n', 2)
    report = json.loads(done.stdout)
    by_check = {f['check']: f for f in report['findings']}
    problems = [f for f in report['findings'] if f['level'] == 'problem']
    TAP.check('doctor --json: checks by name, status 1 if there is a problem',
              done.returncode == (1 if problems else 0)
              and {'versions', 'shared memory', 'memory', 'limit of open files', 'CPUs', 'ports', 'clock',
                   'host name'} <= set(by_check), done.stdout, done.stderr)
    TAP.check('what is not fine comes with what to do',
              all(f.get('advice') for f in report['findings'] if f['level'] != 'fine'), done.stdout)

    def missing_in_text():
        # Two looks at a machine that others use: what one of them finds may be gone for the other.
        report, text = json.loads(treering('doctor', '--json', '-n', 2).stdout), treering('doctor', '-n', 2).stdout
        return [f['check'] for f in report['findings'] if f'{f["check"]}: ' not in text] + [text] * (' checks, ' not in text)

    missing = eventually(missing_in_text, lambda names: not names)
    TAP.check('doctor says the same as text', not missing, missing)
    few = subprocess.run(['sh', '-c', f'ulimit -Sn 32; exec {TREERING} doctor -n 64'], env=ENVIRON, text=True,
                         timeout=LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    TAP.check('H28: too few open files for the ranks are found, with both numbers and the way out',
              few.returncode == 1 and 'open files: 32 of at most' in few.stdout and 'need about 160' in few.stdout
              and 'ulimit -n' in few.stdout, few.stdout, few.stderr)
    slip = subprocess.run([TREERING, 'doctor'], env={**ENVIRON, 'TR_TIMOUT_S': '3'}, text=True, timeout=LIMIT_S,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    TAP.check('a setting that does not exist is found', slip.returncode == 1 and 'TR_TIMOUT_S' in slip.stdout,
              slip.stdout)
    with __import__('socket').create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        done = treering('doctor', '--port', port)
        TAP.check('H23: a port that is taken is found', done.returncode == 1
                  and f'127.0.0.1 port {port}: bind: Address already in use' in done.stdout, done.stdout)


for part in (busy_rank, stopped_rank, ended_rank_and_record, mismatch, nothing_found, doctor):
    part()
TAP.done()
