"""Trains the small pretrained models on whose contexts the study has heads alone.

    python docs/study/pretrained_trunks.py gpt2 PENN FOLDER    reads PENN/train.txt and valid.txt,
    python docs/study/pretrained_trunks.py llama PENN FOLDER   and writes tokenizer and model for
                                                               trunk.of=hf:FOLDER

Two layers of 64, 1,000 byte-level subwords, 128 positions; AdamW, three epochs: some minutes on a
core. The models that the study's runs have are in gpt2/ and llama/; trained anew, they have the
same digits on the same processor alone.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

SEED, VOCABULARY, WIDTH, LAYERS, HEADS, POSITIONS = 141, 1000, 64, 2, 4, 128
EPOCHS, BATCH, RATE = 3, 32, 3e-3
START = "<s>"


def make_tokenizer(text: str) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=[START]
    )
    made.train_from_iterator(text.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=START)


def make_gpt2(num_words: int) -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=num_words, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
            n_positions=POSITIONS, bos_token_id=0, eos_token_id=0,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


def make_llama(num_words: int) -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=num_words, hidden_size=WIDTH, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, intermediate_size=172, max_position_embeddings=POSITIONS,
            bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
        )
    )  # fmt: skip


FAMILIES = {"gpt2": make_gpt2, "llama": make_llama}


def windows(tokenizer: PreTrainedTokenizerFast, path: Path) -> Tensor:
    """The text's tokens as rows of POSITIONS; the rest is left out."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    tokens = torch.tensor([token for ids in tokenizer(lines)["input_ids"] for token in ids])
    return tokens[: len(tokens) // POSITIONS * POSITIONS].view(-1, POSITIONS)


def batches(windows_WT: Tensor) -> Iterator[Tensor]:
    """Of every epoch, in an order of its own."""
    for _ in range(EPOCHS):
        yield from windows_WT[torch.randperm(len(windows_WT))].split(BATCH)


def train(model: PreTrainedModel, windows_WT: Tensor) -> None:
    steps = EPOCHS * math.ceil(len(windows_WT) / BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    for batch in tqdm(batches(windows_WT), total=steps):
        optimizer.zero_grad()
        model(batch, labels=batch).loss.backward()
        optimizer.step()
        schedule.step()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("penn", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    if not (args.penn / "train.txt").is_file():
        sys.exit(f"error: {args.penn} has no train.txt")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer((args.penn / "train.txt").read_text("utf-8"))
    model = FAMILIES[args.family](len(tokenizer))
    train(model, windows(tokenizer, args.penn / "train.txt"))
    model.eval()
    with torch.no_grad():
        valid = windows(tokenizer, args.penn / "valid.txt")
        losses = [model(batch, labels=batch).loss.item() for batch in valid.split(BATCH)]
    print(f"valid perplexity per token: {math.exp(sum(losses) / len(losses)):.2f}")
    model.save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)


if __name__ == "__main__":
    main()
