"""Communicator: treering.h for arrays.

Every rank calls the same collectives in the same order. Arrays are contiguous; a `recv` left out means in place. With
`wait=False` a call returns a Work at once, and its arrays belong to the library until Work.wait() has returned. A
communicator is used by one thread at a time, but for abort(). The GIL is released while a call waits.
"""
import contextlib
import threading

from treering import _core
from treering.arrays import BYTES, TYPES, describe

OPS = {'sum': 0, 'prod': 1, 'min': 2, 'max': 3, 'avg': 4}
BITWISE = {'band': _core.bitwise_and, 'bor': _core.bitwise_or, 'bxor': _core.bitwise_xor}
_INTEGERS = ('int', 'uint', 'bool')
_bitwise_ops = {}  # name -> tr_op_t, made when first asked for
_group = threading.local()


class PremulSum:
    """See premul_sum()."""

    def __init__(self, factor):
        self.handle = _core.premul_sum(float(factor))

    def __del__(self):
        with contextlib.suppress(Exception):
            _core.destroy_op(self.handle)


def premul_sum(factor):
    """The operator that multiplies this rank's input by `factor` and sums; floating-point types only."""
    return PremulSum(factor)


def unique_id():
    """Names a communicator to be, and starts its root in this process: bytes to give to the other ranks.

    Whoever has them can join.
    """
    return _core.unique_id()


def operator(op, array):
    """(tr_op_t, name) of what the user calls `op`, for elements of `array`."""
    if isinstance(op, PremulSum):
        return op.handle, 'premul_sum'
    if op in OPS:
        return OPS[op], op
    if op not in BITWISE:
        raise ValueError(f'unknown operator {op!r}: {", ".join([*OPS, *BITWISE])} or treering.premul_sum(factor)')
    if not array.name.startswith(_INTEGERS):
        raise TypeError(f'{op} of {array.name}: bitwise operators are for integers and bool')
    if op not in _bitwise_ops:
        _bitwise_ops[op] = BITWISE[op]()
    return _bitwise_ops[op], op


class Work:
    """A call in flight."""

    def __init__(self, core, result):
        self._core, self._result = core, result

    def wait(self):
        """Waits for the call; the array with the result. Raises TreeringError if the call failed."""
        self._core.wait()
        return self._result

    def done(self):
        """Whether wait() would return at once. Never blocks."""
        return self._core.done()


@contextlib.contextmanager
def group():
    """Calls inside of `with treering.group():` are issued together at its end and progress together.

    The way to send and receive at once. If the body raises, nothing is issued.
    """
    _core.group_start()
    outermost = getattr(_group, 'kept', None) is None
    if outermost:
        _group.kept = []
    try:
        yield
    except BaseException:
        _core.group_poison()
        with contextlib.suppress(Exception):
            _core.group_end()
        raise
    else:
        _core.group_end()
    finally:
        if outermost:
            _group.kept = None


def _same(a, b, what):
    if a.name != b.name:
        raise TypeError(f'{what}: send has type {a.name}, recv {b.name}')


def _size(array, count, what, why):
    if array.count != count:
        raise ValueError(f'{what} has {array.count} elements, not {count}: {why}')


