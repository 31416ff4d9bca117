#!/usr/bin/env python3
"""Usage: test_model.py ROOT

The FIFO's protocol holds in every interleaving, and each of its rules is needed: Spin searches fifo.pml as
it is, exhaustively, and with each rule broken, where it must find an error. TAP.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

MODEL = os.path.join(os.path.abspath(sys.argv[1]), 'tests', 'model', 'fifo.pml')
HOLDS = [('one reader, two communicators with an abort between them', ['READERS=1', 'MESSAGES=4', 'EPOCHS=2']),
         ('two readers', ['READERS=2', 'MESSAGES=4', 'EPOCHS=1'])]
# What is broken, how, and what Spin must say.
BROKEN = [('the tail is stored before the payload', 'POST_FIRST', ['READERS=1'], 'assertion violated'),
          ('one message too many is written', 'CREDIT', ['READERS=1'], 'assertion violated'),
          ('slots change their size while some are unread', 'NO_DRAIN', ['READERS=1'], 'assertion violated'),
          ('a slot is released before it is read', 'RELEASE_FIRST', ['READERS=1'], 'assertion violated'),
          ('a cast heeds its first reader only', 'FIRST_READER', ['READERS=2', 'EPOCHS=1'], 'assertion violated'),
          ('memory is used again after an abort', 'SAME_SEGMENT', ['READERS=1', 'MESSAGES=3'],
           'assertion violated')]


def explore(folder, defines, optimisation):
    """Spin's report of the whole search, which ends at the first error."""
    for command in (['spin', '-a', *[f'-D{d}' for d in defines], MODEL],
                    ['gcc', optimisation, '-w', '-DSAFETY', '-DCOLLAPSE', '-o', 'pan', 'pan.c'],
                    ['./pan', '-m100000']):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
        if done.returncode != 0:
            break
    return done.stdout + done.stderr


def main():
    tap = Tap()
    names = [name for name, _ in HOLDS] + [f'found: {case[0]}' for case in BROKEN]
    missing = [tool for tool in ('spin', 'gcc') if shutil.which(tool) is None]
    if missing:
        for name in names:
            tap.skip(name, f'{missing[0]} is not installed')
        tap.done()
    with tempfile.TemporaryDirectory() as folder:
        for name, defines in HOLDS:
            report = explore(folder, defines, '-O1')
            states = re.search(r'(\d+) states, stored', report)
            whole = 'errors: 0' in report and 'max search depth too small' not in report
            # Fewer states would mean that the model stops early.
            tap.check(name, whole and states is not None and int(states.group(1)) > 100000, report)
        for name, rule, defines, expected in BROKEN:
            report = explore(folder, [f'BREAK_{rule}', *defines], '-O0')
            tap.check(f'found: {name}', expected in report and 'errors: 1' in report, report)
    tap.done()


main()
