"""A run in flat fields, which W&B's scatter and parallel-coordinates panels can draw. No torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Value = str | int | float | bool

_MIXTURES = {"SingleContext": "none", "MixtureOfContexts": "moc", "MixtureOfSoftmaxes": "mos"}
_MIXTURES |= {"DirectOutputConnection": "doc"}
_TRANSFORMS = {
    "Identity": "identity",
    "SigSoftmax": "sigsoftmax",
    "GeneralizedSigSoftmax": "gss",
    "PiecewiseLinear": "plif",
    "MonotoneMLP": "monotone_mlp",
}
_HEADS = {"Mixtape": "mixtape", "AdversarialHead": "adversarial"}
_HEADS |= {"SpectrumControl": "spectrum_control", "MultiFacetSoftmax": "multi_facet"}
_SHORT = {"none": "", "identity": "", "sigsoftmax": "ss"}
_PERPLEXITIES = ("train_ppl", "valid_ppl", "test_ppl", "floor_ppl", "best_epoch", "true_rank")
_GROUPS = {"head/mixture": "mixture", "head/transform": "transform"}
_RANKS = ("press_rank", "stable_rank", "participation_ratio", "entropy_rank")


class Axis(NamedTuple):
    """An axis of a sweep."""

    option: str  # or group, as it is overridden
    field: str
    is_number: bool


def head_tag(head: Mapping[str, Mapping[str, object]]) -> str:
    """The head's short name: its kind if it has one, mixture and transform, as in mos_plif."""
    own = _HEADS.get(_class_name(head), _class_name(head)) if "_target_" in head else ""
    names = own, mixture_name(head), transform_name(head)
    return "_".join(filter(None, (_SHORT.get(name, name) for name in names))) or "softmax"


def mixture_name(head: Mapping[str, Mapping[str, object]]) -> str:
    """none, moc, mos, or the class of one that is not lmkit's."""
    name = _class_name(head["mixture"])
    return _MIXTURES.get(name, name)


def transform_name(head: Mapping[str, Mapping[str, object]]) -> str:
    """identity, sigsoftmax, gss, plif, monotone_mlp, or the class of one that is not lmkit's."""
    name = _class_name(head["transform"])
    return _TRANSFORMS.get(name, name)


def field_name(option: str) -> str:
    """The field of an option, in the letters, digits and _ that W&B takes: head_transform_c."""
    return _GROUPS.get(option) or re.sub(r"\W", "_", option)


def varied(lines: Sequence[Sequence[str]]) -> list[Axis]:
    """The axes of a sweep: what not all lines override alike, in order.

    What a sweep adds to each run for its logging is none.
    """
    number = Counter(override for line in lines for override in set(line))
    values: dict[str, list[str]] = {}
    for override in dict.fromkeys(override for line in lines for override in line):
        option, _, value = override.partition("=")
        if number[override] < len(lines) and not option.startswith("logger."):
            values.setdefault(option.lstrip("+~"), []).append(value)
    return [
        Axis(option, field_name(option), all(map(_is_number, found)))
        for option, found in values.items()
    ]


def run_fields(config: Mapping[str, object], axes: Sequence[str]) -> dict[str, Value]:
    """What a run is: its experiment, seed and head, and its values on the axes of its sweep."""
    head = config["head"]
    fields = {
        "experiment": config["name"],
        "seed": config["seed"],
        "head": head_tag(head),
        "mixture": mixture_name(head),
        "transform": transform_name(head),
    }
    for axis in axes:
        value = _option(config, axis)
        if isinstance(value, Value):
            fields.setdefault(field_name(axis), value)
    return fields


def result_fields(metrics: Mapping[str, object]) -> dict[str, Value]:
    """What a run found, of the `metrics` of its result: perplexities, and the ranks of log P.

    A rank that is unresolved has no field.
    """
    spectrum = metrics.get("test_spectrum", {})
    found = {name: metrics.get(name) for name in _PERPLEXITIES}
    found |= {name: spectrum.get(name) for name in _RANKS}
    for epsilon, rank in spectrum.get("effective_rank", {}).items():
        found[effective_rank_field(epsilon)] = rank
    found["rank_contexts"] = spectrum.get("num_contexts")
    return {name: value for name, value in found.items() if value is not None}


def effective_rank_field(epsilon: str) -> str:
    """Field of the effective rank at `epsilon`, "0.001" for one."""
    return field_name(f"effective_rank_{epsilon}")


def _option(config: Mapping[str, object], axis: str) -> object:
    """The option's value, the class of a group's choice; None where it is no option of a run."""
    value: object = config
    for key in re.split(r"[./]", axis.partition("@")[0]):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return _class_name(value) if isinstance(value, Mapping) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _class_name(section: Mapping[str, object]) -> str:
    return str(section.get("_target_")).rpartition(".")[2]
