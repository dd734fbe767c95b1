"""A training whose loader workers fork, spawn or come from a fork server, and whose dataset starts processes too."""

import multiprocessing
import sys
import threading

import torch
from opentelemetry import metrics
from torch.utils.data import DataLoader, Dataset

METHODS = ("fork", "spawn", "forkserver")
STEPS = 8
counter = metrics.get_meter("user").create_counter("user.counter")


def square(number):
    counter.add(1)  # in a worker's worker; must not arrive
    return number * number


class Data(Dataset):
    """Items that a process of their own computes, as some tokenizers do."""

    def __init__(self, pooled):
        self.pooled = pooled

    def __len__(self):
        return STEPS * 2

    def __getitem__(self, index):
        if not self.pooled:
            return torch.full((4,), float(index))
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return torch.full((4,), float(pool.map(square, [index])[0]))


def train(loader):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        counter.add(1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for method in METHODS:
        workers = {"num_workers": 2, "multiprocessing_context": method, "persistent_workers": method == "fork"}
        train(DataLoader(Data(pooled=False), batch_size=2, **workers))
    train(DataLoader(Data(pooled=True), batch_size=2))
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("stepmeter")]
    print(f"alive {all(thread.daemon for thread in ours)} {len(multiprocessing.active_children())}")
    sys.exit(0)
