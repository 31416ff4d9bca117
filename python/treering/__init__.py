"""Treering: collective communication for arrays in host memory.

    import numpy, treering
    comm = treering.Communicator.from_env()      # started by `treering run`, torchrun, mpirun or srun
    x = numpy.full(4, comm.rank, numpy.float32)
    comm.all_reduce(x)                           # in place; every rank has the sum

`treering.torch` makes it a backend of torch.distributed.
"""
from treering import _core
from treering.arrays import typed
from treering.communicator import Communicator, Work, group, premul_sum, unique_id
from treering.errors import Code, TreeringError
from treering.explain import schedule

__all__ = ['Code', 'Communicator', 'TreeringError', 'Work', 'group', 'premul_sum', 'schedule', 'typed', 'unique_id']
__version__ = '.'.join(map(str, (_core.version() // 10000, _core.version() // 100 % 100, _core.version() % 100)))
