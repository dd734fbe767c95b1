"""A training that forks after every step, as a program that uses multiprocessing does, while metrics are collected."""

import os
import time

import torch
from opentelemetry import metrics

torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter = metrics.get_meter("user")
histogram, counter = meter.create_histogram("user.histogram"), meter.create_counter("user.counter")
stuck = 0
for _ in range(300):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    counter.add(1)
    histogram.record(1.0)
    pid = os.fork()
    if pid == 0:
        time.sleep(0.005)
        os._exit(0)
    deadline = time.monotonic() + 10
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            stuck += 1
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            break
        time.sleep(0.001)
print(f"stuck {stuck}")
