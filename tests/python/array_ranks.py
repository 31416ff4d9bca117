"""One rank of test_python.py: every call on NumPy arrays, buffers and DLPack. Ends with 0 or a traceback.

Usage: array_ranks.py SEED, with the environment of torchrun.
"""
import array
import sys
import threading
import time

import numpy as np

import treering
from treering import Code, TreeringError

SEED = int(sys.argv[1])
INTEGERS = ('int8', 'uint8', 'int32', 'uint32', 'int64', 'uint64')
FLOATS = ('float16', 'float32', 'float64')


def data(name, count, rank, salt=0):
    """What rank `rank` has: small whole numbers, so that sums of floats are exact in any order."""
    rng = np.random.default_rng([SEED, rank, count, salt])
    return rng.integers(0, 5, count).astype(name)


def all_data(name, count, size, salt=0):
    return [data(name, count, r, salt) for r in range(size)]


def same(got, want, what):
    assert got.dtype == want.dtype and np.array_equal(got, want), f'{what}: {got!r} instead of {want!r}'


def refused(kind, words, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert words in str(error), f'{words!r} is not in {error}'
        return
    raise AssertionError(f'{call} was not refused ({words})')


NUMPY_OPS = {'sum': np.add, 'prod': np.multiply, 'min': np.minimum, 'max': np.maximum, 'band': np.bitwise_and,
             'bor': np.bitwise_or, 'bxor': np.bitwise_xor}


def fold(op, arrays):
    out = arrays[0].copy()
    for a in arrays[1:]:
        out = NUMPY_OPS[op](out, a).astype(out.dtype)
    return out


def reductions(comm):
    for name in INTEGERS + FLOATS:
        for op in [o for o in NUMPY_OPS if name in INTEGERS or not o.startswith('b')]:
            for count in (0, 1, 7, 1000):
                inputs = all_data(name, count, comm.size)
                mine = inputs[comm.rank]
                want = fold(op, inputs)
                got = np.full(count, 99, name)
                assert comm.all_reduce(mine, got, op) is got
                same(got, want, f'all_reduce {op} {name}')
                x = mine.copy()
                comm.all_reduce(x, op=op)
                same(x, want, f'in place {op} {name}')
                root = comm.size - 1
                got = np.full(count, 99, name)
                comm.reduce(mine, got, op, root)
                same(got, want if comm.rank == root else np.full(count, 99, name), f'reduce {op} {name}')
                got = comm.scan(mine, np.zeros(count, name), op)
                same(got, fold(op, inputs[:comm.rank + 1]), f'scan {op} {name}')
                got = comm.exscan(mine, np.full(count, 99, name), op)
                same(got, fold(op, inputs[:comm.rank]) if comm.rank else np.full(count, 99, name), f'exscan {name}')
    x = np.array([comm.rank == 0, True, False])
    comm.all_reduce(x, op='min')
    same(x, np.array([comm.size == 1, True, False]), 'bool')
    x = np.array([1 + 2j, comm.rank], 'complex64')
    comm.all_reduce(x)
    same(x, np.array([comm.size * (1 + 2j), sum(range(comm.size))], 'complex64'), 'complex')
    x = np.array([2.0, 4.0]) * comm.size
    comm.all_reduce(x, op=treering.premul_sum(0.5))
    same(x, np.array([1.0, 2.0]) * comm.size**2, 'premul_sum')
    bits = np.full(5, 0x3f80, np.uint16)  # 1.0
    comm.all_reduce(treering.typed(bits, 'bfloat16'))
    same((bits.astype(np.uint32) << 16).view(np.float32), np.full(5, comm.size, np.float32), 'bfloat16')
    parts = all_data('float32', 6 * comm.size, comm.size, 1)
    got = comm.reduce_scatter(parts[comm.rank], np.zeros(6, np.float32))
    same(got, fold('sum', parts)[6 * comm.rank:][:6], 'reduce_scatter')
    counts = [3 * r for r in range(comm.size)]
    parts = all_data('int32', sum(counts), comm.size, 2)
    got = comm.reduce_scatter(parts[comm.rank], np.zeros(counts[comm.rank], np.int32), 'max', counts)
    start = sum(counts[:comm.rank])
    same(got, fold('max', parts)[start:start + counts[comm.rank]], 'reduce_scatter, uneven')


def moves(comm):
    n, me = comm.size, comm.rank
    for name in INTEGERS + FLOATS + ('int16', 'bool', 'complex128'):
        inputs = all_data('int32', 5, n, 3)
        inputs = [x.astype(name) for x in inputs]
        got = inputs[me].copy()
        comm.broadcast(got, n - 1)
        same(got, inputs[n - 1], f'broadcast {name}')
        same(comm.all_gather(inputs[me], np.empty(5 * n, name)), np.concatenate(inputs), f'all_gather {name}')
        got = comm.gather(inputs[me], np.empty(5 * n, name) if me == 0 else None)
        assert me != 0 or np.array_equal(got, np.concatenate(inputs)), f'gather {name}'
        got = comm.scatter(np.concatenate(inputs) if me == 0 else None, np.empty(5, name))
        same(got, inputs[me], f'scatter {name}')
        counts = list(range(n))
        got = comm.all_gather(inputs[me][:1].repeat(me), np.empty(sum(counts), name), counts)
        same(got, np.concatenate([inputs[r][:1].repeat(r) for r in range(n)]), f'all_gather, uneven, {name}')
        got = comm.gather(inputs[me][:1].repeat(me), np.empty(sum(counts), name), 0, counts)
        assert me or np.array_equal(got, np.concatenate([inputs[r][:1].repeat(r) for r in range(n)])), name
        parts = np.concatenate([inputs[0][:1].repeat(r) for r in range(n)])
        got = comm.scatter(parts, np.empty(me, name), 0, counts)
        same(got, inputs[0][:1].repeat(me), f'scatter, uneven, {name}')
        send = np.concatenate([inputs[me][:1].repeat(q + 1) for q in range(n)])
        got = comm.all_to_all(send, np.empty(n * (me + 1), name), [q + 1 for q in range(n)], [me + 1] * n)
        same(got, np.concatenate([inputs[r][:1].repeat(me + 1) for r in range(n)]), f'all_to_all, uneven, {name}')
    send = np.arange(3 * n) + 100 * me
    same(comm.all_to_all(send, np.empty_like(send)), np.concatenate([np.arange(3 * me, 3 * me + 3) + 100 * r
                                                                     for r in range(n)]), 'all_to_all')
    ring_to, ring_from = (me + 1) % n, (me - 1) % n
    got = np.empty(4)
    with treering.group():
        comm.send(np.full(4, float(me)), ring_to)
        comm.recv(got, ring_from)
    same(got, np.full(4, float(ring_from)), 'send and recv in a group')
    comm.barrier()


def buffers(comm):
    a = array.array('d', [1.0, 2.0])
    comm.all_reduce(a)
    assert list(a) == [comm.size, 2 * comm.size]
    b = bytearray(b'\x01' * 9)
    comm.all_reduce(memoryview(b)[3:6])
    assert bytes(b) == b'\x01' * 3 + bytes([comm.size]) * 3 + b'\x01' * 3
    long = array.array('l', [comm.rank])
    comm.all_reduce(long, op='max')
    assert long[0] == comm.size - 1

    class Exported:  # knows DLPack and nothing else
        def __init__(self, inner):
            self.__dlpack__, self.inner = inner.__dlpack__, inner

        def __dlpack__(self, **options):
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

    exported = Exported.__new__(Exported)
    exported.inner = np.arange(4, dtype=np.int32)
    got = np.empty(4, np.int32)
    comm.all_reduce(exported, got)
    same(got, np.arange(4, dtype=np.int32) * comm.size, 'DLPack')
    refused(ValueError, 'DLPack does not say', comm.all_reduce, exported)


def asynchronous(comm):
    arrays = [np.full(1000, i + comm.rank, np.float64) for i in range(50)]
    works = [comm.all_reduce(a, wait=False) for a in arrays]
    for i, work in reversed(list(enumerate(works))):
        result = work.wait()
        assert result is arrays[i] and work.done()
        want = sum(i + r for r in range(comm.size))
        assert (result == want).all(), (i, result[0], want)
    for _ in range(100):  # nobody keeps the arrays or the work
        comm.all_reduce(np.ones(5000), wait=False)
    comm.barrier()
    half = comm.split(comm.rank % 2, -comm.rank)
    assert half.size == len(range(comm.rank % 2, comm.size, 2))
    x = np.array([comm.rank])
    half.all_reduce(x)
    assert x[0] == sum(range(comm.rank % 2, comm.size, 2))
    half.close()
    none = comm.split(0 if comm.rank == 0 else None)
    assert (none is None) == (comm.rank != 0)
    assert f'{comm.size} ranks' in comm.explain() or 'all_reduce' in comm.explain()
    comm.set_algorithm('all_reduce', 'ring' if comm.size > 1 else 'local')
    comm.set_ordered(True)
    comm.set_ordered(False)
    comm.set_algorithm('all_reduce', 'auto')


def refusals(comm):
    x = np.zeros(4, np.float32)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    refused(ValueError, 'not contiguous', comm.all_reduce, np.zeros((4, 4))[:, 1])
    refused(ValueError, 'read-only', comm.all_reduce, frozen)
    refused(ValueError, 'read-only', comm.all_reduce, b'abcd')
    refused(TypeError, 'send has type float32, recv float64', comm.all_reduce, x, np.zeros(4))
    refused(ValueError, 'recv has 3 elements, not 4', comm.all_reduce, x, np.zeros(3, np.float32))
    refused(TypeError, 'int16 cannot be reduced', comm.all_reduce, np.zeros(3, np.int16))
    refused(TypeError, 'sum of bool is not offered', comm.all_reduce, np.zeros(3, bool))
    refused(TypeError, 'bitwise operators are for integers', comm.all_reduce, x, op='bxor')
    refused(ValueError, "unknown operator 'plus'", comm.all_reduce, x, op='plus')
    refused(TypeError, 'is a list', comm.all_reduce, [1, 2])
    refused(TypeError, 'no meaning on another rank', comm.broadcast, np.array([object()]))
    refused(TypeError, 'byte order', comm.all_reduce, np.zeros(3, '>f4'))
    refused(ValueError, 'the sum of the counts', comm.all_gather, x, np.zeros(9, np.float32), [4] * comm.size)
    refused(ValueError, 'one number >= 0 for each', comm.all_gather, x, x, [4] * (comm.size + 1))
    refused(TypeError, 'cannot be bfloat16', comm.all_reduce, treering.typed(x, 'bfloat16'))
    refused(TypeError, "unknown type 'float128'", treering.typed, x, 'float128')
    refused(TreeringError, 'bytes', treering.Communicator, b'short', 1, 0)
    try:
        comm.broadcast(x, comm.size + 3)
    except TreeringError as error:
        assert error.code == Code.INVALID_ARGUMENT, error
    else:
        raise AssertionError('a wrong root was accepted')
    try:
        with treering.group():
            comm.barrier()
            raise KeyError('body')
    except KeyError:
        pass
    comm.all_reduce(x)  # nothing of all that has changed anything


def gil(comm):
    """While a rank waits for another, its other threads run."""
    ticks = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    if comm.rank == 0:
        while ticks[0] < 20:  # the others wait in a barrier meanwhile
            time.sleep(0.01)
        comm.barrier()
    else:
        comm.barrier()
        assert ticks[0] > 0
    stop.set()
    thread.join()


def failures(comm):
    """Last: the communicators fail. Ranks differ; one aborts; a closed one is recognised."""
    if comm.size > 1:
        second = comm.split(0)
        second.set_timeout(60)
        try:
            second.all_reduce(np.zeros(3 + (comm.rank == 0), np.float32))
        except TreeringError as error:
            assert error.code in (Code.MISMATCH, Code.REMOTE_ERROR) and 'all_reduce' in str(error), error
        else:
            raise AssertionError('different lengths were not noticed')
        third = comm.split(0)
        if comm.rank == 0:
            third.abort()
        try:
            work = third.all_reduce(np.zeros(3), wait=False)
            work.wait()
        except TreeringError as error:
            assert error.code == Code.ABORTED, error
        else:
            raise AssertionError('an aborted call succeeded')
    comm.close()
    comm.close()
    refused(TreeringError, 'closed', comm.barrier)


def main():
    with treering.Communicator.from_env() as comm:
        for step in (reductions, moves, buffers, asynchronous, refusals, gil, failures):
            try:
                step(comm)
            except BaseException:
                print(f'{step.__name__}, rank {comm.rank} of {comm.size}, seed {SEED}', file=sys.stderr, flush=True)
                raise
    print('all well')


main()
