#!/usr/bin/env python3
"""Usage: test_python.py ROOT BUILD

A wheel builds, and it and `pip install .` work in fresh virtual environments; all calls on arrays against NumPy;
torch.distributed over Treering against Gloo. With the system's Python, where NumPy and torch are usually packages.
TAP.
"""
import glob
import os
import random
import shutil
import socket
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = ('meson-python>=0.15', 'meson>=1.1', 'nanobind>=2.0', 'ninja')
DEADLINE_S = 240


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)


def clean_env(**more):
    """Ours, but for what changes where Python looks."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith('PYTHON')}, **more}


def knows(python, module):
    return run([python, '-c', f'import {module}'], env=clean_env()).returncode == 0


def choose_python():
    """The Python with the most of NumPy and torch, ours before others."""
    candidates = [p for p in dict.fromkeys([sys.executable, '/usr/bin/python3', shutil.which('python3')])
                  if p and os.path.exists(p)]
    candidates = [p for p in candidates if run([p, '-c', 'import sys; assert sys.version_info >= (3, 10)'],
                                               env=clean_env()).returncode == 0]
    return max(candidates, key=lambda p: knows(p, 'numpy') + 2 * knows(p, 'torch'))


def make_venv(python, where, system=False):
    done = run([python, '-m', 'venv', '--clear', *(['--system-site-packages'] if system else []), where],
               env=clean_env())
    return os.path.join(where, 'bin', 'python') if done.returncode == 0 else None


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def run_ranks(python, size, script, *args):
    """The script on `size` ranks, as torchrun would start it; (all ended with 0, what they wrote)."""
    shared = clean_env(WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR='127.0.0.1',
                       MASTER_PORT=str(free_port()), OMP_NUM_THREADS='1', TR_TIMEOUT_S='120')
    ranks = [subprocess.Popen([python, script, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**shared, 'RANK': str(r), 'LOCAL_RANK': str(r)}) for r in range(size)]
    texts, ok = [], True
    for rank, process in enumerate(ranks):
        try:
            text = process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0] + f'\nkilled after {DEADLINE_S} s'
        ok = ok and process.returncode == 0
        texts.append(f'--- rank {rank} ended with {process.returncode}\n{text}')
    return ok, '\n'.join(texts)


def pip(python, *args, path=''):
    return run([python, '-m', 'pip', '--disable-pip-version-check', *args],
               env=clean_env(PATH=f'{path}{os.pathsep}{os.environ["PATH"]}' if path else os.environ['PATH']))


def build_wheel(tap, python, root, build, work):
    """The wheel's path, or None. One build folder serves every later `pip install .`."""
    tools = make_venv(python, os.path.join(work, 'tools'))
    if tools is None:
        tap.skip('the wheel builds', f'{python} cannot make virtual environments (python3-venv)')
        return None
    done = pip(tools, 'install', '--quiet', *TOOLS)
    if done.returncode != 0:
        tap.skip('the wheel builds', f'{", ".join(TOOLS)} cannot be had from PyPI: {done.stdout.strip()[-200:]}')
        return None
    wheels = os.path.join(work, 'wheels')
    shutil.rmtree(wheels, ignore_errors=True)
    done = pip(tools, 'wheel', root, '--no-build-isolation', '--no-deps', '-w', wheels, *settings(build),
               path=os.path.dirname(tools))
    if not tap.check('the wheel builds, without a warning', done.returncode == 0, done.stdout[-3000:]):
        return None
    wheel = glob.glob(os.path.join(wheels, 'treering-*.whl'))[0]
    names = zipfile.ZipFile(wheel).namelist()
    foreign = [n for n in names if not n.startswith(('treering/', 'treering-'))]
    tap.check('the wheel has the extension and the package, nothing else',
              any(n.startswith('treering/_core') for n in names) and 'treering/torch.py' in names and not foreign,
              names)
    python_files = {os.path.basename(p) for p in glob.glob(os.path.join(root, 'python', 'treering', '*.py'))}
    tap.none('every file of the package is in the wheel', sorted(python_files - {os.path.basename(n) for n in names}))
    return wheel


def settings(build):
    """As deep in the tree as the build of the tests, so that ccache has the library's objects already."""
    return [f'--config-settings=build-dir={build.rstrip("/")}-python',
            '--config-settings=setup-args=-Dwerror=true']


