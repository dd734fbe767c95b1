"""A plain loop, Lightning, Hugging Face, Lightning and a plain loop in one process; prints the steps of each."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import Trainer, TrainingArguments

torch.manual_seed(0)
torch.set_num_threads(1)


def plain(batches):
    """Train on so many batches."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (inputs,) in DataLoader(TensorDataset(torch.randn(2 * batches, 4)), batch_size=2):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    print(f"plain {batches}")


class Module(lightning.LightningModule):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_lightning(batches):
    """Train on so many batches, four to an update."""
    trainer = lightning.Trainer(
        max_epochs=1,
        accumulate_grad_batches=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(2 * batches, 4)), batch_size=2))
    print(f"lightning {trainer.global_step}")


class Net(nn.Module):
    """One layer, as a Trainer calls it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, inputs):
        return {"loss": self.net(inputs).square().mean()}


class Examples(Dataset):
    """Eight samples."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"inputs": torch.full((4,), float(index))}


def with_transformers(directory):
    """Train on four batches, two to an update."""
    arguments = TrainingArguments(
        output_dir=directory,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(Net(), arguments, train_dataset=Examples())
    trainer.train()
    print(f"transformers {trainer.state.global_step}")


plain(3)
with_lightning(10)
with_transformers(sys.argv[1])
with_lightning(4)
plain(2)
