#!/usr/bin/env python3
"""Usage: test_topo.py TREERING

`treering topo` as a user starts it. TAP.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from tap import Tap

P4D = os.path.join(HERE, 'data', 'aws-p4d.24xl-ofi.xml')


def main(treering):
    tap = Tap()

    def run(*arguments):
        return subprocess.run([treering, 'topo', *arguments], capture_output=True, text=True, check=False, timeout=60)

    text = run(P4D)
    tap.check('a file is shown', text.returncode == 0 and '8 GPUs, 4 NICs, 4 PCI switches, 2 NUMA nodes' in text.stdout,
              text.stdout, text.stderr)
    tap.check('its tree', re.search(r'^ {6}GPU0 +0000:10:1c.0, 8 GT/s x16, 12 GB/s$', text.stdout, re.M), text.stdout)
    tap.check('its pairs', re.search(r'^GPU0 +X +PIX 12 +PHB 12 +PHB 12 +SYS 10\*', text.stdout, re.M), text.stdout)
    tap.check('its defects', re.search(r'^  defect +fake bridge: PCI switch ffff:ff:01.0, ', text.stdout, re.M),
              text.stdout)

    rings = run(P4D, '--rings')
    tap.check('rings: how fast, what is full, and that no more is possible', rings.returncode == 0 and
              '2 rings, 10 GB/s together of at most 10' in rings.stdout and
              re.search(r'^ring 1  5 GB/s  GPU0 - .* - GPU0\n    4 PIX, 2 PHB, 2 SYS \(.*\); full: NUMA 0 - NUMA 1, socket, '
                        r'10 GB/s$', rings.stdout, re.M), rings.stdout, rings.stderr)
    tap.check('trees', re.search(r'^tree 1  .* GB/s  GPU\d \(', rings.stdout, re.M), rings.stdout)
    machines = run(P4D, '--rings', '--machines', '4')
    tap.check('rings of several machines go from NIC to NIC',
              re.search(r'^ring 0  6 GB/s  \[0000:\S+\] GPU\d - .* \[0000:\S+\]$', machines.stdout, re.M), machines.stdout)

    here = run('--no-measure')
    tap.check('this machine is shown', here.returncode == 0 and here.stdout.startswith('this machine: sysfs') and
              'NUMA' in here.stdout, here.stdout, here.stderr)
    measured = run()
    tap.check('with distances between its cores, if it has several',
              measured.returncode == 0 and ('round trip' in measured.stdout) == ((os.cpu_count() or 1) > 1),
              measured.stdout)
    nowhere = run('--root', HERE, '--nvml', '')
    tap.check('a root without sysfs: all is assumed', nowhere.returncode == 0 and
              'no NUMA nodes are shown; one is assumed' in nowhere.stdout, nowhere.stdout, nowhere.stderr)

    with tempfile.TemporaryDirectory() as folder:
        page, data, topology = (os.path.join(folder, name) for name in ('a.html', 'a.json', 'a.xml'))
        files = run(P4D, '--html', page, '--json', data, '--xml', topology)
        tap.check('three files are written', files.returncode == 0 and files.stdout.count('wrote ') == 3,
                  files.stdout, files.stderr)
        with open(data, encoding='utf-8') as file:
            graph = json.load(file)
        tap.check('JSON has all nodes', len([n for n in graph['nodes'] if n['kind'] == 'GPU']) == 8)
        gpus = xml_gpus(topology)
        tap.check('XML is NCCL\'s', gpus == [f'0000:{bus}:1{unit}.0' for bus in ('10', '20', '90', 'a0')
                                             for unit in 'cd'], str(gpus))
        with open(page, encoding='utf-8') as file:
            html = file.read()
        tap.check('the page draws 8 GPUs', html.count('<g class="gpu">') == 8)
        tap.check('and loads nothing from elsewhere', not re.search(r'<script|https?://|\bsrc=|@import|url\(', html))
        tap.check('it draws rings and trees', html.count('class="ringway') == 8 and
                  '2 rings, 10 GB/s together' in html and html.count('<th>tree ') == 2)
        svg = html[html.index('<svg'):html.index('</svg>') + 6]
        tap.check('its drawing is well-formed', xml_root(svg) == 'svg')
        again = run(data)
        tap.check('JSON can be read again, pairs and findings alike',
                  again.stdout.split('\n\n', 1)[1] == text.stdout.split('\n\n', 1)[1], again.stdout)

    stdout = run(P4D, '--json', '-')
    tap.check('- is the standard output', json.loads(stdout.stdout)['format'] == 'treering-topology')

    for name, arguments, words in [
            ('a file that is not there', ['/nonexistent/x'], 'cannot open /nonexistent/x'),
            ('a file of another kind', [os.path.join(HERE, 'data', 'README.md')], 'is in no format that is known here'),
            ('a directory', [HERE], 'is a directory'),
            ('a file without GPUs, for rings,', [os.path.join(HERE, 'data', 'aws-g5.48xl-ofi.xml'), '--rings'], 'has no GPUs'),
            ('a number of machines that is none', [P4D, '--rings', '--machines', '0'], '--machines'),
            ('a file that cannot be written', [P4D, '--json', '/nonexistent/x'], "cannot open '/nonexistent/x'"),
    ]:
        result = run(*arguments)
        tap.check(f'{name} is refused with its reason', result.returncode == 2 and words in result.stderr and
                  result.stdout == '', result.stderr)
    tap.done()


def xml_gpus(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    return [pci.get('busid') for pci in root.iter('pci') if pci.find('gpu') is not None]


def xml_root(text):
    return xml.etree.ElementTree.fromstring(text).tag


main(sys.argv[1])
