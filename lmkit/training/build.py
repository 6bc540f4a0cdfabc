"""From a composed configuration to the objects it describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set

import pytorch_lightning as pl
from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from torch import Tensor, nn

from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.heads.head import Head, HeadParts
from lmkit.training.head_module import HeadModule

# what configurations mean that do not say
LANGUAGE_MODEL = {"_target_": "lmkit.training.language_model.LanguageModel"}
WINDOWS = "lmkit.data.datamodule.WindowsDataModule"


def create(section: dict, option: str, **arguments: object) -> object:
    """The object that `section` names by its `_target_`.

    Args:
        section: `_target_` and the arguments that the configuration gives.
        option: where the section stands in the configuration, for messages.
        arguments: what the configuration cannot know.

    Raises: UserError with the object's own complaint, or the reason why it cannot be made.
    """
    target = target_of(section, option)
    _check_arguments(target, {key for key in section if key != "_target_"}, option, set(arguments))
    try:
        return instantiate(section, **arguments)
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
            if isinstance(cause, UserError):
                raise cause from None
        reason = f"{type(cause).__name__}: {_flat(cause)}" if cause is not error else _flat(error)
        raise UserError(f"{option}: {section['_target_']} cannot be made: {reason}") from error


def build_model(config: dict, word_counts_V: Tensor) -> HeadModule:
    """The untrained model of a configuration (plain data, resolved).

    Parameters are drawn from torch's global generator, in a fixed order.

    Args:
        config: what to build.
        word_counts_V: how often each word occurs in the training text, int64; zeros where weights
            are loaded afterwards.
    """
    trunk = _create_module(config["trunk"], "trunk", num_words=len(word_counts_V))
    return _assemble(
        config.get("module", LANGUAGE_MODEL),
        "module",
        trunk=trunk,
        head=_head(config["head"], word_counts_V, trunk),
        objective=create(config["objective"], "objective"),
        optimizer=create(config["optimizer"], "optimizer"),
        log_every=config["callbacks"]["log_every"],
    )


def build_data(config: dict, corpus: object) -> pl.LightningDataModule:
    """The batches of a corpus. Raises: UserError naming the option that is wrong.

    They are windows, unless the section says what else.
    """
    section = {"_target_": WINDOWS} | config["windows"]
    return _assemble(section, "windows", corpus=corpus, seed=config["seed"])


def _assemble(section: dict, option: str, **parts: object) -> object:
    """As `create`, of `parts` that are shared with others and must not be copied, as Hydra does."""
    target = target_of(section, option)
    options = {key: value for key, value in section.items() if key != "_target_"}
    _check_arguments(target, set(options), option, set(parts))
    return target(**options, **parts)


def _head(section: dict, word_counts_V: Tensor, trunk: nn.Module) -> Head:
    """The head that the section names, of the parts that every head has."""
    parts = HeadParts(
        mixture=_create_module(section["mixture"], "head.mixture"),
        transform=_create_module(section["transform"], "head.transform"),
        word_counts_V=word_counts_V,
        embedding_weight=trunk.embedding_weight if section["tie_weights"] else None,
        loss=section["loss"],
        chunk_mb=section["chunk_mb"],
    )
    shared = ("mixture", "transform", "tie_weights", "loss", "chunk_mb")
    options = {key: value for key, value in section.items() if key not in shared}
    head = _assemble(options, "head", parts=parts)
    if not isinstance(head, Head):
        raise UserError(
            f"head._target_={section['_target_']} must be derived from lmkit.heads.head.Head"
        )
    return head


def _create_module(section: dict, option: str, **arguments: object) -> nn.Module:
    module = create(section, option, **arguments)
    if not isinstance(module, nn.Module):
        raise UserError(
            f"{option}._target_={section['_target_']} must be a torch.nn.Module, but makes a "
            f"{type(module).__name__}"
        )
    return module


def target_of(section: dict, option: str) -> Callable[..., object]:
    """What the `_target_` of a section names. Raises: UserError when that cannot be found."""
    name = section.get("_target_") if isinstance(section, dict) else None
    if not isinstance(name, str) or not name:
        raise UserError(f"{option}._target_ must name a class as module.Class, but is {name!r}")
    try:
        target = _locate(name)  # hydra.utils.get_object logs errors of its own
    except Exception as error:  # of any kind, when the user's own module fails to import
        raise UserError(
            f"{option}._target_={name} cannot be found ({_flat(error.__cause__ or error)}); it "
            f"must be module.Class, with the module's folder on PYTHONPATH"
        ) from error
    if not callable(target):
        raise UserError(f"{option}._target_={name} must be a class, but is {target!r}")
    return target


def _check_arguments(
    target: Callable[..., object], given: Set[str], option: str, supplied: Set[str]
) -> None:
    """Raises UserError for an option that `target` does not take, or one that it misses."""
    if isinstance(target, type) and target.__init__ is nn.Module.__init__:
        parameters = ()  # whatever its signature says
    else:
        try:
            parameters = tuple(inspect.signature(target).parameters.values())
        except ValueError:  # built-in types hide theirs
            return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    name = getattr(target, "__name__", str(target))
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    choices = [key for key in known if key not in supplied]
    takes = f"{name} takes {', '.join(choices)}" if choices else f"{name} takes no options"
    for key in sorted(given - set(known)):
        near = did_you_mean(f"{option}.{key}", [f"{option}.{choice}" for choice in choices])
        raise UserError(f"there is no option {option}.{key}{near}; {takes}")
    required = {p.name for p in parameters if p.default is p.empty and p.name in known}
    for key in sorted(required - given - supplied):
        raise UserError(f"{option}.{key} is missing: {takes}; set it with +{option}.{key}=VALUE")


def _flat(error: BaseException) -> str:
    return " ".join(str(error).split())