class Communicator:
    """A rank of a group of processes. Use it as a context manager, or close() it."""

    def __init__(self, unique_id, size, rank):
        """Collective: `size` processes with the same id and distinct ranks."""
        self._core = _core.init_rank(size, unique_id, rank)
        self._learn()

    def _learn(self):
        self.size, self.rank = self._core.size, self._core.rank

    @classmethod
    def _of(cls, core):
        comm = cls.__new__(cls)
        comm._core = core
        comm._learn()
        return comm

    @classmethod
    def from_env(cls):
        """The ranks that `treering run`, torchrun, mpirun or srun started; alone if none did."""
        return cls._of(_core.init_env())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f'<treering.Communicator rank {self.rank} of {self.size}>'

    def close(self):
        """Waits for this rank's calls and frees the communicator. Local; closing twice does nothing."""
        self._core.close()

    def abort(self):
        """Makes every call, on every rank, fail soon with Code.ABORTED. Any thread; never blocks."""
        self._core.abort()

    def split(self, color, key=0):
        """Collective: ranks of the same colour (>= 0), ordered by (key, rank). None for a colour of None."""
        core = self._core.split(-1 if color is None else color, key)
        return None if core is None else Communicator._of(core)

    def explain(self):
        """Text: transports, memory, and for each collective the algorithm per size and why."""
        return self._core.explain()

    def set_algorithm(self, collective, algorithm):
        """Forces an algorithm by name; 'auto' undoes it. All ranks set the same."""
        self._core.set_algorithm(collective, algorithm)

    def set_ordered(self, ordered=True):
        """Reductions fold in rank order: their bits depend on nothing else. All ranks set the same."""
        self._core.set_option(0, int(ordered))

    def set_timeout(self, seconds):
        """The deadline of every wait. All ranks set the same."""
        self._core.set_option(1, max(1, int(seconds * 1000)))

    # ---- calls ------------------------------------------------------------------------------------------------

    def _call(self, wait, result, arrays, call, *args):
        """Issues one call. arrays: what must live as long as it."""
        kept = getattr(_group, 'kept', None)
        if kept is not None:
            kept.append(arrays)
        if wait:
            call(*args, None)
            return result
        work = _core.Work(arrays)
        call(*args, work)
        return Work(work, result)

    def _reduction(self, call, send, recv, op, wait, *root):
        out = send if recv is None else recv
        s = describe(send, 'send', written=recv is None)
        r = s if recv is None else describe(recv, 'recv', written=True)
        if r is not s:
            _same(s, r, 'reduction')
            _size(r, s.count, 'recv', 'as many as send')
        code, name = operator(op, s)
        count, kind = s.reduced(name)
        return self._call(wait, out, (s, r, op), call, s.address, r.address, count, kind, code, *root)

    def all_reduce(self, send, recv=None, op='sum', *, wait=True):
        """recv[i] = op over ranks of send[i]."""
        return self._reduction(self._core.all_reduce, send, recv, op, wait)

    def reduce(self, send, recv=None, op='sum', root=0, *, wait=True):
        """As all_reduce, with the result on root only; recv is ignored elsewhere."""
        if self.rank != root:
            s = describe(send, 'send')
            code, name = operator(op, s)
            count, kind = s.reduced(name)
            return self._call(wait, None, (s, op), self._core.reduce, s.address, 0, count, kind, code, root)
        return self._reduction(self._core.reduce, send, recv, op, wait, root)

    def scan(self, send, recv=None, op='sum', *, wait=True):
        """recv = fold of ranks 0..rank."""
        return self._reduction(self._core.scan, send, recv, op, wait)

    def exscan(self, send, recv=None, op='sum', *, wait=True):
        """recv = fold of ranks 0..rank-1; rank 0's recv is untouched."""
        return self._reduction(self._core.exscan, send, recv, op, wait)

    def broadcast(self, array, root=0, *, wait=True):
        """root's array to every rank's."""
        a = describe(array, 'array', written=self.rank != root)
        count, kind = a.moved()
        return self._call(wait, array, a, self._core.broadcast, a.address, a.address, count, kind, root)

    def all_gather(self, send, recv, counts=None, *, wait=True):
        """recv = every rank's send, one after another. counts: elements per rank, where they differ."""
        s, r = describe(send, 'send'), describe(recv, 'recv', written=True)
        _same(s, r, 'all_gather')
        if counts is None:
            _size(r, s.count * self.size, 'recv', 'send times the number of ranks')
            count, kind = s.moved()
            return self._call(wait, recv, (s, r), self._core.all_gather, s.address, r.address, count, kind)
        self._check_counts(counts, r, 'recv')
        _size(s, counts[self.rank], 'send', 'counts[rank]')
        return self._call(wait, recv, (s, r), self._core.all_gather_v, s.address, r.address,
                          *_moved_counts(s, counts))

    def reduce_scatter(self, send, recv, op='sum', counts=None, *, wait=True):
        """Rank r gets the reduction of part r of send. counts: elements per rank, where they differ."""
        s, r = describe(send, 'send'), describe(recv, 'recv', written=True)
        _same(s, r, 'reduce_scatter')
        code, name = operator(op, s)
        if counts is None:
            _size(s, r.count * self.size, 'send', 'recv times the number of ranks')
            count, kind = r.reduced(name)
            return self._call(wait, recv, (s, r, op), self._core.reduce_scatter, s.address, r.address, count, kind,
                              code)
        self._check_counts(counts, s, 'send')
        _size(r, counts[self.rank], 'recv', 'counts[rank]')
        count, kind = s.reduced(name)
        factor = count // s.count if s.count else 1
        return self._call(wait, recv, (s, r, op), self._core.reduce_scatter_v, s.address, r.address,
                          [c * factor for c in counts], kind, code)

    def gather(self, send, recv=None, root=0, counts=None, *, wait=True):
        """root's recv = every rank's send, one after another. counts: read on root; None there means equal parts.

        Either all ranks pass counts (others than root: anything but None) or none does.
        """
        s = describe(send, 'send')
        r = self._at_root(recv, root, 'recv', written=True)
        count, kind = s.moved()
        if r is not None:
            _same(s, r, 'gather')
        address = r.address if r is not None else 0
        if counts is None:
            if r is not None:
                _size(r, s.count * self.size, 'recv', 'send times the number of ranks')
            return self._call(wait, recv, (s, r), self._core.gather, s.address, address, count, kind, root)
        scaled = []
        if r is not None:
            self._check_counts(counts, r, 'recv')
            scaled = _moved_counts(s, counts)[0]
        return self._call(wait, recv, (s, r), self._core.gather_v, s.address, count, address, scaled, kind, root)

    def scatter(self, send, recv, root=0, counts=None, *, wait=True):
        """Part r of root's send to rank r. counts: as in gather."""
        r = describe(recv, 'recv', written=True)
        s = self._at_root(send, root, 'send')
        count, kind = r.moved()
        if s is not None:
            _same(s, r, 'scatter')
        address = s.address if s is not None else 0
        if counts is None:
            if s is not None:
                _size(s, r.count * self.size, 'send', 'recv times the number of ranks')
            return self._call(wait, recv, (s, r), self._core.scatter, address, r.address, count, kind, root)
        scaled = []
        if s is not None:
            self._check_counts(counts, s, 'send')
            scaled = _moved_counts(s, counts)[0]
        return self._call(wait, recv, (s, r), self._core.scatter_v, address, scaled, r.address, count, kind, root)

    def all_to_all(self, send, recv, sendcounts=None, recvcounts=None, *, wait=True):
        """Part q of send goes to rank q. With counts: elements to and from each rank."""
        s, r = describe(send, 'send'), describe(recv, 'recv', written=True)
        _same(s, r, 'all_to_all')
        if (sendcounts is None) != (recvcounts is None):
            raise ValueError('all_to_all: give both sendcounts and recvcounts, or neither')
        if sendcounts is None:
            _size(r, s.count, 'recv', 'as many as send')
            if s.count % self.size:
                raise ValueError(f'send has {s.count} elements, which {self.size} ranks cannot share evenly: '
                                 'pass sendcounts and recvcounts')
            count, kind = s.moved()
            return self._call(wait, recv, (s, r), self._core.all_to_all, s.address, r.address, count // self.size,
                              kind)
        self._check_counts(sendcounts, s, 'send')
        self._check_counts(recvcounts, r, 'recv')
        to, kind = _moved_counts(s, sendcounts)
        return self._call(wait, recv, (s, r), self._core.all_to_all_v, s.address, to, r.address,
                          _moved_counts(r, recvcounts)[0], kind)

    def barrier(self, *, wait=True):
        """No rank leaves before all have come."""
        return self._call(wait, None, None, self._core.barrier)

    def send(self, array, peer, *, wait=True):
        """To rank `peer`; matched with its recv in issue order."""
        a = describe(array, 'array')
        count, kind = a.moved()
        return self._call(wait, array, a, self._core.send, a.address, count, kind, peer)

    def recv(self, array, peer, *, wait=True):
        """From rank `peer`, of the same type and size."""
        a = describe(array, 'array', written=True)
        count, kind = a.moved()
        return self._call(wait, array, a, self._core.recv, a.address, count, kind, peer)

    # ---- checks -----------------------------------------------------------------------------------------------

    def _at_root(self, array, root, what, written=False):
        if self.rank != root:
            return None
        if array is None:
            raise ValueError(f'{what} is None on the root (rank {root})')
        return describe(array, what, written)

    def _check_counts(self, counts, array, what):
        if len(counts) != self.size or any(c < 0 for c in counts):
            raise ValueError(f'counts for {what}: one number >= 0 for each of the {self.size} ranks, not {counts}')
        _size(array, sum(counts), what, 'the sum of the counts')


def _moved_counts(array, counts):
    """(counts, type) of a call that only moves."""
    if array.name in TYPES:
        return [int(c) for c in counts], TYPES[array.name]
    return [int(c) * array.itemsize for c in counts], BYTES
