"""Train a small network with Accelerate: gradients accumulated, one process or several, with an evaluation."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_loader(samples, batch_size):
    """Vectors, and the sum of their entries."""
    inputs = torch.randn(samples, 32)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=batch_size)


def evaluate(accelerator, model, loader):
    """Mean squared error over all processes."""
    model.eval()
    errors = []
    with torch.no_grad():
        for inputs, wanted in loader:
            errors.append(accelerator.gather_for_metrics((model(inputs) - wanted).square()))
    model.train()
    return torch.cat(errors).mean().item()


def main():
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    args = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=args.cpu, gradient_accumulation_steps=args.accumulate)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, training, validation = accelerator.prepare(
        model, optimizer, make_loader(640, batch_size=16), make_loader(64, batch_size=16)
    )
    for epoch in range(args.epochs):
        for inputs, wanted in training:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), wanted)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        error = evaluate(accelerator, model, validation)
        accelerator.print(f"epoch {epoch + 1}/{args.epochs}: mean squared error {error:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
