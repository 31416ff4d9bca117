"""One rank of test_python.py: torch.distributed over Treering against the same over Gloo. Ends with 0 or a traceback.

Usage: torch_ranks.py SEED, with the environment of torchrun.
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import treering.torch
from treering import Code, TreeringError

SEED = int(sys.argv[1])
TYPES = (torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64)
RANK, SIZE = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])


def data(dtype, shape, salt=0, rank=RANK):
    generator = torch.Generator().manual_seed(SEED * 1000 + salt * 100 + rank)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def same(got, want, what):
    assert got.dtype == want.dtype and torch.equal(got, want), f'{what}: {got} instead of {want}'


def refused(kind, words, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert words in str(error), f'{words!r} is not in {error}'
        return
    raise AssertionError(f'{call} was not refused ({words})')


def both(gloo, what, call):
    """call(group) -> tensors, on both backends."""
    got, want = call(None), call(gloo)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        same(g, w, what)


def reductions(gloo):
    for dtype in TYPES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            def all_reduce(group):
                x = data(dtype, (3, 5))
                dist.all_reduce(x, op, group)
                return [x]

            def reduce(group):
                x = data(dtype, (17,))
                dist.reduce(x, SIZE - 1, op, group)
                return [x] if RANK == SIZE - 1 else []
            both(gloo, f'all_reduce {op} {dtype}', all_reduce)
            both(gloo, f'reduce {op} {dtype}', reduce)
    for name, op in (('BAND', dist.ReduceOp.BAND), ('BOR', dist.ReduceOp.BOR), ('BXOR', dist.ReduceOp.BXOR)):
        x = data(torch.int32, (9,))
        want = data(torch.int32, (9,), rank=0)
        for r in range(1, SIZE):
            other = data(torch.int32, (9,), rank=r)
            want = {'BAND': want & other, 'BOR': want | other, 'BXOR': want ^ other}[name]
        dist.all_reduce(x, op)
        same(x, want, name)
    x = torch.full((5,), float(RANK), dtype=torch.bfloat16)
    dist.all_reduce(x)
    same(x, torch.full((5,), float(sum(range(SIZE))), dtype=torch.bfloat16), 'bfloat16')
    x = torch.tensor([RANK == 0, False, True])
    dist.all_reduce(x)
    same(x, torch.tensor([True, False, True]), 'any of bool')
    x = torch.tensor([RANK == 0, False, True])
    dist.all_reduce(x, dist.ReduceOp.MIN)
    same(x, torch.tensor([SIZE == 1, False, True]), 'all of bool')
    x = torch.tensor([1 + 2j, RANK], dtype=torch.complex64)
    dist.all_reduce(x)
    same(x, torch.tensor([SIZE * (1 + 2j), sum(range(SIZE))], dtype=torch.complex64), 'complex')
    x = torch.full((3,), float(RANK))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.full((3,), sum(range(SIZE)) / SIZE), 'avg')
    empty = torch.empty(0)
    dist.all_reduce(empty)
    parts = [data(torch.float32, (4,), 5 + i) for i in range(SIZE)]
    want = sum(data(torch.float32, (4,), 5 + RANK, r) for r in range(SIZE))
    got = torch.empty(4)
    dist.reduce_scatter(got, parts)
    same(got, want, 'reduce_scatter')
    got = torch.empty(4)
    dist.reduce_scatter_tensor(got, torch.cat(parts))
    same(got, want, 'reduce_scatter_tensor')
    xs = [torch.full((n,), float(RANK + n)) for n in (1, 3, 8)]
    if hasattr(dist, 'all_reduce_coalesced'):
        dist.all_reduce_coalesced(xs)
        for n, x in zip((1, 3, 8), xs):
            same(x, torch.full((n,), float(sum(r + n for r in range(SIZE)))), 'all_reduce_coalesced')


def moves(gloo):
    for dtype in TYPES + (torch.bool, torch.int16, torch.bfloat16, torch.complex64):
        x = data(dtype, (2, 3))
        dist.broadcast(x, SIZE - 1)
        same(x, data(dtype, (2, 3), rank=SIZE - 1), f'broadcast {dtype}')
        every = [data(dtype, (2, 3), rank=r) for r in range(SIZE)]
        got = [torch.empty(2, 3, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(got, data(dtype, (2, 3)))
        for g, w in zip(got, every):
            same(g, w, f'all_gather {dtype}')
        flat = torch.empty(2 * SIZE, 3, dtype=dtype)
        dist.all_gather(list(flat.chunk(SIZE)), data(dtype, (2, 3)))  # parts of one tensor: no copy
        same(flat, torch.cat(every), f'all_gather into chunks {dtype}')
        flat = torch.empty(2 * SIZE, 3, dtype=dtype)
        dist.all_gather_into_tensor(flat, data(dtype, (2, 3)))
        same(flat, torch.cat(every), f'all_gather_into_tensor {dtype}')
        got = [torch.empty(2, 3, dtype=dtype) for _ in range(SIZE)] if RANK == 0 else None
        dist.gather(data(dtype, (2, 3)), got, 0)
        for g, w in zip(got or [], every):
            same(g, w, f'gather {dtype}')
        got = torch.empty(2, 3, dtype=dtype)
        dist.scatter(got, every if RANK == SIZE - 1 else None, SIZE - 1)
        same(got, every[RANK], f'scatter {dtype}')
        send = torch.cat([data(dtype, (q + 1, 2), q) for q in range(SIZE)])
        got = torch.empty(SIZE * (RANK + 1), 2, dtype=dtype)
        dist.all_to_all_single(got, send, [RANK + 1] * SIZE, [q + 1 for q in range(SIZE)])
        want = torch.cat([data(dtype, (RANK + 1, 2), RANK, r) for r in range(SIZE)])
        same(got, want, f'all_to_all_single, uneven, {dtype}')
        got = [torch.empty(RANK + 1, 2, dtype=dtype) for _ in range(SIZE)]
        dist.all_to_all(got, [data(dtype, (q + 1, 2), q) for q in range(SIZE)])
        same(torch.cat(got), want, f'all_to_all {dtype}')
    send = torch.arange(2 * SIZE) + 10 * RANK
    got = torch.empty_like(send)
    dist.all_to_all_single(got, send)
    same(got, torch.cat([torch.arange(2 * RANK, 2 * RANK + 2) + 10 * r for r in range(SIZE)]), 'all_to_all_single')
    objects = [None] * SIZE
    dist.all_gather_object(objects, {'rank': RANK, 'text': 'x' * RANK})
    assert objects == [{'rank': r, 'text': 'x' * r} for r in range(SIZE)], objects
    box = ['from the last'] if RANK == SIZE - 1 else [None]
    dist.broadcast_object_list(box, SIZE - 1)
    assert box == ['from the last']


def messages(gloo):
    if SIZE == 1:
        return
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.empty(100000)
    works = [dist.isend(torch.full((100000,), float(RANK)), to), dist.irecv(got, source)]
    for work in works:
        work.wait()
    same(got, torch.full((100000,), float(source)), 'isend and irecv')
    got = torch.empty(3)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(RANK)), to),
                                        dist.P2POp(dist.irecv, got, source)]):
        work.wait()
    same(got, torch.full((3,), float(source)), 'batch_isend_irecv')
    if RANK == 0:
        dist.send(torch.arange(5), 1)
    elif RANK == 1:
        got = torch.empty(5, dtype=torch.int64)
        dist.recv(got, 0)
        same(got, torch.arange(5), 'send and recv')
    refused(TreeringError, 'any source', dist.recv, torch.empty(3))
    refused(TreeringError, 'no tags', dist.isend, torch.empty(3), to, None, 7)


def asynchronous(gloo):
    xs = [torch.full((1000,), float(i + RANK)) for i in range(40)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait() and work.is_completed()
        same(xs[i], torch.full((1000,), float(sum(i + r for r in range(SIZE)))), f'async {i}')
    future = dist.all_reduce(torch.ones(70000), async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    same(doubled.wait(), torch.full((70000,), 2.0 * SIZE), 'future')
    if SIZE > 1:  # rank 1 joins the collective only when it has rank 0's message, sent after rank 0 joined
        x, y = torch.ones(3), torch.full((3,), 7.0)
        work = dist.all_reduce(x, async_op=True) if RANK != 1 else None
        if RANK == 0:
            dist.send(y, 1)
        if RANK == 1:
            dist.recv(torch.empty(3), 0)
            dist.all_reduce(x)
        else:
            work.wait()
        same(x, torch.full((3,), float(SIZE)), 'an asynchronous call keeps nobody')
    parts = [torch.empty(3) for _ in range(SIZE)]
    future = dist.all_gather(parts, torch.full((3,), float(RANK)), async_op=True).get_future()
    future.wait()
    same(torch.stack(parts)[:, 0], torch.arange(SIZE).float(), "a future's result is where it was wanted")
    dist.barrier(async_op=True).wait(timedelta(seconds=60))
    last = dist.new_group([SIZE - 1])
    pair = dist.new_group(list(range(min(2, SIZE))))
    x = torch.ones(3) * (RANK + 1)
    if RANK < 2:
        dist.all_reduce(x, group=pair)
        same(x, torch.full((3,), 3.0 if SIZE > 1 else 1.0), 'new_group')
    if RANK == SIZE - 1:
        dist.all_reduce(torch.ones(1), group=last)
    assert dist.get_backend() == 'treering'
    treering.torch.monitored_barrier(timeout=timedelta(seconds=60))


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(),
                               torch.nn.Linear(32, 5))


def gradients(group, steps, zero=False):
    """Trains with DistributedDataParallel over `group`; the last gradients and the parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(model(RANK), process_group=group, bucket_cap_mb=0.005)
    if zero:
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(SEED + RANK)
    for _ in range(steps):
        x = torch.randn(16, 20, generator=generator)
        y = torch.randint(0, 5, (16,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        grads = [p.grad.clone() for p in net.parameters()]
        optimizer.step()
    return grads + [p.detach().clone() for p in net.parameters()]


def training(gloo):
    want = gradients(gloo, 5)
    for zero in (False, True):
        got = gradients(dist.group.WORLD, 5, zero)
        for g, w in zip(got, want):
            assert torch.allclose(g, w, rtol=1e-4, atol=1e-6), (zero, (g - w).abs().max())
    # Every rank has the same bits.
    for g in got[len(got) // 2:]:
        first = g.clone()
        dist.broadcast(first, 0)
        same(g, first, 'parameters on ranks')


def refusals(gloo):
    refused(ValueError, 'not contiguous', dist.all_reduce, torch.zeros(4, 4).t()[1:])
    refused(ValueError, 'sparse', dist.distributed_c10d._get_default_group().allreduce,
            [torch.zeros(4).to_sparse()])
    refused(TypeError, 'int16 cannot be reduced', dist.all_reduce, torch.zeros(3, dtype=torch.int16))
    refused(ValueError, 'on device meta', dist.all_reduce, torch.zeros(3, device='meta'))
    refused(ValueError, 'elements, but', dist.all_gather_into_tensor, torch.empty(SIZE * 3 + 1), torch.empty(3))
    refused((ValueError, RuntimeError), '', dist.all_gather, [torch.empty(3)] * (SIZE + 1), torch.empty(3))
    refused((TypeError, ValueError, RuntimeError), '', dist.all_gather_into_tensor, torch.empty(SIZE * 3),
            torch.empty(3, dtype=torch.float64))
    refused(ValueError, 'do not add up', dist.all_to_all_single, torch.empty(SIZE), torch.empty(SIZE),
            [2] * SIZE, [1] * SIZE)
    dist.all_reduce(torch.zeros(3))  # nothing of all that has changed anything


def failures(gloo):
    """Last: ranks of different shapes, a rank that does not come, abort."""
    if SIZE == 1:
        return
    group = dist.new_group(timeout=timedelta(seconds=100))
    try:
        dist.all_reduce(torch.zeros(3 + (RANK == 0)), group=group)
    except TreeringError as error:
        assert error.code in (Code.MISMATCH, Code.REMOTE_ERROR) and 'all_reduce' in str(error), error
    else:
        raise AssertionError('different shapes were not noticed')
    group = dist.new_group(timeout=timedelta(seconds=3))
    if RANK != 0:
        try:
            treering.torch.monitored_barrier(group)
        except TreeringError as error:
            assert error.code in (Code.TIMEOUT, Code.REMOTE_ERROR) and 'rank 0' in str(error), error
        else:
            raise AssertionError('rank 0 was not missed')
    dist.barrier()
    group = dist.new_group()
    if RANK == 0:
        group.abort()
    try:
        dist.barrier(group)
    except TreeringError as error:
        assert error.code == Code.ABORTED, error
    else:
        raise AssertionError('an aborted barrier succeeded')
    dist.barrier()


def main():
    dist.init_process_group('treering', timeout=timedelta(seconds=120))
    gloo = dist.new_group(backend='gloo')
    for step in (reductions, moves, messages, asynchronous, training, refusals, failures):
        try:
            step(gloo)
        except BaseException:
            print(f'{step.__name__}, rank {RANK} of {SIZE}, seed {SEED}', file=sys.stderr, flush=True)
            raise
    dist.destroy_process_group()
    print('all well')


main()
