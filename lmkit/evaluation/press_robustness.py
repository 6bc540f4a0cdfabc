"""How far Press's rank of a run's log P can be trusted: rounding and noise on a known rank.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.errors import UserError
from lmkit.evaluation.load import LoadedRun
from lmkit.evaluation.memory import require_memory
from lmkit.module import LanguageModel
from lmkit.spectra.measures import measure
from lmkit.spectra.ranks import press_rank, press_tolerance
from lmkit.spectra.robustness import (
    add_noise,
    keep_top,
    noise_deviation,
    predicted_rank,
    round_trip,
)

TRUE_RANK = 10
ROUND_TRIPS = 10
NOISE = (1e-20, 1e-21, 1e-22, 1e-23, 1e-24, 1e-25)  # c
STEPS = 1 + ROUND_TRIPS + 1 + len(NOISE)
COPIES = 9  # of the float64 matrix at the peak, within a singular value decomposition


class Noisy(NamedTuple):
    """Ranks of the matrix with noise of variance c / V^2."""

    c: float
    press_rank: int
    predicted_rank: float  # by random-matrix theory
    effective_rank: dict[str, int | None]  # by epsilon: "0.001", "0.0001", "1e-05"


class Robustness(NamedTuple):
    """The study of one matrix of rank `true_rank`; tolerance in units of sigma_1, of float64."""

    num_contexts: int
    num_words: int
    true_rank: int
    tolerance: float
    round_trip_ranks: list[int]  # before the first, and after each
    round_trip_errors: list[float]  # of each: ||product - matrix|| / ||matrix||, Frobenius
    noise: list[Noisy]


def study(run: LoadedRun, num_contexts: int, seed: int, step: Callable[[str], None]) -> Robustness:
    """Parthiban et al. 2021, supplement, section 5, on the first test contexts.

    `step` is called with what comes next, before each of STEPS steps and once at the end.

    Raises: UserError when there are too few contexts or words, or too little memory.
    """
    windows = run.data.eval_windows("test")
    num_words = len(run.model.head.decoder_bias)
    if not TRUE_RANK < num_contexts <= windows.num_targets:
        raise UserError(
            f"contexts must be more than {TRUE_RANK} and at most {windows.num_targets}, those of "
            f"the test split, but is {num_contexts}"
        )
    if num_words <= TRUE_RANK:
        raise UserError(f"the study needs more than {TRUE_RANK} words, but there are {num_words}")
    size = f"{num_contexts:,} contexts x {num_words:,} words"
    require_memory(
        COPIES * 8 * num_contexts * num_words,
        run.model.device,
        f"the decomposition of {size} in float64",
        "choose a smaller contexts=N",
    )
    step("log P")
    matrix_NV = keep_top(_first_rows(run.model, windows, num_contexts), TRUE_RANK)
    tolerance = press_tolerance(num_contexts, num_words, torch.float64)
    ranks, errors = _round_trips(matrix_NV, tolerance, step)
    noise = []
    for index, c in enumerate(NOISE):
        step(f"noise, c = {c:g}")
        noise.append(_noisy(matrix_NV, c, seed + index, tolerance))
    step("done")
    return Robustness(num_contexts, num_words, TRUE_RANK, tolerance, ranks, errors, noise)


def predicted_ranks(found: Robustness, cs: Sequence[float]) -> list[float]:
    """What random-matrix theory predicts for noise of these c."""
    size = found.num_contexts, found.num_words
    deviations = (noise_deviation(c, found.num_words) for c in cs)
    return [predicted_rank(*size, d, found.tolerance, found.true_rank) for d in deviations]


def _first_rows(model: LanguageModel, windows, num_contexts: int) -> Tensor:
    """Log P of the first contexts, float32."""
    rows_NV = torch.empty(num_contexts, len(model.head.decoder_bias), device=model.device)
    seen = 0
    for block_NV in model.log_prob_rows(windows):
        part_NV = block_NV[: num_contexts - seen]
        rows_NV[seen : seen + len(part_NV)] = part_NV
        seen += len(part_NV)
        if seen == num_contexts:
            break
    return rows_NV


def _round_trips(
    matrix_NV: Tensor, tolerance: float, step: Callable[[str], None]
) -> tuple[list[int], list[float]]:
    ranks, errors = [], []
    for count in range(1, ROUND_TRIPS + 1):
        step(f"round trip {count} of {ROUND_TRIPS}")
        trip = round_trip(matrix_NV)
        ranks.append(press_rank(trip.singular_values_S, tolerance))
        errors.append(trip.relative_error)
        matrix_NV = trip.matrix_NV
    step("rank after the last round trip")
    ranks.append(press_rank(torch.linalg.svdvals(matrix_NV), tolerance))
    return ranks, errors


def _noisy(matrix_NV: Tensor, c: float, seed: int, tolerance: float) -> Noisy:
    num_contexts, num_words = matrix_NV.shape
    values = torch.linalg.svdvals(add_noise(matrix_NV, c, seed))
    found = measure(values, num_contexts, num_words, torch.float64, "svd", torch.float64)
    deviation = noise_deviation(c, num_words)
    predicted = predicted_rank(num_contexts, num_words, deviation, tolerance, TRUE_RANK)
    return Noisy(c, press_rank(values, tolerance), predicted, found.effective_rank)
