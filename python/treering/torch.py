"""Treering as a backend of torch.distributed, for tensors in host memory:

    import torch.distributed as dist
    import treering.torch
    dist.init_process_group('treering')          # or new_group(backend='treering') beside another backend

Written in Python over c10d's ProcessGroup, so that one wheel serves every version of torch. The unique id of each group
goes through the store that torch was given. Calls run in the background from when they are made; tensors must be
contiguous. Tags other than 0 and receives from any source are refused: Treering matches messages in their order.
"""
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from treering import _core
from treering.arrays import describe
from treering.communicator import operator
from treering.errors import Code, TreeringError
from treering.torch_work import Done, Work

__all__ = ['ProcessGroupTreering', 'Work', 'monitored_barrier']

_OPS = {'SUM': 'sum', 'PRODUCT': 'prod', 'MIN': 'min', 'MAX': 'max', 'AVG': 'avg', 'BAND': 'band', 'BOR': 'bor',
        'BXOR': 'bxor'}
# On bool, sum means "any" and product "all", as in Gloo.
_BOOL_OPS = {'sum': 'max', 'prod': 'min', 'avg': 'avg'}


def _op_names():
    """ReduceOp -> our word. (ReduceOp.SUM is one in torch 1, and in torch 2 something that only a ReduceOp equals.)"""
    values = {name: getattr(dist.ReduceOp, torch_name) for torch_name, name in _OPS.items()}
    if type(dist.ReduceOp.SUM) is not dist.ReduceOp:  # isinstance() says yes to both
        values = {name: dist.ReduceOp(value) for name, value in values.items()}
    return {value: name for name, value in values.items()}


_NAMES = _op_names()


def _op_name(op):
    name = _NAMES.get(op)
    if name is None:
        raise TreeringError(f'{op}: the operators are {", ".join(_OPS)}', Code.UNSUPPORTED)
    return name


def _waits_at_once(opts):
    """Whether the caller waits for the call before doing anything else: it then runs on the caller's thread.

    Newer versions of torch say so in the options; in older ones it is the argument of torch.distributed's function.
    """
    asked = getattr(opts, 'asyncOp', None)
    if asked is not None:
        return not asked
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get('__name__') == __name__:
        frame = frame.f_back
    return (frame is not None and frame.f_globals.get('__name__') == 'torch.distributed.distributed_c10d' and
            frame.f_locals.get('async_op') is False)


def _one(tensors, what):
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f'{what}: one tensor per call and rank, not {len(tensors)}')
    return tensors[0]


def _same_numel(tensors, numel, what):
    for i, tensor in enumerate(tensors):
        if tensor.numel() != numel:
            raise ValueError(f'{what}[{i}] has {tensor.numel()} elements, but {numel} are needed')


def _consecutive(tensors):
    """The flat tensor that these are the parts of, or None if they do not lie one after another."""
    first = tensors[0]
    end = first.data_ptr()
    for t in tensors:
        if t.data_ptr() != end or not t.is_contiguous():
            return None
        end += t.numel() * t.element_size()
    total = sum(t.numel() for t in tensors)
    if first.storage_offset() + total > _storage_elements(first):
        return None
    return first.new_empty(0).set_(_storage(first), first.storage_offset(), (total,))


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, 'untyped_storage') else tensor.storage()


def _storage_elements(tensor):
    return _storage(tensor).nbytes() // tensor.element_size()


