"""Runs the trainer's programs as their readers would, for the tests beside this file."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

PROGRAMS, LAUNCHER, BACKENDS = sys.argv[1], sys.argv[2], sys.argv[3].split(',')
scratch = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(scratch.name, name)


def program(name):
    return os.path.join(PROGRAMS, name)


def run(*command, limit=120, options=None, **env):
    return subprocess.run(command, env={**os.environ, 'OPENBLAS_NUM_THREADS': '1', 'TR_TIMEOUT_S': '30', **env},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, check=False,
                          **(options or {}))


def train(*args, name='train_mlp', **options):
    return run(program(name), *args, **options)


def shown(result):
    return [f'status {result.returncode}', *result.stdout.split('\n')[-12:], *result.stderr.split('\n')[-6:]]


def metrics(name):
    with open(path(name), encoding='utf-8') as file:
        return [json.loads(line) for line in file]


def param_hash(result):
    found = re.search(r'hash ([0-9a-f]{16})$', result.stdout, re.M)
    return found.group(1) if result.returncode == 0 and found else None


def threads(*args):
    return ['--backend', 'threads', *args]
