#!/usr/bin/env python3
"""Usage: make_golden.py [DIGITS.csv.gz] [OUT_FOLDER]

Trains with PyTorch what tests/parallel/golden_test.cpp trains with Treering, and writes the curves that it
must give: a line a step, "step,loss,gradient_norm". Made once; needs PyTorch (Debian: python3-torch):

    tests/interop/make_golden.py examples/data/digits.csv.gz tests/interop/golden

Single process in float64 and float32, and 2, 4 and 8 processes of DistributedDataParallel over Gloo, with SGD
(momentum 0.9) and with AdamW. Nothing here shares code with Treering: initial values and the order of rows
are computed again from their definition (hash of seed, stream and index).
"""
import gzip
import math
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

WIDTHS = [64, 128, 128, 10]
BATCH, STEPS, SEED = 128, 20, 1
MASK = (1 << 64) - 1
SPLIT_STREAM = (1 << 34) + 1
SHUFFLE_STREAM = 1 << 33


def mix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bits(seed, stream, index):
    return mix(mix(mix(seed) ^ stream) ^ index)


def symmetric(seed, stream, index):
    return ((bits(seed, stream, index) >> 40) - (1 << 23)) / (1 << 23)


def shuffled(rows, seed, stream):
    order = list(range(rows))
    for left in range(rows, 1, -1):
        other = bits(seed, stream, left) % left
        order[left - 1], order[other] = order[other], order[left - 1]
    return order


def digits(file):
    with gzip.open(file, 'rt') as text:
        table = np.array([[int(number) for number in line.split(',')] for line in text])
    train = shuffled(len(table), 0, SPLIT_STREAM)[:1437]
    return table[train, :64] / 16.0, table[train, 64]


def make_model(dtype):
    layers = []
    for i, (wide, out) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        linear = torch.nn.Linear(wide, out, dtype=dtype)
        is_last = i == len(WIDTHS) - 2
        bound = math.sqrt((3 if is_last else 6) / wide)
        # Parameters are numbered in order: weight 2 i, bias 2 i + 1. Ours are in x out, torch's out x in.
        values = [bound * symmetric(SEED, 2 * i, index) for index in range(wide * out)]
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(values, dtype=torch.float64).reshape(wide, out).T)
            linear.bias.zero_()
        layers += [linear] if is_last else [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def make_optimizer(name, model):
    if name == 'sgd':
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def train(file, optimizer_name, dtype, rank=0, ranks=1):
    x, y = digits(file)
    x, y = torch.tensor(x, dtype=dtype), torch.tensor(y)
    model = make_model(dtype)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(optimizer_name, model)
    order, curve = shuffled(len(x), SEED, SHUFFLE_STREAM), []
    epoch, at = 0, 0
    for step in range(STEPS):
        if at == len(order):
            epoch, at = epoch + 1, 0
            order = shuffled(len(x), SEED, SHUFFLE_STREAM + epoch)
        rows = order[at:at + BATCH]
        at += len(rows)
        mine = rows[rank * len(rows) // ranks:(rank + 1) * len(rows) // ranks]
        loss = torch.nn.functional.cross_entropy(model(x[mine]), y[mine], reduction='sum')
        optimizer.zero_grad()
        # DistributedDataParallel averages over the ranks; the sum over ranks divided by all rows is wanted.
        (loss * ranks / len(rows)).backward()
        total = loss.detach().double()
        if ranks > 1:
            dist.all_reduce(total)
        norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()))
        optimizer.step()
        curve.append((step + 1, float(total) / len(rows), norm))
    return curve


def write(folder, name, curve):
    with open(os.path.join(folder, name + '.csv'), 'w') as out:
        out.write('step,loss,gradient_norm\n')
        out.writelines(f'{step},{loss:.17g},{norm:.17g}\n' for step, loss, norm in curve)


def worker(rank, ranks, port, file, folder):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    dist.init_process_group('gloo', rank=rank, world_size=ranks)
    for optimizer in ('sgd', 'adamw'):
        curve = train(file, optimizer, torch.float32, rank, ranks)
        if rank == 0:
            write(folder, f'ddp{ranks}-{optimizer}-fp32', curve)
    dist.destroy_process_group()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    file = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, '../../examples/data/digits.csv.gz')
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, 'golden')
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    for optimizer in ('sgd', 'adamw'):
        for name, dtype in (('fp64', torch.float64), ('fp32', torch.float32)):
            write(folder, f'single-{optimizer}-{name}', train(file, optimizer, dtype))
    for ranks in (2, 4, 8):
        multiprocessing.spawn(worker, args=(ranks, 29610 + ranks, file, folder), nprocs=ranks)
    with open(os.path.join(folder, 'README.md'), 'w') as out:
        out.write(f'Curves of `tests/interop/make_golden.py`, made with PyTorch {torch.__version__} '
                  f'(Python {sys.version.split()[0]}): {"-".join(map(str, WIDTHS))}, digits, batch {BATCH}, '
                  f'{STEPS} steps.\n')


if __name__ == '__main__':
    main()
