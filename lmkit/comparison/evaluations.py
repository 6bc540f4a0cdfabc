"""What `lmkit evaluate` and `lmkit gradient_bottleneck` measured of the runs of a group."""

from __future__ import annotations

import json
from typing import NamedTuple

from lmkit.comparison.groups import Group, Spread, spread_of
from lmkit.comparison.run_files import Files, StoredKind
from lmkit.presentation.tables import number, whole, word
from lmkit.runs.analysis_files import Content

EVALUATE = StoredKind("evaluate", 1)  # what `lmkit evaluate` stores
GRADIENT = StoredKind("gradient_bottleneck", 2)  # what `lmkit gradient_bottleneck` stores
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
        for content in files.analyses(run, EVALUATE, check=_check_evaluation):
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
    return [*files.of_runs(group.runs, GRADIENT, check=check_gradient).values()]


def lost_norm(content: Content) -> float | None:
    """The share of the gradient's norm that is lost at the decoder: 1 - share that passes."""
    share = content["share"]
    return None if share is None else 1 - float(share)


def check_gradient(content: Content) -> None:
    """Raises a Python error where something is missing that the report reads."""
    for name in ("share", "mean_share", "isotropic_share"):
        number(content[name])
    whole(content["decoder_rank"]), word(content["split"]), whole(content["num_contexts"])


def _check_evaluation(content: Content) -> None:
    """As above."""
    if not isinstance(content["options"], dict) or not isinstance(content["ppl"], int | float):
        raise TypeError("options or ppl")
    str(content["method"]), str(content["split"]), str(content["checkpoint"])
