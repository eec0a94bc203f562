"""Makes a tiny Qwen3 with random weights and a small tokenizer, for a vLLM without a GPU.

``make(python, folder)`` runs this file with a Python that has transformers and torch, once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WORDS = [
    "the quick brown fox jumps over the lazy dog",
    "paged attention keeps keys and values in pages of fixed size",
    "KV cache, prefill, decode, batch, token, request",
    "用一句话解释什么是分页注意力",
]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make(python: Path, folder: Path) -> Path:
    """The model's folder, made if it is not there."""
    if not (folder / "config.json").exists():
        subprocess.run([str(python), __file__, str(folder)], check=True, timeout=300)
    return folder


def write_tokenizer(folder: Path) -> tuple[int, int, int]:
    """(vocabulary size, end token, padding token)"""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(WORDS * 30, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id


def write_model(folder: Path, vocabulary: int, end: int, padding: int) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        eos_token_id=end,
        pad_token_id=padding,
        bos_token_id=None,
        dtype="bfloat16",
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_model(target, *write_tokenizer(target))
