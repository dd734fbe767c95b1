"""Two ranks started by `torch.multiprocessing.spawn`, which sets no RANK; as a user would write it."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 5


def train(rank, meeting):
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (inputs,) in DataLoader(TensorDataset(torch.randn(STEPS * 4, 8)), batch_size=4):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(train, args=(Path(directory) / "meeting",), nprocs=2)
    sys.exit(0)
