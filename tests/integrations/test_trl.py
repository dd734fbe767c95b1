"""TRL's trainers derive from transformers' Trainer, and are followed as it is."""

import pytest
import torch
from tests.support.huggingface import batches_of, copies, counts, followed, light, of
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

trl = pytest.importorskip("trl")
tokenizers = pytest.importorskip("tokenizers")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("default")


def llama():
    """A Llama of one layer with random weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=16, num_hidden_layers=1, max_position_embeddings=16, pad_token_id=0, **sizes)
    )


def words():
    """A tokenizer of sixteen words, made on the spot."""
    vocabulary = {"<pad>": 0, "</s>": 1, **{f"w{number}": number for number in range(2, 16)}}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<pad>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(model), pad_token="<pad>", eos_token="</s>")


def test_sft_trainer(tmp_path):
    """SFTTrainer on a Llama that checkpoints its activations: ten micro-batches by four are steps of 4, 4 and 2."""
    with light(), followed() as recorder:
        trl.SFTTrainer(
            model=llama(),
            args=trl.SFTConfig(
                output_dir=str(tmp_path),
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
                bf16=False,
                per_device_train_batch_size=2,
                gradient_accumulation_steps=4,
                num_train_epochs=1,
                gradient_checkpointing=True,
                save_strategy="no",
            ),
            train_dataset=datasets.Dataset.from_list([{"input_ids": list(range(1, 7))}] * 20),
            processing_class=words(),
        ).train()
        steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(4), of(4), of(2)]
    assert [(step.samples, step.tokens) for step in steps] == [(8, 48), (8, 48), (4, 24)]
    assert all(copies(step)[0] == 3 * step.microbatches for step in steps)  # ids, mask and labels
