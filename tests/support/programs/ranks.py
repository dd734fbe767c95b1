"""A distributed training in which, on request, rank 1 is slow somewhere or dies once; as a user would write it."""

import argparse
import os
import time

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--slow", choices=["input", "forward", "backward"])
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--dies-at", type=int, help="step after which rank 1 dies, the first time")
args = parser.parse_args()

# each start with keys of its own: gloo's of the start before stay in the agent's store, and lead to ports long closed
store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = distributed.PrefixStore(f"start-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
world = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
distributed.init_process_group("gloo", store=store, **world)
rank = distributed.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)


def work(place):
    time.sleep(0.04 if (args.slow, rank) == (place, 1) else 0.0)


class Data(Dataset):
    def __len__(self):
        return args.steps

    def __getitem__(self, index):
        work("input")
        return torch.randn(16)


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        work("forward")
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradients):
        work("backward")
        return gradients


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 1)

    def forward(self, inputs):
        return self.last(Identity.apply(torch.relu(self.first(inputs))))


model = Net()
if args.fsdp:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
else:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number, inputs in enumerate(DataLoader(Data(), batch_size=1), start=1):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if number == args.dies_at and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        time.sleep(2.5)  # what was recorded leaves every second
        os._exit(7)
distributed.destroy_process_group()
