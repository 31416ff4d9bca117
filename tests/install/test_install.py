#!/usr/bin/env python3
"""Usage: test_install.py ROOT BUILD

`meson install` gives everything that a program outside of the tree needs, and such programs, in C99 and in
C++20, against the shared and the static library, build with pkg-config and run on two ranks. TAP.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def find(folder, name):
    """The first file of that name under folder, or None."""
    for where, _, files in os.walk(folder):
        if name in files:
            return os.path.join(where, name)
    return None


def declared(header):
    """The functions that the C header declares."""
    with open(header, encoding='utf-8') as file:
        return set(re.findall(r'^TR_API [^;{]*?\b(tr_\w+)\(', file.read(), re.M))


def exported(library):
    """Every symbol that the shared library defines for others."""
    lines = run(['nm', '-D', '--defined-only', library]).stdout.splitlines()
    return {line.split()[-1].split('@')[0] for line in lines}


class Installed:
    """What pkg-config says about the tree that was installed into destdir."""

    def __init__(self, destdir):
        self.destdir = destdir
        self.module = find(destdir, 'treering.pc')
        self.shared = find(destdir, 'libtreering.so')
        self.static = find(destdir, 'libtreering.a')
        self.command = find(destdir, 'treering')
        self.header = find(destdir, 'treering.h')

    def flags(self, *options):
        """Not with a sysroot: what lies outside of the installed tree (CUDA's runtime) stays where it is."""
        env = {**os.environ, 'PKG_CONFIG_PATH': os.path.dirname(self.module)}
        prefix = run(['pkg-config', '--variable=prefix', 'treering'], env=env).stdout.strip()
        return run(['pkg-config', f'--define-variable=prefix={self.destdir}{prefix}', *options, 'treering'],
                   env=env).stdout.split()


def check_program(tap, tree, work, source, static):
    """Builds one program out of the tree and runs it on two ranks."""
    kind = 'static' if static else 'shared'
    name = f'{source}, {kind} library'
    program = os.path.join(work, f'{source.replace(".", "_")}_{kind}')
    compiler = ['c++', '-std=c++20'] if source.endswith('.cpp') else ['cc', '-std=c99', '-pedantic']
    flags = tree.flags('--cflags', '--libs', *(['--static'] if static else []))
    if static:
        alone = os.path.join(work, 'static_only')
        os.makedirs(alone, exist_ok=True)
        shutil.copy(tree.static, alone)
        flags.insert(0, f'-L{alone}')
    built = run([*compiler, '-Wall', '-Wextra', '-Werror', os.path.join(HERE, source), '-o', program, *flags])
    if not tap.check(f'{name}: builds with pkg-config', built.returncode == 0, built.stderr):
        return
    needed = run(['readelf', '-d', program]).stdout
    tap.check(f'{name}: links the {kind} library', ('libtreering' in needed) != static, needed)
    env = {**os.environ, 'LD_LIBRARY_PATH': os.path.dirname(tree.shared)}
    ran = run([tree.command, 'run', '-n', '2', '--timeout', '60', '--', program], env=env)
    label = 'C++' if source.endswith('.cpp') else 'C'
    wanted = [f'{label} rank {r} of 2: 1 3 5' for r in range(2)]
    tap.check(f'{name}: two ranks agree on the sums',
              ran.returncode == 0 and all(line in ran.stdout for line in wanted), ran.stdout, ran.stderr)


# Debian has no static Highway: what the library needs of it, for programs that are static altogether.
HIGHWAY = '''#include <hwy/targets.h>
namespace hwy {
int64_t SupportedTargets() { return HWY_STATIC_TARGET; }
ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}
}
'''


def check_static_program(tap, tree, work):
    """A C program without any shared library: the flags of `--static` are all that it needs, in that order."""
    folder = os.path.join(work, 'all_static')
    os.makedirs(folder)
    with open(f'{folder}/hwy.cpp', 'w', encoding='utf-8') as file:
        file.write(HIGHWAY)
    made = run(['c++', '-std=c++17', '-c', f'{folder}/hwy.cpp', '-o', f'{folder}/hwy.o'])
    archived = run(['ar', 'rcs', f'{folder}/libhwy.a', f'{folder}/hwy.o'])
    flags = tree.flags('--cflags', '--libs', '--static')
    built = run(['cc', '-static', '-std=c99', f'{HERE}/sum.c', '-o', f'{folder}/sum', f'-L{folder}', *flags])
    if tap.check('sum.c, no shared library at all: builds with pkg-config --static', built.returncode == 0,
                 made.stderr, archived.stderr, built.stderr):
        ran = run([tree.command, 'run', '-n', '2', '--timeout', '60', '--', f'{folder}/sum'])
        tap.check('sum.c, no shared library at all: two ranks agree on the sums',
                  ran.returncode == 0 and 'C rank 1 of 2: 1 3 5' in ran.stdout, ran.stdout, ran.stderr)


def check_readme(tap, tree, work, root):
    """The first program of the README prints, on four ranks, what the README says."""
    with open(os.path.join(root, 'README.md'), encoding='utf-8') as file:
        text = file.read()
    code, output = (re.search(rf'^```{language}\n(.*?)^```', text, re.M | re.S) for language in ('cpp', 'text'))
    if not tap.check('the README has a first program and its output', bool(code and output)):
        return
    with open(f'{work}/first.cpp', 'w', encoding='utf-8') as file:
        file.write(code.group(1))
    built = run(['c++', '-std=c++20', '-Wall', '-Wextra', '-Werror', f'{work}/first.cpp', '-o', f'{work}/first',
                 *tree.flags('--cflags', '--libs')])
    if tap.check("the README's first program builds", built.returncode == 0, built.stderr):
        env = {**os.environ, 'LD_LIBRARY_PATH': os.path.dirname(tree.shared)}
        ran = run([tree.command, 'run', '-n', '4', '--timeout', '60', '--', f'{work}/first'], env=env)
        tap.check('it prints what the README says', (ran.returncode, ran.stdout) == (0, output.group(1)),
                  ran.stdout, ran.stderr)


def main(root, build):
    tap = Tap()
    meson = run([os.path.join(root, 'tools', 'find-meson')]).stdout.strip()
    with tempfile.TemporaryDirectory() as work:
        destdir = os.path.join(work, 'destdir')
        done = run([meson, 'install', '-C', build, '--no-rebuild', '--destdir', destdir])
        tap.check('meson install', done.returncode == 0, done.stdout, done.stderr)
        tree = Installed(destdir)
        for what in ('shared', 'static', 'module', 'command', 'header'):
            tap.check(f'installed: {what}', getattr(tree, what) is not None)
        if tap.failed:
            tap.done()
        tap.check('every public header is installed',
                  set(os.listdir(os.path.join(root, 'include/treering'))) - {'meson.build'}
                  == set(os.listdir(os.path.dirname(tree.header))))

        names = declared(tree.header)
        tap.check('the header declares the API', 'tr_all_reduce' in names and len(names) > 50, str(names))
        extra, lost = exported(tree.shared) - names, names - exported(tree.shared)
        tap.check('the shared library exports what treering.h declares, and nothing else', not extra | lost,
                  f'exported, not declared: {sorted(extra)[:10]}', f'declared, not exported: {sorted(lost)[:10]}')

        version = tree.flags('--modversion')
        tap.check('pkg-config knows the version', re.fullmatch(r'\d+\.\d+\.\d+', ' '.join(version)) is not None,
                  str(version))
        cflags = tree.flags('--cflags')
        tap.check('pkg-config asks for nothing but the folder of the headers',
                  all(flag.startswith('-I') for flag in cflags), str(cflags))
        for source in ('sum.c', 'sum.cpp'):
            for static in (False, True):
                check_program(tap, tree, work, source, static)
        check_static_program(tap, tree, work)
        check_readme(tap, tree, work, root)
    tap.done()


if __name__ == '__main__':
    main(*(os.path.abspath(argument) for argument in sys.argv[1:]))
