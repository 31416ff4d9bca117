#!/usr/bin/env python3
"""Usage: test_count.py ROOT

tools/count-results counts what really happened: a small Meson project with test programs of known fates is
configured and run by the real Meson. TAP.
"""
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

# A program that speaks GoogleTest: `cases` go to the XML file, then it ends with `status`.
GTEST = '''
import sys
output = [a for a in sys.argv if a.startswith('--gtest_output=xml:')][0].split(':', 1)[1]
if {report}:
    with open(output, 'w') as file:
        file.write('<testsuites name="AllTests"><testsuite name="Suite">{cases}</testsuite></testsuites>')
sys.exit({status})
'''
PASS = '<testcase name="A" status="run" classname="Suite"/>'
FAIL = '<testcase name="B" status="run" classname="Suite"><failure message="no"/></testcase>'
SKIP = '<testcase name="C" status="run" classname="Suite"><skipped message="no"/></testcase>'
# name: (protocol, program, passed, failed, skipped)
PROGRAMS = {
    'gtest_good': ('gtest', GTEST.format(report=True, cases=PASS * 3 + SKIP, status=0), 3, 0, 1),
    'gtest_bad': ('gtest', GTEST.format(report=True, cases=PASS + FAIL * 2, status=1), 1, 2, 0),
    'gtest_crash': ('gtest', 'import os\nos.abort()', 0, 1, 0),
    'gtest_leak': ('gtest', GTEST.format(report=True, cases=PASS * 2, status=23), 2, 1, 0),
    'gtest_silent': ('gtest', GTEST.format(report=False, cases='', status=0), 0, 1, 0),
    'tap_mixed': ('tap', 'print("ok 1 - a\\nnot ok 2 - b\\nok 3 - c # SKIP no\\n1..3")', 1, 1, 1),
    'tap_crash': ('tap', 'import os\nprint("ok 1 - a", flush=True)\nos.abort()', 1, 1, 0),
    'tap_skip': ('tap', 'print("1..0 # SKIP nothing here")', 0, 0, 1),
    'exit_good': ('exitcode', '', 1, 0, 0),
    'exit_bad': ('exitcode', 'raise SystemExit(1)', 0, 1, 0),
    'exit_skip': ('exitcode', 'raise SystemExit(77)', 0, 0, 1),
}


def make_project(folder):
    lines = ["project('treering')", "python = find_program('python3')"]
    for name, (protocol, program, *_) in PROGRAMS.items():
        with open(os.path.join(folder, name + '.py'), 'w', encoding='utf-8') as file:
            file.write(program)
        lines.append(f"test('{name}', python, args: files('{name}.py'), protocol: '{protocol}', suite: 'unit')")
    with open(os.path.join(folder, 'meson.build'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')


def main(root):
    tap = Tap()
    meson = subprocess.run([os.path.join(root, 'tools', 'find-meson')], capture_output=True, text=True,
                           check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        build = os.path.join(folder, 'build')

        def check(name, programs, expected):
            """programs: those that run; expected: the last line, and so the exit status."""
            for path in glob.glob(f'{build}/*.xml') + glob.glob(f'{build}/meson-logs/testlog*'):
                os.unlink(path)
            if programs:
                subprocess.run([meson, 'test', '-C', build, *programs], capture_output=True, check=False)
            run = subprocess.run([os.path.join(root, 'tools', 'count-results'), build], capture_output=True,
                                 text=True, check=False)
            line = run.stdout.rstrip().split('\n')[-1]
            good = ' 0 failed' in expected and not expected.startswith('0 passed')
            tap.check(f'{name}: {expected}', (line, run.returncode) == (expected, 0 if good else 1),
                      run.stdout + run.stderr)

        make_project(folder)
        subprocess.run([meson, 'setup', build, folder], capture_output=True, check=True)
        sums = [sum(row[i] for row in PROGRAMS.values()) for i in (2, 3, 4)]
        check(f'{len(PROGRAMS)} programs', list(PROGRAMS), '{} passed, {} failed, {} skipped'.format(*sums))
        check('all good', ['gtest_good', 'exit_good', 'exit_skip'], '4 passed, 0 failed, 2 skipped')
        check('nothing but skipped', ['tap_skip'], '0 passed, 0 failed, 1 skipped')
        check('no test at all', [], '0 passed, 1 failed, 0 skipped')
    tap.done()


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
