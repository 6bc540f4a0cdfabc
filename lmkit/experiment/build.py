"""Makes the objects of a training that a configuration describes; errors are one line."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import Tensor

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import Section, factory_of, make
from lmkit.experiment.parts import build_head, build_trunk
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule
from lmkit.training.objective import RegularizedNLL
from lmkit.training.schedule import Schedule


def require_fit(config: Section, source: Corpus) -> None:
    """Raises: UserError where data, windows, module and trunk are not made for each other."""
    kinds = {option: _class_of(config[option], option) for option in ("windows", "module", "trunk")}
    windows, module, trunk = kinds.values()
    if not issubclass(windows, DataModule) or not issubclass(module, HeadModule):
        return  # which is refused when it is made
    misfits = (
        ("windows", windows, source.splits, windows.takes, "data"),
        ("module", module, windows.makes, module.takes, "windows"),
        ("module", module, trunk, module.trunk_kind, "trunk"),
    )
    for option, kind, given, taken, giver in misfits:
        if not issubclass(given, taken):
            raise UserError(
                f"{option} is {kind.__name__}, which takes {taken.__name__}, but {giver} gives "
                f"{given.__name__}: data={source.name} goes with {source.goes_with}"
            )


def _class_of(section: object, option: str) -> type[object]:
    """The class that a section names; object for another way to make one."""
    made = factory_of(section, option).func
    return made if isinstance(made, type) else object


def build_model(config: Section, word_counts_V: Tensor) -> HeadModule:
    """The untrained model of a configuration (plain data, resolved).

    Parameters are drawn from torch's global generator, in a fixed order.

    Args:
        word_counts_V: int64, how often each word occurs in the training text; zeros will do for a
            model whose weights are loaded afterwards.
    """
    trunk = build_trunk(config, len(word_counts_V))
    module: HeadModule = make(
        config["module"],
        "module",
        HeadModule,
        trunk=trunk,
        head=build_head(config["head"], word_counts_V, trunk),
        objective=make(config["objective"], "objective", RegularizedNLL),
        optimizer=factory_of(config["optimizer"], "optimizer"),
        schedule=make(config["schedule"], "schedule", Schedule),
    )
    return module


def model_without_weights(config: Section, num_words: int) -> HeadModule:
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
