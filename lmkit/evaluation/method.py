"""What predicts a text after training: one contract for every method of `lmkit evaluate`.

A method that a part of the model cannot do is refused by that part: its class names the method and
the reason in `cannot_evaluate`, such as `cannot_evaluate = {"dynamic": "it has no gradient"}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import yaml

from lmkit.data.windows import EvalWindows, columns
from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import LoadedRun
from lmkit.evaluation.perplexity import Perplexity
from lmkit.runs.folder import RunFolder
from lmkit.training.build import target_of


class Point(NamedTuple):
    """What a search found at one point of its grid."""

    options: dict[str, float]
    perplexity: float


class Method:
    """A way to predict a text with a trained model. Making one checks its options."""

    kind: str  # names the method, whatever its values

    def options(self) -> dict[str, object]:
        """The values with which it predicts."""
        raise NotImplementedError

    def measure(self, run: LoadedRun, split: str) -> Perplexity:
        """Predicts all of a split."""
        raise NotImplementedError

    def search(self, run: LoadedRun, windows: EvalWindows) -> list[Point]:
        """Predicts the windows with the values of each point of the grid."""
        raise NotImplementedError

    def at(self, options: Mapping[str, float]) -> Self:
        """The same method with the values of a point."""
        raise NotImplementedError

    def grid(self) -> dict[str, Sequence[float]]:
        """The values that are searched, by option; empty where there is nothing to search."""
        raise NotImplementedError

    def search_length(self) -> int:
        """Length of the windows that `search` wants."""
        raise NotImplementedError


def one_column(
    run: LoadedRun, split: str, length: int, num_targets: int | None = None
) -> EvalWindows:
    """A split, or so many predicted tokens from its start, as one stream in windows of `length`.

    All that comes before a word is known when it is predicted: valid is not laid out in columns.

    Raises: UserError naming `search_tokens` when the split has fewer.
    """
    tokens = getattr(run.data.corpus, split)
    if num_targets is not None and num_targets > len(tokens) - 1:
        raise UserError(
            f"search_tokens={num_targets} is more than the {len(tokens) - 1:,} predicted tokens of "
            f"{split}; null takes these"
        )
    tokens = tokens if num_targets is None else tokens[: num_targets + 1]
    return EvalWindows(columns(tokens, 1), length)


def as_perplexity(nll: float, num_tokens: int) -> Perplexity:
    """The perplexity of `num_tokens` tokens whose mean negative log-likelihood is `nll`."""
    ppl = math.exp(nll) if nll < 700 else math.inf
    return Perplexity(nll, ppl, nll / math.log(2), num_tokens)


def refuse_what_cannot(folder: RunFolder, kind: str) -> None:
    """Raises UserError, before anything is loaded, when a part of the run's model cannot do it."""
    try:
        config = yaml.safe_load(folder.config.read_bytes())
        head = config["head"]
        sections = {
            "trunk": config["trunk"],
            "head.mixture": head["mixture"],
            "head.transform": head["transform"],
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{folder.config} cannot be read ({error}): give a run's folder") from None
    for option, section in sections.items():
        target = target_of(section, option)
        reasons = getattr(target, "cannot_evaluate", {})
        if kind in reasons:
            raise UserError(
                f"method={kind} cannot be done with {option}={target.__name__}: {reasons[kind]}"
            )
