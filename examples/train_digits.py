"""Train a small convolutional network on scikit-learn's handwritten digits; plain PyTorch."""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """8x8 grey images of handwritten digits, as slow to read as one likes."""

    def __init__(self, images, labels, delay_ms=0.0):
        self.images = images
        self.labels = labels
        self.delay_ms = delay_ms

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.delay_ms:
            time.sleep(self.delay_ms / 1000)
        return self.images[index], self.labels[index]


class SmallCNN(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def load(slow_loader_ms, batch_size, workers):
    """Split the digits into a training and a validation loader."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    split = 1500
    training = Digits(images[:split], labels[:split], delay_ms=slow_loader_ms / batch_size)
    validation = Digits(images[split:], labels[split:])
    return (
        DataLoader(training, batch_size=batch_size, shuffle=True, num_workers=workers),
        DataLoader(validation, batch_size=256),
    )


def evaluate(model, loader):
    """Share of digits that the model gets right."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


def main():
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument(
        "--slow-loader", type=float, default=0.0, metavar="MS", help="milliseconds to add to each batch"
    )
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    training, validation = load(args.slow_loader, args.batch_size, args.workers)
    model = SmallCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        model.train()
        for images, labels in training:
            optimizer.zero_grad()
            loss = loss_function(model(images), labels)
            loss.backward()
            optimizer.step()
        accuracy = evaluate(model, validation)
        print(f"epoch {epoch + 1}/{args.epochs}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
