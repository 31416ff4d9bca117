#!/usr/bin/env python3
"""Usage: test_text.py TREERING

What `treering explain` prints, against tables written by hand and counts worked out here. TAP.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

# A ring of 4, from the paper: chunk r-1 leaves first; every hop adds one; after 3 steps rank r has the whole
# sum of chunk r; 3 more steps carry the sums around.
RING_4 = '''
 step |     rank 0      |     rank 1      |     rank 2      |     rank 3
------+-----------------+-----------------+-----------------+-----------------
start |      c3    -> 1 |      c0    -> 2 |      c1    -> 3 |      c2    -> 0
    1 | 3 -> c2 +  -> 1 | 0 -> c3 +  -> 2 | 1 -> c0 +  -> 3 | 2 -> c1 +  -> 0
    2 | 3 -> c1 +  -> 1 | 0 -> c2 +  -> 2 | 1 -> c3 +  -> 3 | 2 -> c0 +  -> 0
    3 | 3 -> c0 += -> 1 | 0 -> c1 += -> 2 | 1 -> c2 += -> 3 | 2 -> c3 += -> 0
    4 | 3 -> c3  = -> 1 | 0 -> c0  = -> 2 | 1 -> c1  = -> 3 | 2 -> c2  = -> 0
    5 | 3 -> c2  = -> 1 | 0 -> c3  = -> 2 | 1 -> c0  = -> 3 | 2 -> c1  = -> 0
    6 | 3 -> c1  =      | 0 -> c2  =      | 1 -> c3  =      | 2 -> c0  =
'''

# Two-shot: every chunk goes to its rank at once, which adds all and shows the sum to all.
TWO_SHOT_3 = '''
 step |        rank 0        |        rank 1        |        rank 2
------+----------------------+----------------------+----------------------
start |        c1    -> 1    |        c2    -> 2    |        c0    -> 0
      |        c2    -> 2    |        c0    -> 0    |        c1    -> 1
    1 | 1,2 -> c0 += -> all  | 0,2 -> c1 += -> all  | 0,1 -> c2 += -> all
    2 |   1 -> c1  =         |   2 -> c2  =         |   0 -> c0  =
      |   2 -> c2  =         |   0 -> c0  =         |   1 -> c1  =
'''

# Two hosts of two ranks: ring 0 goes through ranks 0 and 2 with the chunks c0 and c1, ring 1 through 1 and 3 with c2
# and c3. Each gives the other of its host what the other's ring needs, folds that into its own, and shows what comes.
TWO_LEVEL_2X2 = '''
 step |       rank 0        |       rank 1        |       rank 2        |       rank 3
------+---------------------+---------------------+---------------------+---------------------
start |        c3    -> 1   |        c1    -> 0   |        c2    -> 3   |        c0    -> 2
    1 |   1 -> c1 +  -> 2   |   0 -> c3 +  -> 3   |   3 -> c0 +  -> 0   |   2 -> c2 +  -> 1
      |        c2    -> 1   |        c0    -> 0   |        c3    -> 3   |        c1    -> 2
    2 | 1,2 -> c0 += -> 1,2 | 0,3 -> c2 += -> 0,3 | 0,3 -> c1 += -> 0,3 | 1,2 -> c3 += -> 1,2
    3 |   1 -> c2  =        |   0 -> c0  =        |   3 -> c3  =        |   2 -> c1  =
      |   2 -> c1  = -> 1   |   3 -> c3  = -> 0   |   0 -> c0  = -> 3   |   1 -> c2  = -> 2
    4 |   1 -> c3  =        |   0 -> c1  =        |   3 -> c2  =        |   2 -> c0  =
'''


class Explain:
    def __init__(self, treering):
        self.treering = treering

    def run(self, *arguments):
        return subprocess.run([self.treering, 'explain', *map(str, arguments)], capture_output=True,
                              text=True, check=False)

    def text(self, *arguments):
        result = self.run(*arguments)
        if result.returncode != 0:
            raise RuntimeError(f'explain {arguments}: {result.stderr}')
        return result.stdout

    def json(self, op, algo, n, *options):
        return json.loads(self.text(op, '--algo', algo, '-n', n, '--json', *options))


def cells(table):
    """A table without its widths."""
    return [[' '.join(cell.split()) for cell in line.split('|')]
            for line in table.strip('\n').splitlines() if '|' in line]


def lines_with(text, *words):
    return [line for line in text.splitlines() if all(word in line for word in words)]


def check_tables(tap, explain):
    ring = explain.text('all_reduce', '--algo', 'ring', '-n', 4, '--bytes', '1M')
    tap.check('the ring of 4 as a table', RING_4 in ring, ring)
    tap.check('it takes 6 steps', lines_with(ring, 'Steps: 6 messages'), ring)
    tap.check('a rank sends 2(n-1)/n S', lines_with(ring, 'ranks 0-3: sends 6 messages, 1.5 S = 1.5 MiB;'), ring)
    tap.check('formula and source stand below',
              lines_with(ring, 'Formula: 2(n-1)/n S') and lines_with(ring, 'Source: Patarasuk, Yuan'), ring)
    tap.check('each link carries the same', lines_with(
        ring, '6 messages, 1.5 S = 1.5 MiB each: 0->1, 1->2, 2->3, 3->0'), ring)
    tap.check('the checker has proven it', lines_with(ring, 'Proven', 'complete', 'no deadlock'), ring)
    tap.check('the table fits a terminal of 80 columns',
              all(len(line) <= 80 for line in lines_with(ring, ' | ')), ring)
    shot = explain.text('all_reduce', '--algo', 'two_shot', '-n', 3)
    rows = cells(shot)
    tap.check('two-shot of 3 as a table', rows == cells(TWO_SHOT_3), shot)
    tap.check('two-shot sends (n-1)/n S and S/n to all at once', lines_with(
        explain.text('all_reduce', '--algo', 'two_shot', '-n', 4), 'sends 3 messages, 0.75 S',
        'sends 1 message to all at once, 0.25 S'))


def check_lists(tap, explain):
    wide = explain.text('all_reduce', '--algo', 'ring', '-n', 64)
    tap.check('many ranks are listed, the others can be asked for',
              'rank 0\n' in wide and '--rank R' in wide and ' | ' not in wide, wide[:2000])
    one = explain.text('all_reduce', '--algo', 'ring', '-n', 64, '--rank', 5)
    steps = [line for line in one.splitlines() if line.startswith('  ') and ' chunk ' in line]
    wanted = [f'receives chunk {(5 - t - 1) % 64} from rank 4' for t in range(1, 127)]
    problems = [f'step {t}: {steps[t:t + 1]}' for t in range(1, 127)
                if len(steps) != 127 or wanted[t - 1] not in steps[t]]
    tap.none('rank 5 of a ring of 64: chunk by chunk', problems)
    tap.check('only that rank is shown', 'rank 4\n' not in one and one.count('\nrank ') == 1, one[:500])


def check_counts(tap, explain):
    problems = []
    for n in range(2, 10):
        size = 4 * 64 * n * 3  # every chunk the same, in whole cache lines
        data = explain.json('all_reduce', 'ring', n, '--bytes', size)
        share = 2 * (n - 1) * size // n
        if data['steps'] != 2 * (n - 1):
            problems.append(f'ring {n}: {data["steps"]} steps')
        if [(l['src'], l['dst'], l['messages'], l['bytes']) for l in data['links']] != [
                (r, (r + 1) % n, 2 * (n - 1), share) for r in range(n)]:
            problems.append(f'ring {n}: {data["links"]}')
        if any(t['sent']['bytes'] != share or t['received']['bytes'] != share for t in data['traffic']):
            problems.append(f'ring {n}: {data["traffic"]}')
        for op in ('all_gather', 'reduce_scatter'):
            traffic = explain.json(op, 'ring', n, '--bytes', size)['traffic']
            if any(t['sent']['bytes'] != share // 2 for t in traffic):
                problems.append(f'{op} ring {n}: {traffic}')
    tap.none('ring: bytes and messages per link and rank, 2 to 9 ranks', problems)

    problems = []
    for n in (4, 8, 16):
        data = explain.json('all_reduce', 'halving_doubling', n)
        if data['hops'] != 2 * math.log2(n) or data['steps'] != 2 * (n - 1):
            problems.append(f'{n}: {data["hops"]} hops, {data["steps"]} message times')
    tap.none('halving-doubling: 2 log2 n hops, n-1 chunks each way', problems)
    barrier = [explain.json('barrier', 'dissemination', n)['hops'] for n in (2, 3, 4, 8, 9)]
    tap.check('dissemination: ceil(log2 n) hops', barrier == [1, 2, 2, 3, 4], str(barrier))

    tiny = explain.json('all_reduce', 'ring', 4, '--bytes', 8)
    # Chunks that leave rank 0: 3 2 1 0 3 2; rank 1: 0 3 2 1 0 3.
    sent = [tiny['traffic'][r]['sent'] for r in (0, 1)]
    tap.check('2 elements for 4 ranks: chunks 2 and 3 are empty and no message',
              tiny['chunk_bytes'] == [4, 4, 0, 0] and
              sent == [{'messages': 2, 'bytes': 8}, {'messages': 3, 'bytes': 12}],
              str(tiny['chunk_bytes']), str(sent))


def check_slices(tap, explain):
    problems = []
    for n in (2, 4, 7):
        for k in (1, 2, 8):
            data = explain.json('broadcast', 'ring', n, '--bytes', 4096 * k, '--slice', 4096)
            time = data.get('pipelined_slice_messages', data['steps'])
            if time != n - 1 + k - 1:
                problems.append(f'chain of {n}, {k} slices: {time}')
            ring = explain.json('all_reduce', 'ring', n, '--bytes', 4096 * k * n, '--slice', 4096)
            if ring.get('pipelined_slice_messages', ring['steps']) != 2 * (n - 1) * k:
                problems.append(f'ring of {n}, {k} slices: {ring}')
            if any(l['messages'] != 2 * (n - 1) * k for l in ring['links']):
                problems.append(f'ring of {n}, {k} slices: {ring["links"]}')
    tap.none('a chain of k slices is done after n-1 + k-1, a ring after 2(n-1) k', problems)
    text = explain.text('broadcast', '--algo', 'ring', '-n', 4, '--bytes', '1M', '--slice', '128K')
    tap.check('and says so', lines_with(text, 'Slices: 8 per chunk', 'after 10 slice messages'), text)


def check_every_algorithm(tap, explain):
    """Each one that the list names can be explained, and its --json times are those of the table."""
    listing, op, names, problems = explain.text(), None, [], []
    for line in listing.splitlines():
        if line and not line.startswith(' ') and len(line.split()) == 1:
            op = line
        elif line.startswith('  ') and not line.startswith('   '):
            names.append((op, line.split()[0]))
    for op, name in names:
        n = 1 if name == 'local' else 5
        hosts = ['--hosts', '2+3'] if name.startswith('two_level') else []
        result = explain.run(op, '--algo', name, '-n', n, '--json', *hosts)
        if result.returncode != 0:
            problems.append(f'{op} {name}: {result.stderr}')
            continue
        data = json.loads(result.stdout)
        if len(data['schedule']) != n or 'proven_slots' not in data:
            problems.append(f'{op} {name}: {result.stdout[:300]}')
        last = max([s['at'] for steps in data['schedule'] for s in steps], default=0)
        if last != data['steps']:
            problems.append(f'{op} {name}: the last step fires at {last}, not {data["steps"]}')
        if explain.run(op, '--algo', name, '-n', n, *hosts).returncode != 0:
            problems.append(f'{op} {name}: no text')
    tap.check(f'each of the {len(names)} algorithms can be explained', len(names) > 20 and not problems,
              problems)
    ours = explain.text('all_reduce')
    tap.check('without --algo: the algorithms of the operation', all(
        word in ours for word in ('ring', 'two_shot', 'halving_doubling', '2(n-1)/n S', 'Patarasuk'))
        and 'bruck' not in ours, ours)
    three, four = explain.text('all_gather', '-n', 3), explain.text('all_gather', '-n', 1)
    tap.check('without --algo: -n leaves out what does not run over so many ranks',
              'bruck' in three and 'local' not in three and 'here 3' in three and 'local' in four
              and 'bruck' not in four, three, four)


def check_hosts(tap, explain):
    two = explain.text('all_reduce', '--algo', 'two_level', '--hosts', '2x2', '--bytes', '1M')
    tap.check('two hosts of two ranks as a table', TWO_LEVEL_2X2 in two, two)
    tap.check('it says which ranks share a host', lines_with(two, '4 ranks; hosts {0, 1} and {2, 3}'), two)
    # 2(H-1) S between hosts; inside, every rank gives half of its vector away and hears half of the result.
    tap.check('and what crosses between them', lines_with(two, 'Between hosts: 8 messages, 2 S = 2 MiB;',
                                                          'inside: 16 messages, 4 S = 4 MiB'), two)
    ring = explain.text('all_reduce', '--algo', 'ring', '--hosts', '0,1,0,1', '--bytes', '1M')
    tap.check('a flat ring over interleaved hosts sends everything between them',
              lines_with(ring, 'Between hosts: 24 messages, 6 S = 6 MiB; inside: 0 messages'), ring)
    data = explain.json('reduce', 'two_level', 5, '--hosts', '1+3+1', '--root', 4)
    tap.check('--json has the hosts', data['hosts'] == [[0], [1, 2, 3], [4]] and len(data['schedule']) == 5, data)
    one = explain.text('all_reduce', '--algo', 'ring', '--hosts', '1x3')
    tap.check('one host is no case of its own', 'Between hosts' not in one and '3 ranks' in one, one)
    listing = explain.text('all_reduce', '--hosts', '2x2')
    tap.check('without --algo: what works between hosts', 'two_level_tree' in listing and 'ring' in listing
              and 'two_shot' not in listing and 'here 2x2' in listing, listing)


def check_errors(tap, explain):
    cases = [
        (('all_reduse', '--algo', 'ring'), ('all_reduse', 'all_reduce, reduce, broadcast')),
        (('all_reduce', '--algo', 'rong'), ('rong', 'ring', 'two_shot')),
        (('all_reduce', '--algo', 'ring', '-n', '1'), ('1 rank', 'local')),
        (('all_reduce', '--algo', 'local', '-n', '4'), ('4 ranks', 'ring')),
        (('all_reduce', '--algo', 'two_level', '-n', '4'), ('all ranks are on one', '--hosts 2x2', 'ring')),
        (('all_reduce', '--algo', 'two_shot', '--hosts', '2x2'), ('one-to-many', 'ring')),
        (('all_reduce', '--algo', 'two_level', '--hosts', '2x'), ('hosts "2x"', 'write 2x4')),
        (('all_reduce', '--algo', 'two_level', '--hosts', '2x2', '-n', '5'), ('--hosts 2x2', '4 ranks', 'leave -n out')),
        (('all_reduce', '--algo', 'ring', '-n', '0'), ('-n 0', '1 to')),
        (('all_reduce', '--algo', 'ring', '-n', '100000'), ('-n 100000', '1 to')),
        (('all_reduce', '-n', '0'), ('-n 0', '1 to')),
        (('all_reduce', '-n', '100000'), ('-n 100000', '1 to')),
        (('-n', '0'), ('-n 0', '1 to')),
        (('all_reduce', '--html', 'x.html'), ('--html needs --algo', 'ring', 'two_shot')),
        (('--html', 'x.html'), ('--html needs --algo', 'operation')),
        (('broadcast', '--root', '9'), ('--root needs --algo', 'binomial')),
        (('all_reduce', '--root', '0'), ('--root needs --algo',)),
        (('all_reduce', '--rank', '1'), ('--rank needs --algo',)),
        (('all_reduce', '--json'), ('--json needs --algo',)),
        (('all_reduce', '--slice', '1M'), ('--slice needs --algo',)),
        (('all_reduce', '--type', 'float16'), ('--type needs --algo',)),
        (('all_reduce', '--algo', ''), ("no algorithm ''", 'ring')),
        (('all_reduce', '--algo', 'ring', '-n', '4', '--rank', '4'), ('--rank 4', '0 to 3')),
        (('broadcast', '--algo', 'ring', '-n', '4', '--root', '4'), ('--root 4', '0 to 3')),
        (('all_reduce', '--algo', 'ring', '--root', '1'), ('no root',)),
        (('all_reduce', '--algo', 'ring', '--type', 'float31'), ('float31', 'bfloat16')),
        (('all_reduce', '--algo', 'ring', '--bytes', '3'), ('--bytes 3', '4 bytes of a float32')),
        (('all_reduce', '--algo', 'ring', '-n', '32', '--html', 'x.html'), ('16 ranks',)),
        (('all_reduce', '--algo', 'ring', '--html', '/nonexistent/x.html'), ('/nonexistent/x.html', 'No such')),
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for arguments, words in cases:
            result = explain.run(*arguments)
            tap.check('error: ' + ' '.join(arguments), result.returncode == 2 and not result.stdout
                      and all(word in result.stderr for word in words),
                      f'exit {result.returncode}', result.stdout[:300], result.stderr)
        os.chdir('/')


def main(treering):
    tap, explain = Tap(), Explain(os.path.abspath(treering))
    for check in (check_tables, check_lists, check_counts, check_slices, check_every_algorithm, check_hosts,
                  check_errors):
        check(tap, explain)
    tap.done()


main(*sys.argv[1:])
