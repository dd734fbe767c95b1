"""Train a small network on scikit-learn's handwritten digits with Lightning; not a line of it knows stepmeter."""

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    """Two linear layers; a direct child of the module, so that its calls are forwards."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch):
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def load(batch_size):
    """Split the digits into a training and a validation loader."""
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    training, validation = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])
    return DataLoader(training, batch_size=batch_size, shuffle=True), DataLoader(validation, batch_size=256)


def main():
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--accumulate", type=int, default=4, help="micro-batches of one update")
    parser.add_argument("--devices", type=int, default=1, help="processes; several are DDP")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    lightning.seed_everything(args.seed, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accumulate_grad_batches=args.accumulate,
        accelerator="cpu",
        devices=args.devices,
        strategy=args.strategy,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), *load(args.batch_size))
    metrics = trainer.callback_metrics
    print(f"{trainer.global_step} updates: loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
