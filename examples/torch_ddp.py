"""Data-parallel training with torch.distributed over Treering: two lines differ from any other backend.

    torchrun --nproc-per-node 2 examples/torch_ddp.py            # or --backend gloo, to compare
"""
import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import treering.torch  # registers the backend


def digits(rank, rows=256):
    """Ten noisy prototypes; every rank has rows of its own."""
    prototypes = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2 + rank)
    labels = torch.randint(0, 10, (rows,), generator=generator)
    return prototypes[labels] + 2 * torch.randn(rows, 64, generator=generator), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--backend', default='treering')
    parser.add_argument('--steps', type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = digits(dist.get_rank())
    start = time.perf_counter()
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                ms = (time.perf_counter() - start) / step * 1e3
                print(f'step {step}  loss {mean.item() / dist.get_world_size():.4f}  {ms:.2f} ms a step', flush=True)
    dist.destroy_process_group()


main()
