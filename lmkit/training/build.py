"""Makes the objects that a configuration describes, with Hydra; errors are one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import (  # type: ignore[attr-defined]  # no __all__
    MisconfigurationException,
)
from torch import Tensor, nn

from lmkit.data.datamodule import DataModule
from lmkit.errors.user_error import UserError, require_flag
from lmkit.heads.head import Head, HeadParts
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule
from lmkit.training.misfit import misfit
from lmkit.training.objective import RegularizedNLL
from lmkit.training.schedule import Schedule

Section = Mapping[str, Any]


def make(section: object, option: str, kind: type = object, /, **parts: object) -> Any:
    """The object that `section` names by its `_target_`.

    Args:
        section: `_target_` and the options that the configuration gives.
        option: where the section stands in the configuration, for messages.
        kind: what the object must be an instance of.
        parts: further arguments, which the configuration cannot know. They are not copied.

    Raises: UserError with the object's own complaint, or the reason why it cannot be made.
    """
    factory = factory_of(section, option)
    try:
        made = factory(**parts)
    except InstantiationException as error:
        raise _in_one_line(error, option) from error
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise misfit(error, factory, option, parts) from error
    if not isinstance(made, kind):
        assert isinstance(section, Mapping)  # or it would have no factory
        raise UserError(
            f"{option}._target_={section['_target_']} must be a {kind.__module__}.{kind.__name__}, "
            f"but makes a {type(made).__name__}"
        )
    return made


def factory_of(section: object, option: str) -> partial[Any]:
    """The class that `section` names, with its options; a call adds the arguments that are missing.

    Raises: UserError as `make` does.
    """
    if not isinstance(section, Mapping):
        group = option.replace(".", "/")
        choose = f"choose one with {group}=NAME"
        raise UserError(f"{option} must be a section of options, but is {section}; {choose}")
    target = section.get("_target_")
    if not isinstance(target, str) or not target:
        raise UserError(f"{option}._target_ must name a class as module.Class, but is {target!r}")
    try:
        factory: partial[Any] = instantiate(dict(section), _partial_=True, _convert_="all")
    except InstantiationException as error:
        raise _in_one_line(error, option) from error
    return factory


def build_model(config: Section, word_counts_V: Tensor) -> HeadModule:
    """The untrained model of a configuration (plain data, resolved).

    Parameters are drawn from torch's global generator, in a fixed order.

    Args:
        word_counts_V: int64, how often each word occurs in the training text; zeros will do for a
            model whose weights are loaded afterwards.
    """
    trunk = make(config["trunk"], "trunk", nn.Module, num_words=len(word_counts_V))
    module: HeadModule = make(
        config["module"],
        "module",
        HeadModule,
        trunk=trunk,
        head=_head(config["head"], word_counts_V, trunk),
        objective=make(config["objective"], "objective", RegularizedNLL),
        optimizer=factory_of(config["optimizer"], "optimizer"),
        schedule=make(config["schedule"], "schedule", Schedule),
    )
    return module


def build_model_without_weights(config: Section, num_words: int) -> HeadModule:
    """`build_model` on the meta device: shapes alone, which take no memory."""
    with torch.device("meta"):
        return build_model(config, torch.zeros(num_words, dtype=torch.long))


def build_data(config: Section, corpus: object) -> DataModule:
    """The batches of a corpus. Raises: UserError naming the option that is wrong."""
    seed = config["seed"]
    data: DataModule = make(config["windows"], "windows", DataModule, corpus=corpus, seed=seed)
    return data


def build_callbacks(config: Section, module: HeadModule) -> list[pl.Callback]:
    """The configured callbacks, in their order.

    Raises: UserError naming the option that is wrong, or one that does not go with the module.
    """
    callbacks: list[pl.Callback] = []
    for name, section in config["callbacks"].items():
        if section is None:
            continue
        callback = make(section, f"callbacks.{name}", pl.Callback)
        if isinstance(callback, RunCallback):
            callback.check(module)
        callbacks.append(callback)
    return callbacks


def build_loggers(config: Section) -> list[Logger]:
    """The configured loggers, in their order. Raises: UserError naming the option that is wrong."""
    sections = config["logger"].items()
    return [make(s, f"logger.{name}", Logger) for name, s in sections if s is not None]


def _head(section: Section, word_counts_V: Tensor, trunk: nn.Module) -> Head:
    mixture, transform = (
        make(section.get(part), f"head.{part}", nn.Module) for part in ("mixture", "transform")
    )
    require_flag("head.tie_weights", section.get("tie_weights"))
    embedding_weight = trunk.embedding_weight if section["tie_weights"] else None
    assert embedding_weight is None or isinstance(embedding_weight, nn.Parameter)
    parts = HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=word_counts_V,
        embedding_weight=embedding_weight,
        loss=section.get("loss", "chunked"),
        chunk_mb=section.get("chunk_mb"),
    )
    shared = ("mixture", "transform", "tie_weights", "loss", "chunk_mb")
    own = {key: value for key, value in section.items() if key not in shared}
    head: Head = make(own, "head", Head, parts=parts)
    return head


def _in_one_line(error: InstantiationException, option: str) -> UserError:
    """In one line, what Hydra says over several lines and causes."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
        if isinstance(cause, UserError):
            return cause
    text = str(error)
    within = re.search(r"^full_key: (.+)$", text, re.MULTILINE)
    where = f"{option}.{within[1]}" if within and within[1] != option else option
    reason = " ".join(str(cause).split("full_key:")[0].split())
    target = re.search(r"Error locating target '([^']+)'", text)
    if target:
        return UserError(
            f"{where}._target_={target[1]} cannot be imported: {reason}; it must be module.Class, "
            f"with the module's folder on PYTHONPATH"
        )
    return UserError(f"{where}: {reason}")
