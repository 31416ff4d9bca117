"""Runs examples as their readers would: some processes of one program, rank 0's output apart from the others'."""
import os
import re
import subprocess

LIMIT_S = 60


class Run:
    """`size` processes of `program`. out: what rank 0 wrote; all: what all wrote; ok: all ended with 0."""

    def __init__(self, size, program, *args, **settings):
        key = os.urandom(16).hex()
        ranks = []
        for rank in range(size):
            env = dict(os.environ, OPENBLAS_NUM_THREADS='1', **settings)
            if size > 1:
                env.update(TR_RANK=str(rank), TR_SIZE=str(size), TR_JOB_KEY=key, TR_TIMEOUT_S='30')
            ranks.append(subprocess.Popen([program, *args], env=env, text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE))
        self.texts, self.errors = [], []
        for process in ranks:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                for each in ranks:
                    each.kill()
                out, err = process.communicate()
                err += f'killed after {LIMIT_S} s'
            self.texts.append(out)
            self.errors.append(err)
        self.codes = [process.returncode for process in ranks]
        self.ok = not any(self.codes)
        self.out = self.texts[0]
        self.all = ''.join(self.texts)

    def why(self):
        return [f'exit statuses {self.codes}', *self.texts, *self.errors]


def find(pattern, text):
    match = re.search(pattern, text, re.M)
    return match.group(1) if match else None


def params_hash(run):
    return find(r'hash ([0-9a-f]{16})$', run.out) if run.ok else None
