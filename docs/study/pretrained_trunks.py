"""Trains the small pretrained models on whose contexts the study has heads alone.

    python docs/study/pretrained_trunks.py gpt2 PENN FOLDER    reads PENN/train.txt and valid.txt,
    python docs/study/pretrained_trunks.py llama PENN FOLDER   and writes tokenizer and model for
                                                               trunk.of=hf:FOLDER

Two layers of 64, 1,000 byte-level subwords, 128 positions; AdamW, three epochs: some minutes on a
core. The models that the study's runs have are in gpt2/ and llama/; trained anew, they have the
same digits on the same processor alone.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

SEED, VOCABULARY, POSITIONS, EPOCHS, BATCH, RATE = 141, 1000, 128, 3, 32, 3e-3
START = "<s>"
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CONFIGS = {
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=POSITIONS, **NO_DROPOUT),
    "llama": LlamaConfig(
        **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"intermediate_size": 172, "max_position_embeddings": POSITIONS},
        tie_word_embeddings=False,
    ),
}


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


def windows(tokenizer: PreTrainedTokenizerFast, text: str) -> Tensor:
    """The text's tokens as rows of POSITIONS; the rest is left out."""
    lines = text.splitlines(keepends=True)
    tokens = torch.tensor([token for ids in tokenizer(lines)["input_ids"] for token in ids])
    return tokens[: len(tokens) // POSITIONS * POSITIONS].view(-1, POSITIONS)


def train(model: torch.nn.Module, windows_WT: Tensor) -> None:
    steps = EPOCHS * -(-len(windows_WT) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    bar = tqdm(total=steps)
    for _ in range(EPOCHS):
        for batch in windows_WT[torch.randperm(len(windows_WT))].split(BATCH):
            optimizer.zero_grad()
            model(batch, labels=batch).loss.backward()
            optimizer.step()
            schedule.step()
            bar.update()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=CONFIGS)
    parser.add_argument("penn", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    text, valid = ((args.penn / f"{split}.txt").read_text("utf-8") for split in ("train", "valid"))
    tokenizer = make_tokenizer(text)
    config = CONFIGS[args.family]
    config.update({"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 0})
    model = AutoModelForCausalLM.from_config(config)
    train(model, windows(tokenizer, text))
    model.eval()
    with torch.no_grad():
        batches = windows(tokenizer, valid).split(BATCH)
        losses = torch.tensor([model(batch, labels=batch).loss for batch in batches])
    print(f"valid perplexity per token: {losses.mean().exp():.2f}")
    model.save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)


if __name__ == "__main__":
    main()