def check_install(tap, name, python):
    """What a fresh environment has: the package works alone, without NumPy."""
    code = ('import array, treering; c = treering.Communicator.from_env(); a = array.array("d", [2.5]); '
            'c.all_reduce(a); print(treering.__version__, c.size, a[0])')
    done = run([python, '-c', code], env=clean_env(), cwd=os.path.dirname(python))
    tap.check(f'{name}: works in a fresh environment', done.stdout.strip() == '0.1.0 1 2.5', done.stdout)


def check_schedule(tap, python, command):
    """treering.schedule() is what the command says of an algorithm; a wrong name is an error in its words."""
    name = 'treering.schedule()'
    if not os.path.exists(command):
        tap.skip(name, 'the command is not built (libcli11-dev)')
        return
    code = (f'import treering\ns = treering.schedule("all_reduce", "ring", 4, command={command!r})\n'
            'print(s["ranks"], s["steps"], len(s["schedule"]))\n'
            f'try: treering.schedule("all_reduce", "rung", 4, command={command!r})\n'
            'except treering.TreeringError as error: print("ring, tree" in str(error), error.code.name)')
    done = run([python, '-c', code], env=clean_env())
    tap.check(name, done.stdout.splitlines() == ['4 6 4', 'True INVALID_ARGUMENT'], done.stdout)  # 6 = 2 (n-1)


def main():
    root, build = sys.argv[1:3]
    work = os.path.join(build, 'tests', 'python', 'work')
    os.makedirs(work, exist_ok=True)
    tap = Tap()
    seed = str(random.randrange(10**6))
    print(f'# seed {seed}')
    python = choose_python()
    wheel = build_wheel(tap, python, root, build, work)
    if wheel is None:
        tap.done()
    fresh = make_venv(python, os.path.join(work, 'fresh'))
    done = pip(fresh, 'install', '--quiet', '--no-deps', wheel)
    tap.check('pip installs the wheel', done.returncode == 0, done.stdout)
    check_install(tap, 'the wheel', fresh)
    check_schedule(tap, fresh, os.path.join(build, 'src', 'cli', 'treering'))
    tools = os.path.join(work, 'tools', 'bin', 'python')
    done = pip(tools, 'install', root, '--no-build-isolation', '--no-deps', *settings(build),
               path=os.path.dirname(tools))
    tap.check('pip install .', done.returncode == 0, done.stdout[-3000:])
    check_install(tap, 'pip install .', tools)

    system = make_venv(python, os.path.join(work, 'system'), system=True)
    pip(system, 'install', '--quiet', '--no-deps', wheel)
    if not knows(system, 'numpy'):
        tap.skip('arrays', f'{python} has no NumPy (python3-numpy)')
    else:
        for size in (1, 2, 3):
            ok, text = run_ranks(system, size, os.path.join(HERE, 'array_ranks.py'), seed)
            tap.check(f'arrays on {size} ranks', ok and text.count('all well') == size, text)
    if not knows(system, 'torch.distributed'):
        tap.skip('torch.distributed', f'{python} has no torch (python3-torch)')
    else:
        print('# torch', run([system, '-c', 'import torch; print(torch.__version__)'], env=clean_env()).stdout.strip())
        for size in (1, 2, 3):
            ok, text = run_ranks(system, size, os.path.join(HERE, 'torch_ranks.py'), seed)
            tap.check(f'torch.distributed on {size} ranks', ok and text.count('all well') == size, text)
        example = os.path.join(root, 'examples', 'torch_ddp.py')
        ok, text = run_ranks(system, 2, example)
        loss = [float(line.split()[3]) for line in text.splitlines() if line.startswith('step ')]
        tap.check('examples/torch_ddp.py learns', ok and len(loss) == 3 and loss[2] < loss[0] / 2, text)
        again, other = run_ranks(system, 2, example, '--backend', 'gloo')
        theirs = [float(line.split()[3]) for line in other.splitlines() if line.startswith('step ')]
        tap.check('and Gloo has the same losses', again and len(theirs) == len(loss) and
                  all(abs(a - b) <= 2e-3 + 1e-2 * b for a, b in zip(loss, theirs)), text, other)
        with open(example, encoding='utf-8') as file:
            tap.check('the example has less than 60 lines', len(file.readlines()) < 60)
    tap.done()


if __name__ == '__main__':
    main()
