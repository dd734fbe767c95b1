"""Train a small classifier on several ranks with DDP or FSDP2; plain PyTorch, to be started by torchrun."""

import argparse
import os
import time

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Blobs(TensorDataset):
    """Points around ten centres; on one rank as slow to read as one likes."""

    def __init__(self, samples, delay_s):
        torch.manual_seed(0)
        labels = torch.randint(10, (samples,))
        super().__init__(torch.randn(10, 32)[labels] + torch.randn(samples, 32), labels)
        self.delay_s = delay_s

    def __getitem__(self, index):
        if self.delay_s:
            time.sleep(self.delay_s)
        return super().__getitem__(index)


class Classifier(nn.Module):
    """Two layers; on one rank as slow to compute as one likes."""

    def __init__(self, delay_s):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
        self.delay_s = delay_s

    def forward(self, points):
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.layers(points)


def wrap(model, device, *, fsdp):
    """Share the work among the ranks."""
    if not fsdp:
        return nn.parallel.DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh(device.type, (distributed.get_world_size(),)))


def main():
    """Train, and print the loss of rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="updates")
    parser.add_argument("--batch-size", type=int, default=16, help="samples a rank")
    parser.add_argument("--fsdp", action="store_true", help="shard the model instead of copying it")
    parser.add_argument("--slow", choices=["input", "forward"], help="where the last rank is slow")
    parser.add_argument("--slow-ms", type=float, default=40.0, help="how much slower, in ms a step")
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    delay_s = args.slow_ms / 1000 if rank == ranks - 1 else 0.0

    data = Blobs(args.steps * args.batch_size * ranks, delay_s / args.batch_size if args.slow == "input" else 0.0)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))
    model = wrap(Classifier(delay_s if args.slow == "forward" else 0.0).to(device), device, fsdp=args.fsdp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for points, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.3f} after {args.steps} updates on {ranks} ranks")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
