"""Fine-tune a tiny Llama with random weights on made-up sentences, with TRL's SFTTrainer; nothing is downloaded."""

import argparse
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = ["the", "a", "small", "large", "model", "step", "batch", "learns", "waits", "ends", "slowly", "again"]


def make_tokenizer():
    """One token a word."""
    vocabulary = {word: number for number, word in enumerate(["<pad>", "</s>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


def make_model(vocabulary):
    """One layer of 32 wide."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
        )
    )


def main():
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    args = parser.parse_args()

    tokenizer = make_tokenizer()
    sentences = [" ".join(WORDS[(n + k) % len(WORDS)] for k in range(8)) for n in range(args.sentences)]
    with tempfile.TemporaryDirectory() as directory:
        trainer = SFTTrainer(
            model=make_model(len(tokenizer)),
            args=SFTConfig(
                output_dir=directory,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                num_train_epochs=1,
                max_length=16,
                bf16=not args.cpu,
                use_cpu=args.cpu,
                logging_steps=4,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"text": sentences}),
            processing_class=tokenizer,
        )
        trainer.train()


if __name__ == "__main__":
    main()
