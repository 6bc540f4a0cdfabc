"""A configuration's trunk and head, without the LightningModule that trains them.

Lightning takes longer to import than torch itself: code that only inspects a model does without it.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import require_flag
from lmkit.experiment.make import Section, factory_of, make
from lmkit.heads.head import Head, HeadParts
from lmkit.training.objective import RegularizedNLL


class ModelParts(nn.Module):
    """The parts of a model that hold its parameters.

    Args:
        trunk: makes the head's input.
        head: maps the trunk's output to distributions over words.
    """

    def __init__(self, trunk: nn.Module, head: Head) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head


def parts_without_weights(config: Section, num_words: int) -> ModelParts:
    """The parts of the model of a configuration (plain data, resolved), on the meta device.

    Only shapes exist; they take no memory.

    Raises: UserError naming the option that is wrong.
    """
    counts_V = torch.zeros(num_words, dtype=torch.long, device="meta")
    with torch.device("meta"):
        make(config["objective"], "objective", RegularizedNLL)
        trunk = make_trunk(config, num_words)
        return ModelParts(trunk, make_head(config["head"], counts_V, trunk))


def make_trunk(config: Section, num_words: int) -> nn.Module:
    """The untrained trunk of a configuration."""
    trunk: nn.Module = make(config["trunk"], "trunk", nn.Module, num_words=num_words)
    return trunk


def make_transform(section: object, num_words: int) -> nn.Module:
    """The transform of a section; one that takes `num_words` gets it, as for a parameter a word."""
    factory = factory_of(section, "head.transform")
    asks = "num_words" in inspect.signature(factory.func).parameters
    given = {"num_words": num_words} if asks and "num_words" not in factory.keywords else {}
    transform: nn.Module = make(section, "head.transform", nn.Module, **given)
    return transform


def make_head(section: Section, word_counts_V: Tensor, trunk: nn.Module) -> Head:
    """The untrained head of a configuration's section.

    Args:
        word_counts_V: int64, how often each word occurs in the training text.
        trunk: whose embedding it may be tied to.
    """
    mixture = make(section.get("mixture"), "head.mixture", nn.Module)
    transform = make_transform(section.get("transform"), len(word_counts_V))
    require_flag("head.tie_weights", section.get("tie_weights"))
    embedding_weight = trunk.embedding_weight if section["tie_weights"] else None
    assert embedding_weight is None or isinstance(embedding_weight, nn.Parameter)
    parts = HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=word_counts_V,
        embedding_weight=embedding_weight,
        chunk_mb=section.get("chunk_mb"),
    )
    # "loss" stands in configurations of earlier runs
    shared = ("mixture", "transform", "tie_weights", "loss", "chunk_mb", "start")
    own = {key: value for key, value in section.items() if key not in shared}
    if own.get("decoder_rank") is None:
        own.pop("decoder_rank", None)  # a user's class need not accept it
    head: Head = make(own, "head", Head, parts=parts)
    return head
