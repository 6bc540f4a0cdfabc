"""What `lmkit evaluate` and `lmkit gradient_bottleneck` measured of the runs of a group."""

from __future__ import annotations

import json
from typing import NamedTuple

from lmkit.comparison.groups import Group, Spread, spread_of
from lmkit.comparison.run_files import Files, StoredKind
from lmkit.runs.analysis_files import Content


class _StoredEvaluation(NamedTuple):
    checkpoint: str
    split: str
    method: str
    options: dict[str, object]
    ppl: float


class StoredGradient(NamedTuple):
    """Of the shares of the gradient that pass the decoder, what is read here and in the report."""

    split: str
    num_contexts: int
    decoder_rank: int | None
    share: float | None
    mean_share: float | None
    isotropic_share: float | None
    update_rank: int | None
    update_bound: int | None
    update_cosine: float | None


EVALUATE = StoredKind("evaluate", 1, _StoredEvaluation)  # what `lmkit evaluate` stores
# what `lmkit gradient_bottleneck` stores
GRADIENT = StoredKind("gradient_bottleneck", 2, StoredGradient)
STATIC = "static"
_SPLITS = ("valid", "test")


class Evaluated(NamedTuple):
    """A group's perplexities by one method with the same values."""

    method: str
    options: dict[str, object]
    valid: Spread | None  # of the runs that were evaluated on valid
    test: Spread | None

    @property
    def num_runs(self) -> int:
        return max(spread.n for spread in (self.valid, self.test) if spread is not None)


def as_trained(group: Group) -> Evaluated:
    """The perplexities with which the runs ended."""
    return Evaluated(STATIC, {}, *(spread_of(group.values(f"{split}_ppl")) for split in _SPLITS))


def evaluations(group: Group, files: Files) -> list[Evaluated]:
    """What was measured of the best checkpoints by any method but the trained weights as such."""
    perplexities: dict[tuple[str, str], dict[str, list[float]]] = {}
    options: dict[tuple[str, str], dict[str, object]] = {}
    for run in group.runs:
        for content in files.analyses(run, EVALUATE):
            counts = content["checkpoint"] == "best" and content["split"] in _SPLITS
            if not counts or content["method"] == STATIC:
                continue
            key = content["method"], json.dumps(content["options"], sort_keys=True)
            options[key] = content["options"]
            perplexities.setdefault(key, {}).setdefault(content["split"], []).append(content["ppl"])
    return [
        Evaluated(key[0], options[key], *(spread_of(splits.get(split, [])) for split in _SPLITS))
        for key, splits in sorted(perplexities.items())
    ]


def options_text(options: dict[str, object]) -> str:
    """`window 500, theta 1`."""
    return ", ".join(
        f"{option.replace('_', ' ')} {value:g}"
        if isinstance(value, int | float)
        else f"{option.replace('_', ' ')} {value}"
        for option, value in options.items()
    )


def gradients(group: Group, files: Files) -> list[Content]:
    """The shares of the gradient that pass the decoder, of each run in which they were measured."""
    return [*files.of_runs(group.runs, GRADIENT).values()]


def lost_norm(content: Content) -> float | None:
    """The share of the gradient's norm that is lost at the decoder: 1 - share that passes."""
    share = content["share"]
    return None if share is None else 1 - float(share)
