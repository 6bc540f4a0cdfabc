"""A corpus of a few dialogues, and models over it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmkit.dialogue.batches import PairsDataModule
from lmkit.dialogue.corpus import DialogueCorpus
from lmkit.dialogue.module import DialogueModel
from lmkit.experiment.objects import make_data
from lmkit.experiment.objects import make_model as model_of
from tests.tiny import composed

TEXTS = {
    "train": [
        ("1", "A", "Hello there."),
        ("1", "B", "Hello!"),
        ("1", "B", "How are you?"),
        ("1", "A", "Fine, and you?"),
        ("2", "x", "It rains."),
        ("2", "y", "It rains, it rains."),
        ("3", "A", "Where are you?"),
        ("3", "B", "There."),
        ("3", "A", "How?"),
    ],
    "valid": [("v", "A", "Hello."), ("v", "B", "Is it you?"), ("v", "A", "It is.")],
    "test": [("t", "A", "Are you there?"), ("t", "B", "I am."), ("t", "B", "Hello, hello!")],
}
SMALL = (
    "experiment=dialogue_softmax",
    "data=dialogue",
    "data.num_words=12",
    "windows.batch_size=2",
    "windows.eval_batch_size=2",
    "trunk.emb_dim=6",
    "trunk.hidden_dim=5",
    "trunk.out_dim=6",
    "logger=csv",
    "callbacks.progress_bar=null",
    "trainer.accelerator=cpu",
    "threads=1",
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


def config(folder: Path, *overrides: str, mixture: str = "none") -> dict:
    chosen = [f"head/mixture={mixture}"]
    if mixture != "none":
        chosen.append("head.mixture.num_experts=3")
    return composed(*SMALL, f"data.root={folder}", *chosen, *overrides)


def data_module(folder: Path, *overrides: str) -> PairsDataModule:
    found = config(folder, *overrides)
    return make_data(found, corpus(folder, num_words=12).load())


@pytest.fixture
def make_model(folder) -> Callable[..., DialogueModel]:
    """Models whose parameters are large, so that their log P differs from word to word."""

    def make(mixture: str = "none", *overrides: str, num_words: int = 12) -> DialogueModel:
        torch.manual_seed(3)
        model = model_of(config(folder, *overrides, mixture=mixture), torch.zeros(num_words))
        for parameter in model.parameters():
            parameter.data.uniform_(-1, 1)
        return model.eval()

    return make
