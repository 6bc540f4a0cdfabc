"""Press's rank of a matrix whose rank is known, under rounding and noise.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.predictor import Predictor
from lmkit.measures.memory import require_memory
from lmkit.spectra.measures import EPSILONS
from lmkit.spectra.ranks import press_tolerance
from lmkit.spectra.robustness import (
    Separated,
    add_noise,
    count_above,
    keep_top,
    noise_deviation,
    predicted_rank,
    round_trip,
    separated_effective_rank,
    split_off,
)

TRUE_RANK = 10
# float64 matrices at the peak of memory, LAPACK's workspace included
COPIES = {"svd": 9, "qr": 6}
# a tenth singular value below this share of the first is only the rows' float32 rounding
LEAST_SHARE = 1e-6


class RobustnessOptions(NamedTuple):
    """What is done to the matrix."""

    factorisation: str  # "svd" or "qr"
    round_trips: int
    noise: Sequence[float]  # c: the noise's variance is c / V^2
    seed: int  # of the noise


class Noisy(NamedTuple):
    """Ranks of the matrix with noise of variance c / V^2."""

    c: float
    press_rank: int
    predicted_rank: float  # by random-matrix theory
    effective_rank: dict[str, int | None]  # by epsilon; None where it is more than the true rank


class Robustness(NamedTuple):
    """The study of one matrix of rank `true_rank`."""

    num_contexts: int
    num_words: int
    true_rank: int
    tolerance: float  # Press's for float64, relative to the first singular value
    singular_values: list[float]  # those kept, relative to the first
    round_trip_ranks: list[int]  # before the first, and after each
    round_trip_errors: list[float]  # of each: ||product - matrix|| / ||matrix||, Frobenius
    noise: list[Noisy]


def num_steps(options: RobustnessOptions) -> int:
    """How often `study` calls `step`."""
    return 1 + options.round_trips + len(options.noise)


def study(
    model: Predictor,
    batches: Iterable[Batch],
    num_contexts: int,
    options: RobustnessOptions,
    step: Callable[[str], None],
) -> Robustness:
    """Parthiban et al. 2021, supplement, section 5, on log P of the first contexts.

    Args:
        step: called with a description of each step before it starts.

    Raises: UserError when there are too few contexts or words, when log P has fewer than ten
        singular values above its rounding, or when the memory does not suffice.
    """
    _require_size(options, num_contexts, len(model.head.decoder_bias), model.device)
    step("log P")
    return study_matrix(first_rows(model, batches, num_contexts), options, step)


def study_matrix(
    rows_NV: Tensor, options: RobustnessOptions, step: Callable[[str], None]
) -> Robustness:
    """The study of any matrix, reduced to its ten largest singular values."""
    num_contexts, num_words = rows_NV.shape
    matrix_NV = keep_top(rows_NV, TRUE_RANK)
    values = split_off(matrix_NV, TRUE_RANK).top_C.tolist()
    if values[-1] < LEAST_SHARE * values[0]:
        raise UserError(
            f"log P has fewer than {TRUE_RANK} singular values above its rounding (the last of "
            f"them is {values[-1] / values[0]:.1e} of the first): there is no rank to study"
        )
    tolerance = press_tolerance(num_contexts, num_words, torch.float64)
    noise = []
    for index, c in enumerate(options.noise):
        step(f"noise, c = {c:g}")
        noise.append(_noisy(matrix_NV, c, options.seed + index, tolerance))
    ranks, errors = _round_trips(matrix_NV, tolerance, options, step)
    relative = [value / values[0] for value in values]
    return Robustness(num_contexts, num_words, TRUE_RANK, tolerance, relative, ranks, errors, noise)


def first_rows(model: Predictor, batches: Iterable[Batch], num_contexts: int) -> Tensor:
    """Log P of the first contexts, float32."""
    rows_NV = torch.empty(num_contexts, len(model.head.decoder_bias), device=model.device)
    seen = 0
    for block_NV in model.log_prob_rows(batches):
        part_NV = block_NV[: num_contexts - seen]
        rows_NV[seen : seen + len(part_NV)] = part_NV
        seen += len(part_NV)
        if seen == num_contexts:
            break
    return rows_NV


def _require_size(
    options: RobustnessOptions, num_contexts: int, num_words: int, device: torch.device
) -> None:
    if min(num_contexts, num_words) <= TRUE_RANK:
        raise UserError(
            f"the study needs more than {TRUE_RANK} contexts and words, but there are "
            f"{num_contexts} and {num_words}"
        )
    require_memory(
        COPIES[options.factorisation] * 8 * num_contexts * num_words,
        device,
        f"the study of {num_contexts:,} contexts x {num_words:,} words in float64",
        "choose a smaller contexts=N" + " or factorisation=qr" * (options.factorisation == "svd"),
    )


def _round_trips(
    matrix_NV: Tensor,
    tolerance: float,
    options: RobustnessOptions,
    step: Callable[[str], None],
) -> tuple[list[int], list[float]]:
    ranks, errors = [_press_rank(matrix_NV, tolerance)], []
    for count in range(1, options.round_trips + 1):
        step(f"round trip {count} of {options.round_trips}")
        matrix_NV, error = round_trip(matrix_NV, options.factorisation)
        ranks.append(_press_rank(matrix_NV, tolerance))
        errors.append(error)
    return ranks, errors


def _press_rank(matrix_NV: Tensor, tolerance: float) -> int:
    return _rank(split_off(matrix_NV, TRUE_RANK), tolerance)


def _rank(separated: Separated, tolerance: float) -> int:
    limit = tolerance * float(separated.top_C[0])
    return int((separated.top_C > limit).sum()) + count_above(separated.rest_NV, limit)


def _noisy(matrix_NV: Tensor, c: float, seed: int, tolerance: float) -> Noisy:
    separated = split_off(add_noise(matrix_NV, c, seed), TRUE_RANK)
    effective = {f"{e:g}": separated_effective_rank(separated, e) for e in EPSILONS}
    num_contexts, num_words = matrix_NV.shape
    deviation = noise_deviation(c, num_words)
    predicted = predicted_rank(num_contexts, num_words, deviation, tolerance, TRUE_RANK)
    return Noisy(c, _rank(separated, tolerance), predicted, effective)
