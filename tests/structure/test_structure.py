#!/usr/bin/env python3
"""Usage: test_structure.py ROOT

The rules that keep the repository readable (CONTRIBUTING.md, "Rules that a test checks"). Each rule first
proves on samples that it can complain. TAP.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import bugs
import documents
import includes
import style
from tap import Tap
from tree import Tree


def format_problems(clang_format, root, paths):
    run = subprocess.run([clang_format, '--dry-run', '-Werror', *paths], cwd=root, capture_output=True,
                         text=True, check=False)
    return sorted(set(re.findall(r'^(.*?):\d+:\d+: error: code should be clang-formatted', run.stderr, re.M)))


def check_format(tap, tree):
    """Layout differs between versions of clang-format; Debian 12's is the one that counts."""
    clang_format = shutil.which('clang-format-14') or shutil.which('clang-format')
    version = ''
    if clang_format:
        version = subprocess.run([clang_format, '--version'], capture_output=True, text=True, check=False).stdout
    if ' 14.' not in version:
        tap.skip('clang-format', f'needs clang-format 14, here is {version.strip() or "none"}')
        return
    sample = 'int  main( ){return 0 ;}\n'
    run = subprocess.run([clang_format, '--dry-run', '-Werror', '--assume-filename=a.cpp'], input=sample,
                         capture_output=True, text=True, cwd=tree.root, check=False)
    tap.check('self-test: clang-format complains about a bad layout', run.returncode != 0, run.stderr)
    paths = tree.code()
    tap.none('every source is as clang-format writes it (clang-format -i FILE)',
             format_problems(clang_format, tree.root, paths))


def main(root):
    tree = Tree(root)
    tap = Tap()
    tap.check('the tree has sources', len(tree.code()) > 20, f'{len(tree.code())} under {root}')

    tap.none('self-test: include rules', includes.self_test())
    tap.none('who includes whom', includes.check(tree))
    tap.none("the map's column of includes", includes.check_map(tree))

    tap.none('self-test: style rules', style.self_test())
    for name, rule in style.RULES.items():
        tap.none(name, style.check(tree, rule))

    tap.none('self-test: document rules', documents.self_test())
    tap.none('links of the documents resolve', documents.check_links(tree))
    tap.none('commands of the documents exist', documents.check_commands(tree))
    tap.none('every environment variable is in the table and in the README', documents.check_variables(tree))
    tap.none('every algorithm is in the README', documents.check_algorithms(tree))
    tap.none('three hops from the public call to the ring', documents.check_hops(tree))

    tap.none('self-test: the table of reports', bugs.self_test())
    tap.none('every report has its row, and every test named there exists', bugs.check(tree))

    check_format(tap, tree)
    tap.done()


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
