#!/usr/bin/env python3
"""Usage: test_command.py TREERING TOPOLOGIES

`treering sim`, `tune` and `explain OP --bytes`: times against formulas, what bad input is answered. TAP.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

TUNING = ('treering tuning 1\n# a machine\nall_reduce ring 4 8:20 1024:22 4096:100\n'
          'all_reduce one_shot 4 8:2 1024:40 4096:50\n')


class Command:
    def __init__(self, treering):
        self.treering = treering

    def run(self, *arguments, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith('TR_')}
        return subprocess.run([self.treering, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={**env, **environment})

    def sim(self, *arguments):
        result = self.run('sim', *arguments, '--json')
        if result.returncode != 0:
            raise RuntimeError(f'sim {arguments}: {result.stderr}')
        return json.loads(result.stdout)


def check_formulas(tap, command):
    flat = ('--machines', 8, '--latency-us', 3, '--overhead-us', 0, '--gb-s', 2, '--slice', 0)
    rows = command.sim('all_reduce', '--algo', 'ring,recursive_doubling', '--bytes', 1 << 20, '--end', 1 << 22,
                       *flat)['rows']
    tap.check('two algorithms, two sizes', [(r['algorithm'], r['bytes']) for r in rows] == [
        ('ring', 1 << 20), ('ring', 1 << 22), ('recursive_doubling', 1 << 20), ('recursive_doubling', 1 << 22)])
    for row in rows:
        s = row['bytes']
        want = 14 * (3 + s / 8 / 2000) if row['algorithm'] == 'ring' else 3 * (3 + s / 2000)
        tap.check(f'{row["algorithm"]} of {s} bytes takes the formula\'s time',
                  abs(row['time_us'] / want - 1) < 1e-9, f'{row["time_us"]} for {want}')
        tap.check('its bandwidths follow', abs(row['algbw_gb_s'] - s / want / 1e3) < 1e-6 and
                  abs(row['busbw_gb_s'] - s / want / 1e3 * 14 / 8) < 1e-6)
    links = rows[0]['links']
    tap.check('links carry what the ring sends', all(link['bytes'] == 14 * (1 << 17) for link in links), str(links))


def check_topology(tap, command, topologies):
    file = os.path.join(topologies, 'aws-p4d.24xl-ofi.xml')
    report = command.sim('all_reduce', '--algo', 'ring,two_level,chain_tree', '--topo', file, '--machines', 2,
                         '--bytes', '16M')
    tap.check('a topology gives 8 ranks a machine', report['ranks'] == 16)
    tap.check('every algorithm has a time', all(row['time_us'] > 0 for row in report['rows']))
    result = command.run('sim', 'all_reduce', '--algo', 'ring', '--topo', os.path.join(topologies, 'no.xml'), '-n', 8)
    tap.check('a file that is not there is an error', result.returncode == 2 and 'no.xml' in result.stderr)


def check_trace(tap, command, folder):
    path = os.path.join(folder, 'trace.json')
    result = command.run('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--trace', path)
    tap.check('a timeline is written', result.returncode == 0 and path in result.stderr, result.stderr)
    with open(path, encoding='utf-8') as file:
        events = json.load(file)['traceEvents']
    spans = [event for event in events if event['ph'] == 'X']
    # Each of 4 ranks: a send, 2 steps that fold and send, 1 that completes, 2 that pass on, 1 that receives; 4 slices.
    tap.check('it holds every slice of every step', len(spans) == 4 * 7 * 4, str(len(spans)))
    tap.check('times do not run backwards', all(event['dur'] >= 0 for event in spans))


def check_bad_input(tap, command):
    for arguments, words in [
            (('sim',), 'which operation'),
            (('sim', 'all_reduce', '-n', 4), '--algo is missing'),
            (('sim', 'all_reduce', '--algo', 'heap', '-n', 4), "has no algorithm 'heap'"),
            (('sim', 'all_reduce', '--algo', 'two_level', '-n', 4, '--per-machine', 4), 'choose among'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 1), '1 ranks'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 5, '--per-machine', 2), 'choose a multiple'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--machines', 4), 'not both'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 99999), 'choose 2 to'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--gb-s', -1), '0 to 10^9'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--gb-s', 'nan'), '0 to 10^9'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--oversubscription', 0), '--oversubscription'),
            (('sim', 'all_reduce', '--algo', 'ring', '-n', 4, '--end', 8), '--end'),
            (('sim', 'broadcast', '--algo', 'tree', '-n', 4, '--root', 4), '--root'),
            (('sim', 'all_reduce', '--algo', 'one_shot', '--per-machine', 9000), 'simulate fewer ranks'),
            (('tune', '-n', 1), 'numbers of ranks'),
            (('tune', '--seconds', 0), '--seconds'),
            (('tune', '--regret', '/nowhere/tuning'), 'cannot open'),
            (('explain', 'all_reduce', '--bytes', 64, '--tune', '/nowhere/tuning'), 'cannot open'),
            (('explain', 'all_reduce', '--bytes', 64, '--rank', 1), '--rank needs --algo'),
            (('explain', 'all_heap', '--bytes', 64), "no operation 'all_heap'")]:
        result = command.run(*arguments)
        tap.check(' '.join(map(str, arguments)) + ' is refused', result.returncode == 2 and words in result.stderr,
                  result.stderr)


def check_choice(tap, command, folder):
    path = os.path.join(folder, 'tuning')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(TUNING)
    plain = command.run('explain', 'all_reduce', '--bytes', 1024, '-n', 4).stdout
    tap.check('without a tuning the rules choose', '> one_shot' in plain and 'nothing is predicted' in plain, plain)
    tuned = command.run('explain', 'all_reduce', '--bytes', 1024, '-n', 4, TR_TUNE_FILE=path).stdout
    tap.check('with one, the fastest', '> ring                         22.0' in tuned, tuned)
    tap.check('and why others lose', '1.82 times the winner' in tuned and 'registered windows' in tuned, tuned)
    table = command.run('explain', 'all_reduce', '--algo', 'ring', '-n', 4, TR_TUNE_FILE=path)
    tap.check('TR_TUNE_FILE leaves the schedule\'s drawing alone', table.returncode == 0, table.stderr)


def check_tune(tap, command, folder):
    path = os.path.join(folder, 'measured')
    result = command.run('tune', '-n', 2, '--seconds', 2, '-o', path)
    tap.check('tune stores a file', result.returncode == 0 and os.path.exists(path), result.stderr)
    result = command.run('explain', 'broadcast', '--bytes', 4096, '-n', 2, '--tune', path)
    tap.check('that predicts', result.returncode == 0 and 'nothing is predicted' not in result.stdout, result.stdout)
    result = command.run('tune', '-n', 2, '--seconds', 2, '--regret', path)
    tap.check('and is held to account', result.returncode == 0 and 'median error of' in result.stdout, result.stderr)
    with open(path, encoding='utf-8') as file:
        cells = sum(line.count(':') for line in file.read().splitlines()[2:] if line.startswith('all_reduce'))
    tap.check('8 sizes of each all-reduce', cells > 0 and cells % 8 == 0, str(cells))


def main():
    tap = Tap()
    command = Command(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        check_formulas(tap, command)
        check_topology(tap, command, sys.argv[2])
        check_trace(tap, command, folder)
        check_bad_input(tap, command)
        check_choice(tap, command, folder)
        check_tune(tap, command, folder)
    tap.done()


main()
