"""A run's identity: a digest of everything that decides its numbers, and of nothing else.

The identity is an allowlist of sections. An option that does not change the numbers (a path, a
name, a logger, the budget of epochs and patience) is not in it; a rule that ends a run otherwise
than by patience is. An option at its default is left out of the digest, so that a new option
renames no run. Whoever changes the list, the meaning of an old value in it, or a default, raises
IDENTITY_VERSION.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.source import installed_beside, option_defaults, source_sha256

IDENTITY_VERSION = 3

_SECTIONS = (
    "trunk",
    "head",
    "module",
    "objective",
    "optimizer",
    "schedule",
    "trigger",
    "windows",
    "seed",
    "threads",
)
# Trainer options that change no number
_HARMLESS_OPTIONS = (
    "accelerator",  # device_kind stands for it
    "devices",
    "log_every_n_steps",
    "num_sanity_val_steps",
    "enable_model_summary",
    "enable_autolog_hparams",
    "profiler",
    "detect_anomaly",
    "model_registry",
)
# callbacks that only observe; any other is assumed to change numbers
_ONLOOKERS = (
    "lmkit.training.callbacks.cost.Cost",
    "lmkit.training.callbacks.epoch_end.EpochEnd",
    "lmkit.training.callbacks.gradient_bottleneck.GradientBottleneckCallback",
    "lmkit.training.callbacks.progress.EpochProgress",
    "lmkit.training.callbacks.spectrum.SpectrumCallback",
    "pytorch_lightning.callbacks.DeviceStatsMonitor",
    "pytorch_lightning.callbacks.LearningRateMonitor",
    "pytorch_lightning.callbacks.ModelSummary",
    "pytorch_lightning.callbacks.RichModelSummary",
    "pytorch_lightning.callbacks.RichProgressBar",
    "pytorch_lightning.callbacks.TQDMProgressBar",
)
PATIENCE = "lmkit.training.callbacks.stopping.Patience"
_FINDERS = tuple(f"hydra.utils.get_{kind}" for kind in ("class", "method", "object"))
_OURS = "lmkit."  # IDENTITY_VERSION stands for the source of these classes
_START = ("identity", "weights_sha256")  # of a run that starts from another's weights
_DIGEST_LENGTH = 12


class RunIdentity(NamedTuple):
    """The identity of a run: `settings` in full, `digest` in 12 hexadecimal digits."""

    settings: dict[str, object]
    digest: str

    @property
    def sources(self) -> dict[str, object]:
        """The hashes of the sources of the user's own classes."""
        sources = self.settings.get("sources", {})
        assert isinstance(sources, dict)
        return sources


def identity(
    config: Mapping[str, Any],
    data_sha256: str,
    device_kind: str,
    data_options: Mapping[str, Any] | None = None,
) -> RunIdentity:
    """The identity of the run that `config` describes.

    Args:
        config: the composed configuration as plain mappings, lists and scalars.
        data_sha256: fingerprint of the corpus, which stands for `config["data"]`.
        device_kind: what computes, such as "cpu" or "cuda": sums differ from one to the other.
        data_options: what else decides the data, of which the fingerprint says nothing.

    Raises: UserError naming the option that is missing, or not a number, text, list or mapping.
    """
    settings: dict[str, object] = {
        "identity_version": IDENTITY_VERSION,
        "data_sha256": data_sha256,
        "device_kind": device_kind,
    }
    for section in _SECTIONS:
        settings[section] = _canonical(_option(config, section), section)
    settings["trainer"] = {
        key: _canonical(value, f"trainer.{key}")
        for key, value in _option(config, "trainer").items()
        if key not in _HARMLESS_OPTIONS
    }
    callbacks = {
        key: _canonical(section, f"callbacks.{key}")
        for key, section in _option(config, "callbacks").items()
        if section is not None and not _only_looks_on(section, f"callbacks.{key}")
    }
    if callbacks:
        settings["callbacks"] = callbacks
    if data_options:
        settings["data"] = _canonical(data_options, "data")
    stopping = config["stopping"]
    is_given = isinstance(stopping, Mapping) and "finetuned_from" not in config  # which has its own
    if is_given and stopping.get("_target_") != PATIENCE:
        of_budget = [(name, config["patience"]) for name in ("epochs", "n")]
        rule = {key: v for key, v in stopping.items() if (key, v) not in of_budget}
        settings["stopping"] = _canonical(rule, "stopping")
    sources = _sources({*foreign_targets(settings), *foreign_targets(config["data"])})
    if sources:
        settings["sources"] = sources
    if "finetuned_from" in config:
        settings["finetuned_from"] = {key: config["finetuned_from"][key] for key in _START}
    text = json.dumps(without_defaults(settings), sort_keys=True, separators=(",", ":"))
    return RunIdentity(settings, hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH])


def _sources(targets: set[str]) -> dict[str, object]:
    """The hashes of the files of classes that have one."""
    if here := next((target for target in sorted(targets) if target.startswith("__main__.")), None):
        raise UserError(
            f"{here} is in the running program, where no other process finds it: put it into a "
            f"file of its own"
        )
    for target in targets:
        if (installed := installed_beside(target)) is not None:
            raise UserError(
                f"{target} is in the current folder and installed too, as {installed}, which would "
                f"count: uninstall it, or install the folder by pip install -e"
            )
    hashes = {target: source_sha256(target) for target in sorted(targets)}
    return {target: sha for target, sha in hashes.items() if sha is not None}


def without_defaults(value: Any) -> Any:
    """The settings that are hashed: without options at the default of their class."""
    if isinstance(value, list):
        return [without_defaults(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    target = value.get("_target_")
    defaults = option_defaults(target) if isinstance(target, str) else {}
    return {
        key: without_defaults(inner)
        for key, inner in value.items()
        if key not in defaults or _canonical(defaults[key], key) != inner
    }


def _only_looks_on(section: object, option: str) -> bool:
    if not isinstance(section, Mapping):
        without = "" if option == "callbacks.checkpoints" else ", or null to leave it out"
        raise UserError(f"{option} must be a section{without}, but is {section!r}")
    return section.get("_target_") in _ONLOOKERS


def foreign_targets(value: object) -> Iterator[str]:
    """The classes and functions from outside lmkit that are named within `value`."""
    if isinstance(value, Mapping):
        target = value.get("_target_")
        named = [target, value.get("path") if target in _FINDERS else None]
        yield from (name for name in named if isinstance(name, str) and name[:6] != _OURS)
        for inner in value.values():
            yield from foreign_targets(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from foreign_targets(inner)


def leaves(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested options, by its dotted name; an empty mapping is one."""
    for key, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _option(config: Mapping[str, Any], key: str) -> Any:
    if key not in config:
        raise UserError(f"{key} is missing from the configuration, and a run needs it")
    return config[key]


def _canonical(value: object, option: str) -> object:
    """`value` in the one form in which equal numbers are written alike: 1.0 as 1, -0.0 as 0."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"{option} must be a finite number, but is {value!r}")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner, f"{option}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner, f"{option}[{i}]") for i, inner in enumerate(value)]
    raise UserError(
        f"{option} must be a number, a text, a list or a mapping, but is a {type(value).__name__}"
    )
