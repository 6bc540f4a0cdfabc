"""Press's rank of a matrix whose rank is known, under rounding and noise.

Shapes: N contexts, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.predictor import Predictor
from lmkit.measures.contexts import log_prob_blocks
from lmkit.measures.memory import require_memory
from lmkit.spectra.measures import EPSILONS, press_tolerance
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


class Robustness(NamedTuple):
    """The study of one matrix of rank `true_rank`; lists over c have an entry for each `noise`."""

    num_contexts: int
    num_words: int
    true_rank: int
    tolerance: float  # Press's for float64, relative to the first singular value
    round_trip_ranks: list[int]  # before the first, and after each
    round_trip_errors: list[float]  # of each: ||product - matrix|| / ||matrix||, Frobenius
    noise: list[float]  # c: its variance is c / V^2
    press_ranks: list[int]
    predicted_ranks: list[float]  # by random-matrix theory
    effective_ranks: dict[str, list[int | None]]  # by epsilon; None where more than the true rank


def study(
    model: Predictor,
    batches: Iterable[Batch],
    num_contexts: int,
    options: RobustnessOptions,
    step: Callable[[str], None],
) -> Robustness:
    """Parthiban et al. 2021, supplement, section 5, on log P of the first contexts.

    Args:
        step: called with a description of each step before it starts: log P, each noise and each
            round trip.

    Raises: UserError when there are too few contexts or words, when log P has fewer than ten
        singular values above its rounding, or when the memory does not suffice.
    """
    _require_size(options, num_contexts, len(model.head.decoder_bias), model.device)
    step("log P")
    rows_NV = torch.cat([rows for rows, _ in log_prob_blocks(model, batches, num_contexts)])
    return study_matrix(rows_NV, options, step)


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
    press_ranks, predicted_ranks, effective = [], [], []
    for index, c in enumerate(options.noise):
        step(f"noise, c = {c:g}")
        separated = split_off(add_noise(matrix_NV, c, options.seed + index), TRUE_RANK)
        deviation = noise_deviation(c, num_words)
        press_ranks.append(_rank(separated, tolerance))
        predicted_ranks.append(
            predicted_rank(num_contexts, num_words, deviation, tolerance, TRUE_RANK)
        )
        effective.append({e: separated_effective_rank(separated, e) for e in EPSILONS})
        del separated  # as large as the matrix
    round_trip_ranks, round_trip_errors = _round_trips(matrix_NV, tolerance, options, step)
    return Robustness(
        num_contexts,
        num_words,
        TRUE_RANK,
        tolerance,
        round_trip_ranks,
        round_trip_errors,
        list(options.noise),
        press_ranks,
        predicted_ranks,
        {f"{e:g}": [each[e] for each in effective] for e in EPSILONS},
    )


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
    matrix_NV: Tensor, tolerance: float, options: RobustnessOptions, step: Callable[[str], None]
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
    count = int((separated.top_C > limit).sum()) + count_above(separated.rest_NV, limit)
    num_contexts, num_words = separated.rest_NV.shape
    return min(count, num_contexts, num_words)  # roundings may pass the limit in place of the top
