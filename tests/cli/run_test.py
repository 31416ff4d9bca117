"""`treering run`, `env` and `version`: exit statuses, output, and that nothing survives.

Usage: run_test.py TREERING

Every job carries a random mark in its environment; after each test no process with the mark may be left.
"""
import os
import pty
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time

from tap import Tap

# Under nohup and behind a script's "&" signals are ignored, and children inherit that: these tests are about defaults.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)

TREERING = os.path.abspath(sys.argv[1])
TAP = Tap()


class Job:
    """One `treering run`, watched."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE, **variables):
        self.mark = 'TR_TEST_MARK=' + secrets.token_hex(12)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith('TR_')}
        self.environ.update(variables)
        self.environ['TR_TEST_MARK'] = self.mark.split('=')[1]
        self.begin = time.monotonic()
        self.process = subprocess.Popen([TREERING, 'run', *arguments], stdin=stdin, stdout=stdout,
                                        stderr=stderr, env=self.environ, start_new_session=True)

    def finish(self, stdin=None, timeout=30):
        try:
            self.out, self.err = self.process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            self.err = (self.err or b'') + b'\n(the test gave up waiting)'
        self.status = self.process.returncode
        self.seconds = time.monotonic() - self.begin
        return self

    def alive(self):
        """{pid: command line} of the processes with the mark, zombies aside."""
        found = {}
        for name in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{name}/environ', 'rb') as file:
                    if self.mark.encode() not in file.read().split(b'\0'):
                        continue
                with open(f'/proc/{name}/cmdline', 'rb') as file:
                    found[int(name)] = file.read().replace(b'\0', b' ').decode(errors='replace')
            except OSError:
                pass
        return found

    def wait_for(self, condition, seconds=15):
        """Waits until condition(alive processes) holds; the processes of that moment, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alive = self.alive()
            if condition(alive):
                return alive
            time.sleep(0.01)
        return None

    def find(self, start, count=1):
        """Waits until the command lines of `count` processes start so: their pids."""
        alive = self.wait_for(lambda a: sum(line.startswith(start) for line in a.values()) >= count)
        return sorted(pid for pid, line in (alive or {}).items() if line.startswith(start))

    def details(self):
        return [f'status {self.status} after {self.seconds:.1f} s', f'out: {self.out[-600:] if self.out else self.out}',
                f'err: {self.err[-600:] if self.err else self.err}']


def check(name, job, ok, seconds=0):
    """One test; nothing of the job may be left (after so many seconds)."""
    left = job.wait_for(lambda alive: not alive, max(seconds, 0.01))
    return TAP.check(name, ok and left is not None, job.details(),
                     [f'left: {job.alive()}'] if left is None else [])


def sleepers():
    """A duration for `sleep` that nobody else uses, to tell processes by."""
    return f'{secrets.randbelow(10**6) + 10**6}'


def lines(data):
    return sorted(data.decode().splitlines())


def statuses():
    job = Job('-n', '3', '--', 'sh', '-c', 'echo out $TR_RANK; echo err $TR_RANK >&2').finish()
    check('all ranks end well: 0, and every line has its rank', job,
          job.status == 0 and lines(job.out) == [f'[{r}] out {r}' for r in range(3)]
          and lines(job.err) == [f'[{r}] err {r}' for r in range(3)])

    job = Job('-n', '4', '--', 'sh', '-c', 'test $TR_RANK = 2 && exit 7; sleep 600').finish()
    check('a rank that fails is named, ends the others, gives its status', job,
          job.status == 7 and b'rank 2 exited with status 7; ending ranks 0, 1, 3' in job.err
          and job.seconds < 5)

    job = Job('-n', '2', '--', 'sh', '-c', 'test $TR_RANK = 1 && kill -SEGV $$; sleep 600').finish()
    check('a signal is named and gives 128 + its number', job,
          job.status == 139 and b'rank 1 died: killed by signal 11 (Segmentation fault)' in job.err)

    job = Job('-n', '2', '--', 'no-such-program').finish()
    check('a program that does not exist: 127', job,
          job.status == 127 and b"cannot run 'no-such-program': No such file" in job.err)
    job = Job('-n', '2', '--', '/etc/passwd').finish()
    check('a file that is no program: 126', job,
          job.status == 126 and b"cannot run '/etc/passwd': Permission denied" in job.err)

    for arguments in (['-n', '0', 'true'], ['-n', '-1', 'true'], ['-n', '1000000', 'true'],
                      ['-n', 'two', 'true'], ['true'], ['-n', '2'], ['-n', '2', '--'],
                      ['-n', '2', '--timeout', '0', 'true'], ['-n', '2', '--bad', 'true']):
        job = Job(*arguments).finish()
        check('bad usage is refused with 2: run ' + ' '.join(arguments), job,
              job.status == 2 and job.err and not job.out)

    job = Job('-n', '1', 'sh', '-c', 'echo "$0 $@"', '-n', '--', 'x').finish()
    check("after the program's name everything is the program's", job, job.out == b'[0] -n -- x\n')


