"""Train a tiny Llama with random weights to count, with Hugging Face's Trainer; nothing is downloaded."""

import argparse
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY, LENGTH = 64, 32


class Counting(Dataset):
    """Sequences that count on from some number, as slow to read as one likes."""

    def __init__(self, examples, delay_ms=0.0):
        self.examples = examples
        self.delay_ms = delay_ms

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        time.sleep(self.delay_ms / 1000)
        ids = (torch.arange(LENGTH) + index) % VOCABULARY
        return {"input_ids": ids, "labels": ids}


def make_model():
    """Two layers of 64 wide."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=LENGTH,
        )
    )


def main():
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=320)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument(
        "--slow-loader", type=float, default=0.0, metavar="MS", help="milliseconds to add to each batch"
    )
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    args = parser.parse_args()

    batch_size = 8
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            model=make_model(),
            args=TrainingArguments(
                output_dir=directory,
                per_device_train_batch_size=batch_size,
                gradient_accumulation_steps=args.accumulate,
                num_train_epochs=1,
                learning_rate=1e-3,
                logging_steps=5,
                eval_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=args.cpu,
            ),
            train_dataset=Counting(args.examples, args.slow_loader / batch_size),
            eval_dataset=Counting(32),
        )
        trainer.train()


if __name__ == "__main__":
    main()
