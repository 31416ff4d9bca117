"""The schedule record: what each rank does in an algorithm, as the `treering` command knows it."""
import json
import shutil
import subprocess

from treering.errors import Code, TreeringError


def schedule(operation, algorithm, ranks, *, nbytes=None, root=None, command=None):
    """The steps of every rank, and what is proven of them, as the object that `treering explain --json` prints.

    command: the `treering` program, by default the one on the PATH (it comes with the library, not with the wheel).
    """
    program = command or shutil.which('treering')
    if program is None:
        raise TreeringError('the program `treering` is not on the PATH: install the library, or pass command=',
                            Code.UNSUPPORTED)
    line = [program, 'explain', operation, '--algo', algorithm, '-n', str(ranks), '--json']
    line += ['--bytes', str(nbytes)] if nbytes is not None else []
    line += ['--root', str(root)] if root is not None else []
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TreeringError(done.stderr.strip() or done.stdout.strip(), Code.INVALID_ARGUMENT)
    return json.loads(done.stdout)
