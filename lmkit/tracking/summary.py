"""A run in flat fields, which W&B's scatter and parallel-coordinates panels can draw. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.runs.names import RunNames
from lmkit.runs.sweep_axes import varied_options
from lmkit.runs.sweep_folder import SweepFolder

Value = str | int | float | bool

DEFAULT_PROJECT = "lmkit"  # of a run that was trained without W&B
_NAMED = ("head", "trunk", "trigger", "data")  # sections whose kinds have names
_RESULTS = (
    "train_ppl",
    "valid_ppl",
    "test_ppl",
    "test_word_ppl",
    "test_bits_per_byte",
    "floor_ppl",
    "best_epoch",
    "true_rank",
)
_COSTS = ("parameters", "seconds_per_epoch")
_RANKS = ("press_rank", "stable_rank", "participation_ratio", "entropy_rank")


class PlotAxis(NamedTuple):
    """An axis of a sweep."""

    option: str  # or group, as it is overridden
    field: str
    is_number: bool


def axes_of(sweep: SweepFolder) -> list[PlotAxis]:
    """The options that the sweep varies, one per field, in order."""
    axes: dict[str, PlotAxis] = {}
    lines = [point.overrides for point in sweep.manifest.points]
    for option, values in varied_options(lines).items():
        field = field_name(option)
        axes.setdefault(field, PlotAxis(option, field, all(map(_is_number, values))))
    return list(axes.values())


def filed_as(config: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """The W&B project of a run with that configuration, and its tags."""
    for section in (config.get("logger") or {}).values():
        if isinstance(section, Mapping) and "project" in section:
            return section["project"], section.get("tags") or []
    return DEFAULT_PROJECT, []


def project_of(sweep: SweepFolder) -> str:
    """The W&B project of the first run of the sweep that has begun.

    Raises: UserError when the run's configuration is damaged.
    """
    for point in sweep.manifest.points:
        folder = sweep.run_folder(point)
        if folder.state() != "new":
            return filed_as(folder.read_config())[0]
    return DEFAULT_PROJECT


def field_name(option: str) -> str:
    """An option's field, in the letters, digits and _ that W&B takes: `head_transform_c`.

    The groups of a kind share its field: `head/mixture` and `head/transform` have `head`.
    """
    section = option.partition("/")[0]
    return section if section in _NAMED else re.sub(r"\W", "_", option)


def run_fields(config: Mapping[str, Any], names: RunNames, axes: Sequence[str]) -> dict[str, Value]:
    """A run's experiment, seed and kinds, and its values on the axes of its sweep."""
    fields: dict[str, Value] = {
        "experiment": config["name"],
        "seed": config["seed"],
        "head": names.head,
        "trunk": names.trunk,
        "trigger": names.trigger,
        "data": names.corpus_short,
    }
    for option in axes:
        value = _value(config, option)
        if isinstance(value, Value):
            fields.setdefault(field_name(option), value)
    return fields


def result_fields(metrics: Mapping[str, Any], cost: Mapping[str, Any]) -> dict[str, float]:
    """A run's results: perplexities, ranks and their contexts, parameters and seconds."""
    spectrum = metrics.get("test_spectrum", {})
    fields = {name: metrics.get(name) for name in _RESULTS}
    fields |= {name: cost.get(name) for name in _COSTS}
    fields["rank_contexts"] = spectrum.get("num_contexts")
    return rank_fields(spectrum) | {n: value for n, value in fields.items() if value is not None}


def rank_fields(measures: Mapping[str, Any]) -> dict[str, float]:
    """The ranks among a spectrum's measures; unresolved ones have no field."""
    fields = {name: measures.get(name) for name in _RANKS}
    for epsilon, rank in measures.get("effective_rank", {}).items():
        fields[effective_rank_field(epsilon)] = rank
    return {name: value for name, value in fields.items() if value is not None}


def effective_rank_field(epsilon: str) -> str:
    """The field of the effective rank at `epsilon`, such as "0.001"."""
    return field_name(f"effective_rank_{epsilon}")


def _value(config: Mapping[str, Any], option: str) -> object:
    """The value of an option, or the class that a group chose; None if a run has no such option."""
    value: object = config
    for key in re.split(r"[./]", option.partition("@")[0]):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return str(value.get("_target_")).rpartition(".")[2] if isinstance(value, Mapping) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