def environment():
    names = ['TR_RANK', 'TR_SIZE', 'TR_LOCAL_RANK', 'TR_LOCAL_SIZE', 'RANK', 'WORLD_SIZE', 'LOCAL_RANK',
             'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'TR_JOB_KEY']
    script = 'echo ' + ' '.join(f'${name}' for name in names)
    jobs = [Job('-n', '2', '--', 'sh', '-c', script).finish() for _ in range(2)]
    rows = [[line.split()[1:] for line in lines(job.out)] for job in jobs]
    check('own and torchrun variables', jobs[0],
          [row[:9] for row in rows[0]] == [[r, '2', r, '2', r, '2', r, '2', '127.0.0.1'] for r in '01']
          and all(1024 <= int(row[9]) <= 65535 for row in rows[0])
          and rows[0][0][9:] == rows[0][1][9:])
    check('each job has a key of its own', jobs[1],
          len({row[0][10] for row in rows}) == 2 and all(len(row[0][10]) == 32 for row in rows))


def output():
    script = ('i=0; while [ $i -lt 200 ]; do printf "%s" "$TR_RANK:"; printf "a%sb" $i; '
              'printf "%s\\n" ":$TR_RANK" ; printf "e$TR_RANK" >&2; echo "rr$i" >&2; i=$((i+1)); done')
    job = Job('-n', '4', '--', 'sh', '-c', script, stderr=subprocess.STDOUT).finish()
    expected = [line for r in range(4) for i in range(200)
                for line in (f'[{r}] {r}:a{i}b:{r}', f'[{r}] e{r}rr{i}')]
    check('lines written in pieces by 4 ranks, both outputs in one file, do not mix', job,
          job.status == 0 and lines(job.out) == sorted(expected))

    with tempfile.NamedTemporaryFile() as file:
        content = bytes(set(range(256)) - {10}) * 13000 + b'\n\n' + b'\0\xff' * 10 + b'\nno line break'
        file.write(content)
        file.flush()
        job = Job('-n', '2', '--', 'cat', file.name).finish()
    parts = {r: b''.join(line[4:] + b'\n' for line in job.out.split(b'\n') if line[:4] == b'[%d] ' % r)
             for r in range(2)}
    check('any bytes, a line of 3 MB, an empty line, no line break at the end', job,
          parts == {r: content + b'\n' for r in range(2)} and job.out.count(b'\n') == 8)

    job = Job('-n', '3', '--no-prefix', '--', 'sh', '-c', 'echo out; echo err >&2').finish()
    check('--no-prefix', job, job.out == b'out\n' * 3 and job.err == b'err\n' * 3)

    # A reader that starts late: the ranks have long ended.
    read_end, write_end = os.pipe()
    job = Job('-n', '3', '--', 'sh', '-c', 'yes 0123456789 | head -n 100000', stdout=write_end)
    os.close(write_end)
    time.sleep(1.2)
    with os.fdopen(read_end, 'rb') as file:
        data = file.read()
    job.finish()
    check('a slow reader gets everything', job,
          job.status == 0 and data.count(b'\n') == 300000 and len(data) == 300000 * 15)

    read_end, write_end = os.pipe()
    job = Job('-n', '2', '--', 'yes', stdout=write_end)
    os.close(write_end)
    os.read(read_end, 100)
    os.close(read_end)
    job.finish()
    check('a reader that goes away ends the job', job, job.status == 141 and job.seconds < 10)


def standard_input():
    job = Job('-n', '3', '--', 'cat', stdin=subprocess.PIPE).finish(b'one\ntwo\n')
    check('standard input goes to rank 0 only', job, job.out == b'[0] one\n[0] two\n' and job.status == 0)


DYING = """
import mmap, os, sys, time
def flags(pid):
    with open(f'/proc/{pid}/stat') as file:
        return int(file.read().rpartition(')')[2].split()[6])
path = '/tmp/' + os.environ['TR_TEST_MARK']
if os.environ['TR_RANK'] == '0':
    memory = mmap.mmap(-1, 256 << 20)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    os.symlink(str(os.getpid()), path)
    print('pid', os.getpid(), file=sys.stderr, flush=True)
    time.sleep(600)
while not os.path.islink(path):
    time.sleep(0.01)
pid = os.readlink(path)
os.unlink(path)
while not flags(pid) & 0x4:  # PF_EXITING
    pass
os._exit(1)
"""


def death():
    tag = sleepers()
    job = Job('-n', '3', '--', 'sh', '-c', f'exec sleep {tag}$TR_RANK')
    victim = job.find(f'sleep {tag}1')
    os.kill(victim[0], signal.SIGKILL)
    job.finish()
    check('kill -9 of a rank: named, 137, the others end', job,
          job.status == 137 and b'rank 1 died: killed by signal 9 (Killed)' in job.err)

    # Rank 0 is killed and takes its time to free its memory; rank 1 notices before it has ended, and fails.
    job = Job('-n', '2', '--', sys.executable, '-c', DYING, stdin=subprocess.PIPE)
    pid = int(job.process.stderr.readline().split()[-1])
    os.kill(pid, signal.SIGKILL)
    job.finish()
    check('the rank that was killed is named, not the one that failed because of it', job,
          job.status == 137 and b'rank 0 died: killed by signal 9 (Killed)' in job.err
          and b'rank 1 exited' not in job.err)

    # Grandchildren: one in the rank's group, one in a session of its own whose parent is gone.
    family = f'sleep {tag}7 & (setsid sleep {tag}8 &) ; '
    job = Job('-n', '2', '--', 'sh', '-c', family + f'test $TR_RANK = 0 || exec sleep {tag}9; '
              'read line; exit 5', stdin=subprocess.PIPE)
    job.find(f'sleep {tag}', 5)  # rank 0 waits for its input
    job.finish(b'go\n')
    check('grandchildren end with a failed job', job, job.status == 5)

    job = Job('-n', '2', '--', 'sh', '-c', family + 'true').finish()
    check('what ranks that end well have left behind ends too', job, job.status == 0)

    job = Job('-n', '2', '--', 'sh', '-c', f'test $TR_RANK = 1 && kill -STOP $$; sleep {tag}; exit 9',
              stdin=subprocess.PIPE)
    sleeper = job.find(f'sleep {tag}')
    stopped = job.wait_for(lambda alive: any(state(pid) == 'T' for pid in alive))
    os.kill(sleeper[0], signal.SIGKILL)
    job.finish()
    check('a stopped rank ends too', job, stopped and job.status == 9 and job.seconds < 10)

    # SIGTERM is ignored: SIGKILL after 2 s.
    job = Job('-n', '2', '--', 'sh', '-c', f'trap "" TERM; test $TR_RANK = 0 || exec sleep {tag}; read line; exit 3',
              stdin=subprocess.PIPE)
    job.find(f'sleep {tag}')  # rank 1 ignores it by now
    job.finish(b'go\n')
    check('a rank that ignores SIGTERM is killed', job, job.status == 3 and 1.9 < job.seconds < 8)


def state(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(')')[2].split()[0]
    except OSError:
        return ''


def limits():
    script = 'ulimit -n 20; exec "$0" run -n 64 -- true'
    done = subprocess.run(['sh', '-c', script, TREERING], timeout=30, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True)
    TAP.check('too few open files: 125, says how to have more',
              done.returncode == 125 and 'Too many open files' in done.stderr and 'ulimit -n' in done.stderr
              and 'here 20' in done.stderr, done.stdout, done.stderr)


def timeout():
    job = Job('-n', '4', '--timeout', '0.5', '--', 'sh', '-c', 'test $TR_RANK = 1 || sleep 600').finish()
    check('--timeout: 124, and the ranks that still ran', job,
          job.status == 124 and b'not done after 0.5 s: ranks 0, 2, 3 were still running' in job.err
          and 0.5 <= job.seconds < 6)
    job = Job('-n', '2', '--timeout', '20', '--', 'true').finish()
    check('a job within its time', job, job.status == 0 and job.seconds < 15)


def launcher():
    tag = sleepers()
    # Two ranks, each: sh, a sleep in its group, one in another session, one that ignores SIGTERM.
    family = ('sh', '-c', f'sleep {tag}1 & (setsid sleep {tag}2 &); trap "" TERM; sleep {tag}3')
    job = Job('-n', '2', '--', *family)
    job.find(f'sleep {tag}', 6)
    job.process.kill()
    job.finish()
    check('kill -9 of the launcher: nothing is left', job, job.status == -9, seconds=5)

    job = Job('-n', '2', '--', *family)
    job.find(f'sleep {tag}', 6)
    supervisor = [pid for pid in job.find(TREERING, 2) if pid != job.process.pid]
    os.kill(supervisor[0], signal.SIGKILL)
    job.finish()
    check('kill -9 of the supervisor: nothing is left, 125', job,
          job.status == 125 and b'supervisor was killed by signal 9' in job.err)

    quiet = ('sh', '-c', f'sleep {tag}1 & (setsid sleep {tag}2 &); sleep {tag}3')
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        job = Job('-n', '2', '--', *quiet)
        job.find(f'sleep {tag}', 6)
        os.killpg(job.process.pid, number)  # as a terminal does it: launcher and supervisor
        job.finish()
        check(f'{number.name} to the launcher: 128 + {int(number)}, nothing is left', job,
              job.status == 128 + number and b'ending ranks 0, 1' in job.err and job.seconds < 10)

    job = Job('-n', '2', '--', *family)
    job.find(f'sleep {tag}', 6)
    begin = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    job.process.send_signal(signal.SIGINT)
    job.finish()
    check('a second SIGINT waits for nobody', job, job.status == 130 and time.monotonic() - begin < 1.9)

    job = Job('-n', '2', '--', 'treering-test-wrapper')  # not found: nothing of rank 0 may stay either
    job.finish()
    check('nothing stays of a job that could not start', job, job.status == 127)


def terminal():
    """Under a terminal: input comes from it, Ctrl-C ends all."""
    tag = sleepers()
    mark = secrets.token_hex(12)
    pid, master = pty.fork()
    if pid == 0:
        os.environ['TR_TEST_MARK'] = mark
        os.execv(TREERING, [TREERING, 'run', '-n', '2', '--', 'sh', '-c',
                            f'test $TR_RANK = 0 && read word && echo "got $word"; exec sleep {tag}'])
    job = Job.__new__(Job)
    job.mark = 'TR_TEST_MARK=' + mark
    job.begin, job.err, job.out = time.monotonic(), b'', b''

    def read_until(text, seconds=15):
        end = time.monotonic() + seconds
        while text not in job.out and time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    job.out += os.read(master, 4096)
                except OSError:  # how the master sees the end
                    return

    os.write(master, b'hello\n')
    read_until(b'[0] got hello')
    has_read = b'[0] got hello' in job.out
    job.find(f'sleep {tag}', 2)
    os.write(master, b'\x03')
    read_until(b'Interrupt; ending ranks 0, 1')
    status = os.waitpid(pid, 0)[1]
    os.close(master)
    job.status, job.seconds = os.waitstatus_to_exitcode(status), time.monotonic() - job.begin
    check('rank 0 reads from the terminal', job, has_read)
    check('Ctrl-C on a terminal: 130, nothing is left', job,
          job.status == 130 and b'stopped by Interrupt; ending ranks 0, 1' in job.out)


def other_commands():
    def treering(*arguments, **variables):
        environ = {k: v for k, v in os.environ.items() if not k.startswith('TR_')}
        return subprocess.run([TREERING, *arguments], env={**environ, **variables}, timeout=30,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    done = treering('env', TR_SPIN='77', TR_JOB_KEY='00' * 16, TR_TIMEOUT='1')
    TAP.check('env lists variables with ranges and values, hides the key, points out slips',
              done.returncode == 0 and 'TR_TIMEOUT_S  (seconds, default: 300)' in done.stdout
              and 'now: 77' in done.stdout and '00' * 16 not in done.stdout
              and 'TR_TIMEOUT  is set, but there is no such variable' in done.stdout,
              done.stdout, done.stderr)
    done = treering('env', TR_SPIN='lots')
    TAP.check('env names a bad value and fails',
              done.returncode == 1 and 'TR_SPIN is "lots"' in done.stderr, done.stdout, done.stderr)
    done = treering('version')
    TAP.check('version', done.returncode == 0 and done.stdout.startswith('treering '), done.stdout)
    flag = treering('--version')
    TAP.check('--version says the same', (flag.returncode, flag.stdout) == (0, done.stdout), flag.stdout, flag.stderr)
    commands = ['run', 'explain', 'env', 'version']
    for arguments, words in (([], ['which command?']), (['sail'], ["no command 'sail'"]), ([''], []),
                             (['perf-'], ["no command 'perf-'"])):
        done = treering(*arguments)
        listed = [line.split()[0] for line in done.stderr.splitlines() if line.startswith('  ')]
        TAP.check(f'bad usage is refused with 2, the commands are listed: treering {" ".join(arguments)}',
                  done.returncode == 2 and not done.stdout and set(commands) <= set(listed)
                  and 'perf-worker' not in listed and all(word in done.stderr for word in words),
                  done.stdout, done.stderr)
    done = treering('--bad')
    TAP.check('an unknown option is refused with 2', done.returncode == 2 and '--bad' in done.stderr, done.stderr)
    done = treering('env', TR_ALGO='send_recv:ring')
    TAP.check('TR_ALGO offers no collective without algorithms',
              done.returncode == 1 and 'all_reduce' in done.stderr
              and 'send_recv' not in done.stderr.replace('"send_recv:ring"', ''), done.stderr)


for part in (statuses, environment, output, standard_input, death, limits, timeout, launcher, terminal,
             other_commands):
    part()
TAP.done()
