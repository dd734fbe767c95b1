"""A training on a GPU whose steps take some tenths of a second."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1])
net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), 1e-4)
for (inputs,) in DataLoader(TensorDataset(torch.randn(steps * 64, 4096)), batch_size=64):
    batch = inputs.cuda().repeat(64, 1)
    net(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
