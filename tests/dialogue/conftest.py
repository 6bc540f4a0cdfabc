"""A corpus of a few dialogues, and models over it."""

from pathlib import Path

import pytest
import torch

from lmkit.dialogue.batches import PairsDataModule
from lmkit.dialogue.corpus import DialogueCorpus
from lmkit.dialogue.module import DialogueModel
from lmkit.experiment.objects import make_model
from tests.tiny import composed

TEXTS = {
    "train": [
        *(("1", "A", "Hello there."), ("1", "B", "Hello!"), ("1", "B", "How are you?")),
        *(("1", "A", "Fine, and you?"), ("2", "x", "It rains."), ("2", "y", "It rains, it rains.")),
        *(("3", "A", "Where are you?"), ("3", "B", "There."), ("3", "A", "How?")),
    ],
    "valid": [("v", "A", "Hello."), ("v", "B", "Is it you?"), ("v", "A", "It is.")],
    "test": [("t", "A", "Are you there?"), ("t", "B", "I am."), ("t", "B", "Hello, hello!")],
}
SMALL = (
    *("experiment=dialogue_softmax", "data=dialogue", "data.num_words=12", "threads=1"),
    *("windows.batch_size=2", "windows.eval_batch_size=2", "trunk.emb_dim=6", "trunk.out_dim=6"),
    *("trunk.hidden_dim=5", "logger=csv", "callbacks.progress_bar=null", "trainer.accelerator=cpu"),
)
MIXTURES = ("none", "contexts", "softmaxes")


def write(folder: Path, texts: dict[str, list[tuple[str, ...]]]) -> Path:
    folder.mkdir(exist_ok=True)
    for split, lines in texts.items():
        text = "".join("\t".join(line) + "\n" for line in lines)
        (folder / f"{split}.tsv").write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("dialogues"), TEXTS)


def corpus(folder: Path, /, **options: object) -> DialogueCorpus:
    defaults = {"tokenizer": "word_punct", "lowercase": True, "num_words": 50}
    defaults |= {"train_dialogues": None, "name": "few", "root": str(folder), "folder": "."}
    return DialogueCorpus(**defaults | options)


def config(*overrides: str, mixture: str = "none") -> dict:
    chosen = [f"head/mixture={mixture}"]
    if mixture != "none":
        chosen.append("head.mixture.num_experts=3")
    return composed(*SMALL, *chosen, *overrides)


def data_module(folder: Path, **options: int) -> PairsDataModule:
    few = {"turns": 4, "context_words": 60, "response_words": 40, "bptt": 12, "seed": 1}
    few |= {"batch_size": 2, "eval_batch_size": 2}
    return PairsDataModule(corpus=corpus(folder, num_words=12).load(), **few | options)


def small_model(mixture: str = "none", num_words: int = 12, **options: object) -> DialogueModel:
    """Of parameters so large that its log P differs from word to word.

    Args:
        options: values in place of those composed, by section and key.
    """
    torch.manual_seed(3)
    found = config(mixture=mixture)
    for option, value in options.items():
        section, key = option.split(".")
        found[section][key] = value
    model = make_model(found, torch.zeros(num_words))
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1)
    return model.eval()
