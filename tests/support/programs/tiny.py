"""A training of a few small steps; plain PyTorch, as a user would write it."""

import argparse
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--end", choices=["normal", "raise", "exit3", "os_exit", "sigterm", "sigint"], default="normal")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
if "WORLD_SIZE" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(args.steps * 4, 8), torch.randn(args.steps * 4, 1))
for number, (inputs, targets) in enumerate(DataLoader(data, batch_size=4), start=1):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    time.sleep(args.sleep)
    print(f"step {number} loss {loss.item():.6f}", flush=True)
if "WORLD_SIZE" in os.environ:
    torch.distributed.destroy_process_group()
if args.end == "raise":
    raise RuntimeError("the program's own error")
if args.end == "exit3":
    sys.exit(3)
if args.end == "os_exit":
    os._exit(4)
if args.end in {"sigterm", "sigint"}:
    os.kill(os.getpid(), 15 if args.end == "sigterm" else 2)
    time.sleep(30)
