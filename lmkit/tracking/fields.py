"""A run in flat fields, which W&B's scatter and parallel-coordinates panels can draw. No torch."""

from collections.abc import Mapping
from typing import Any

from lmkit.runs.names import RunNames

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


def run_fields(config: Mapping[str, Any], names: RunNames) -> dict[str, str | int]:
    """A run's experiment, seed and kinds. Its options are in the configuration."""
    return {
        "experiment": config["name"],
        "seed": config["seed"],
        "head": names.head,
        "trunk": names.trunk,
        "trigger": names.trigger,
        "data": names.corpus_short,
    }


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
    """The field of the effective rank at `epsilon`: W&B takes letters, digits and _."""
    return f"effective_rank_{epsilon}".replace(".", "_").replace("-", "_")