class ProcessGroupTreering(dist.ProcessGroup):
    """One communicator. Every call is issued at once and returns a Work."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._lock = threading.Lock()  # a communicator takes one caller at a time; calls return soon
        self._open = []  # Works whose Python half must live until they are done
        key = 'treering/unique_id'
        if rank == 0:
            unique_id = _core.unique_id()
            store.set(key, unique_id.hex())
        else:
            store.wait([key], timeout)
            unique_id = bytes.fromhex(bytes(store.get(key)).decode())
        self._comm = _core.init_rank(size, unique_id, rank)
        self.set_timeout(timeout)

    # ---- what it is ---------------------------------------------------------------------------------------------

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return 'treering'

    getBackendName = name
    supports_coalescing = False  # of torch's kind: it has batch_isend_irecv issue one call after another

    def _get_backend(self, device):
        """What newer versions of torch ask: which backend serves a device. There is one, and it is this."""
        return self

    def explain(self):
        """What the library decided for this group, and why: text."""
        with self._lock:
            return self._comm.explain()

    def abort(self):
        """Makes every call of this group, on every rank, fail soon. Any thread; never blocks."""
        self._comm.abort()

    def shutdown(self):
        """Waits for this rank's calls and frees the communicator."""
        with self._lock:
            self._comm.close()

    # ---- issuing ------------------------------------------------------------------------------------------------

    def _issue(self, opts, result, kept, call, *args, finish=None):
        if _waits_at_once(opts):
            with self._lock:
                call(*args, None)
            return Work(Done(), result, finish)
        core = _core.Work(kept)
        with self._lock:
            call(*args, core)
        return self._work(core, result, finish)

    def _work(self, core, result, finish=None):
        work = Work(core, result, finish)
        opened = self._open
        if len(opened) >= 16:
            opened = self._open = [w for w in opened if not w.is_completed()]
        opened.append(work)
        return work

    def _issue_group(self, result, kept, calls, finish=None):
        """Several calls as one: all or none is issued."""
        core = _core.Work(kept)
        if not calls:
            return self._work(Done(), result, finish)
        with self._lock:
            _core.group_start()
            try:
                for call, args in calls:
                    call(*args, core)
            finally:
                _core.group_end()
        return self._work(core, result, finish)

    def _reduction(self, tensor, op, what='tensor', out=None):
        """(address, count, type, operator, arrays) for a reduction of this tensor."""
        array = describe(tensor, what)
        name = _op_name(op)
        if array.name == 'bool':
            name = _BOOL_OPS.get(name, name)
        code, name = operator(name, array)
        count, kind = array.reduced(name)
        return array.address, count, kind, code

    # ---- reductions ---------------------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None):
        tensor = _one(tensors, 'allreduce')
        op = opts.reduceOp if hasattr(opts, 'reduceOp') else (opts if opts is not None else dist.ReduceOp.SUM)
        address, count, kind, code = self._reduction(tensor, op)
        return self._issue(opts, [tensor], tensor, self._comm.all_reduce, address, address, count, kind, code)

    def allreduce_coalesced(self, tensors, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        calls = []
        for tensor in tensors:
            address, count, kind, code = self._reduction(tensor, op)
            calls.append((self._comm.all_reduce, (address, address, count, kind, code)))
        return self._issue_group(list(tensors), tensors, calls)

    def reduce(self, tensors, opts):
        tensor = _one(tensors, 'reduce')
        address, count, kind, code = self._reduction(tensor, opts.reduceOp)
        target = address if self._rank == opts.rootRank else 0
        return self._issue(opts, [tensor], tensor, self._comm.reduce, address, target, count, kind, code, opts.rootRank)

    def reduce_scatter(self, outputs, inputs, opts=None):
        output = _one(outputs, 'reduce_scatter')
        parts = inputs[0]
        self._part_per_rank(parts, 'input_list')
        _same_numel(parts, output.numel(), 'input_list')
        flat = _consecutive(parts)
        flat = torch.cat([p.reshape(-1) for p in parts]) if flat is None else flat
        return self._reduce_scatter_base(output, flat, opts)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        self._same_type(output, tensor)
        _same_numel([tensor], output.numel() * self._size, 'input')
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        target, count, kind, code = self._reduction(output, op, 'output')
        source = self._reduction(tensor, op, 'input')[0]
        return self._issue(opts, [output], (output, tensor), self._comm.reduce_scatter, source, target, count, kind,
                           code)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._all([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    # ---- moves --------------------------------------------------------------------------------------------------

    def broadcast(self, tensors, opts):
        tensor = _one(tensors, 'broadcast')
        array = describe(tensor, 'tensor')
        count, kind = array.moved()
        return self._issue(opts, [tensor], tensor, self._comm.broadcast, array.address, array.address, count, kind,
                           opts.rootRank)

    def allgather(self, outputs, inputs, opts=None):
        tensor = _one(inputs, 'all_gather')
        parts = outputs[0]
        self._part_per_rank(parts, 'tensor_list')
        _same_numel(parts, tensor.numel(), 'tensor_list')
        self._same_type(parts[0], tensor)
        flat = _consecutive(parts)
        finish = None
        if flat is None:
            flat = tensor.new_empty(tensor.numel() * self._size)
            finish = self._spread(flat, parts)
        return self._allgather_base(flat, tensor, result=[parts], finish=finish)

    def _allgather_base(self, output, tensor, opts=None, *, result=None, finish=None):
        self._same_type(output, tensor)
        _same_numel([output], tensor.numel() * self._size, 'output')
        source, target = describe(tensor, 'input'), describe(output, 'output')
        count, kind = source.moved()
        return self._issue(opts, [output] if result is None else result, (output, tensor), self._comm.all_gather,
                           source.address, target.address, count, kind, finish=finish)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        # output_lists[rank][i] is input i of that rank.
        works = [self.allgather([[ranks[i] for ranks in output_lists]], [tensor]) for i, tensor in enumerate(inputs)]
        return self._all(works, output_lists)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._all([self._allgather_base(o, i) for o, i in zip(outputs, inputs)], list(outputs))

    def gather(self, outputs, inputs, opts):
        tensor = _one(inputs, 'gather')
        source = describe(tensor, 'tensor')
        count, kind = source.moved()
        target, kept, finish, result = 0, tensor, None, []
        if self._rank == opts.rootRank:
            parts = outputs[0]
            self._part_per_rank(parts, 'gather_list')
            _same_numel(parts, tensor.numel(), 'gather_list')
            self._same_type(parts[0], tensor)
            flat = tensor.new_empty(tensor.numel() * self._size)
            target, kept, finish, result = flat.data_ptr(), (tensor, flat), self._spread(flat, parts), [parts]
        return self._issue(opts, result, kept, self._comm.gather, source.address, target, count, kind, opts.rootRank,
                           finish=finish)

    def scatter(self, outputs, inputs, opts):
        output = _one(outputs, 'scatter')
        target = describe(output, 'tensor')
        count, kind = target.moved()
        source, kept = 0, output
        if self._rank == opts.rootRank:
            parts = inputs[0]
            self._part_per_rank(parts, 'scatter_list')
            _same_numel(parts, output.numel(), 'scatter_list')
            self._same_type(parts[0], output)
            flat = torch.cat([p.reshape(-1) for p in parts])
            source, kept = flat.data_ptr(), (output, flat)
        return self._issue(opts, [output], kept, self._comm.scatter, source, target.address, count, kind, opts.rootRank)

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        self._same_type(output, tensor)
        source, target = describe(tensor, 'input'), describe(output, 'output')
        to = self._split_elements(tensor, input_splits, 'input')
        fro = self._split_elements(output, output_splits, 'output')
        scale = source.moved()[0] // source.count if source.count else (target.moved()[0] // target.count
                                                                       if target.count else 1)
        kind = source.moved()[1]
        return self._issue(opts, [output], (output, tensor), self._comm.all_to_all_v, source.address,
                           [n * scale for n in to], target.address, [n * scale for n in fro], kind)

    def alltoall(self, outputs, inputs, opts=None):
        self._part_per_rank(inputs, 'input_tensor_list')
        self._part_per_rank(outputs, 'output_tensor_list')
        self._same_type(outputs[0], inputs[0])
        source = torch.cat([t.reshape(-1) for t in inputs])
        target = outputs[0].new_empty(sum(t.numel() for t in outputs))
        work = self.alltoall_base(target, source, [t.numel() for t in outputs], [t.numel() for t in inputs])
        work._result, work._finish = list(outputs), self._spread(target, outputs)
        return work

    def send(self, tensors, peer, tag=0):
        return self._message(self._comm.send, tensors, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._message(self._comm.recv, tensors, peer, tag)

    def _message(self, call, tensors, peer, tag):
        if tag:
            raise TreeringError(f'tag {tag}: messages have no tags here, they are matched in their order',
                                Code.UNSUPPORTED)
        tensor = _one(tensors, 'send or recv')
        array = describe(tensor, 'tensor')
        count, kind = array.moved()
        return self._issue(None, [tensor], tensor, call, array.address, count, kind, peer)

    def recv_anysource(self, tensors, tag=0):
        raise TreeringError('receiving from any source is not offered: name the source (src=)', Code.UNSUPPORTED)

    # ---- barriers -----------------------------------------------------------------------------------------------

    def barrier(self, opts=None):
        return self._issue(opts, [], None, self._comm.barrier)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier whose error names the ranks that did not come. timeout: at most the group's."""
        work = self.barrier()
        work.wait(timeout if isinstance(timeout, timedelta) else None)

    def gather_single(self, output, tensor, opts=None):
        flat = [list(output.view(-1).chunk(self._size))] if self._rank == opts.rootRank else []
        return self.gather(flat, [tensor], opts)

    def set_timeout(self, timeout):
        """Of all calls from now on; all ranks set the same."""
        self.timeout = timeout
        with self._lock:
            self._comm.set_option(1, max(1, int(timeout.total_seconds() * 1000)))

    # What newer versions of torch call the same.
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- checks and helpers -------------------------------------------------------------------------------------

    def _part_per_rank(self, parts, what):
        if len(parts) != self._size:
            raise ValueError(f'{what} has {len(parts)} tensors for {self._size} ranks')

    @staticmethod
    def _same_type(a, b):
        if a.dtype != b.dtype:
            raise TypeError(f'the tensors of a call differ in type: {a.dtype} and {b.dtype}')

    @staticmethod
    def _spread(flat, parts):
        def finish():
            at = 0
            for part in parts:
                part.copy_(flat[at:at + part.numel()].view(part.shape))
                at += part.numel()
        return finish

    def _split_elements(self, tensor, splits, what):
        if splits and len(splits) != self._size:
            raise ValueError(f'{what} splits: {len(splits)} numbers for {self._size} ranks')
        rows = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise ValueError(f'{what} has {rows} rows, which {self._size} ranks cannot share evenly: pass splits')
            splits = [rows // self._size] * self._size
        if sum(splits) != rows:
            raise ValueError(f'{what} splits {list(splits)} do not add up to the {rows} rows of the tensor')
        row = tensor.numel() // rows if rows else 0
        return [s * row for s in splits]

    def _all(self, works, result):
        """The Work of several that were issued one after another."""
        return self._work(_AllOf(works), result)


class _AllOf:
    def __init__(self, works):
        self._works = works

    def wait(self):
        for work in self._works:
            work.wait()

    def done(self):
        return all(work.is_completed() for work in self._works)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which torch itself offers for Gloo only."""
    pg = group if group is not None else dist.distributed_c10d._get_default_group()
    pg.monitored_barrier(timeout, wait_all_ranks)


def _create(store, rank, size, timeout):
    return ProcessGroupTreering(store, rank, size, timeout)


def _register():
    if hasattr(dist.Backend, 'TREERING'):
        return
    try:
        dist.Backend.register_backend('treering', _create, devices=['cpu'])
    except TypeError:  # torch < 2.0
        dist.Backend.register_backend('treering', _create)


_register()
