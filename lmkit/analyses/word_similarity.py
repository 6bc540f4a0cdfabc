"""Word vectors against human judgement of similarity, and their principal components. No torch.

Shapes: V vocabulary, E embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from lmkit.errors.user_error import UserError

# As the paper calls them, and the files of Faruqui and Dyer 2014
BENCHMARKS = {
    "WS-353": "EN-WS-353-ALL.txt",
    "WS-353-SIM": "EN-WS-353-SIM.txt",
    "WS-353-REL": "EN-WS-353-REL.txt",
    "RG-65": "EN-RG-65.txt",
    "MC-30": "EN-MC-30.txt",
    "MTurk-287": "EN-MTurk-287.txt",
    "MTurk-771": "EN-MTurk-771.txt",
    "MEN": "EN-MEN-TR-3k.txt",
    "YP-130": "EN-YP-130.txt",
    "VERB-143": "EN-VERB-143.txt",
    "RW-STANFORD": "EN-RW-STANFORD.txt",
    "SimVerb-3500": "EN-SimVerb-3500.txt",
    "SimLex-999": "EN-SIMLEX-999.txt",
}


class Pair(NamedTuple):
    """Two words, in lower case, and how similar people find them."""

    first: str
    second: str
    score: float


class Similarity(NamedTuple):
    """How well a benchmark's order of pairs is that of the vectors' cosines."""

    spearman: float | None  # None where fewer than two different values are left
    pairs: int  # of the benchmark
    skipped: int  # of these, with a word outside the vocabulary


def read_benchmarks(folder: Path) -> dict[str, list[Pair]]:
    """The benchmarks in a folder, by the paper's names.

    Raises: UserError naming the file that is missing or damaged.
    """
    return {name: _read(folder / file) for name, file in BENCHMARKS.items()}


def similarity(
    pairs: Sequence[Pair], vocabulary: Mapping[str, int], vectors_VE: np.ndarray
) -> Similarity:
    """Spearman's rho of scores and cosines, over the pairs with both words in the vocabulary."""
    known = [pair for pair in pairs if pair.first in vocabulary and pair.second in vocabulary]
    skipped = len(pairs) - len(known)
    if len(known) < 2:
        return Similarity(None, len(pairs), skipped)
    first, second = (
        vectors_VE[[vocabulary[word] for word in words]].astype(float)
        for words in ([p.first for p in known], [p.second for p in known])
    )
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / norms
    scores = [pair.score for pair in known]
    if np.ptp(cosines) == 0 or np.ptp(scores) == 0:
        return Similarity(None, len(pairs), skipped)
    rho = float(stats.spearmanr(scores, cosines).statistic)
    return Similarity(rho if math.isfinite(rho) else None, len(pairs), skipped)


def principal_components(vectors_VE: np.ndarray, shares: Sequence[float]) -> dict[str, int]:
    """By share: the least number of principal components with that share of the variance."""
    centred_VE = vectors_VE.astype(float) - vectors_VE.mean(axis=0, dtype=float)
    variances = np.linalg.svd(centred_VE, compute_uv=False) ** 2
    summed = np.cumsum(variances) / variances.sum()
    return {f"{share:g}": int(np.searchsorted(summed, share)) + 1 for share in shares}


def win_matrix(
    spearmans: Mapping[str, Mapping[str, float | None]],
) -> dict[str, dict[str, int]]:
    """On how many benchmarks the first run's rho is above the second's (Parthiban et al. 2021,
    figure 4), from runs' rhos by run and benchmark; benchmarks that one has no rho of are out."""
    return {
        a: {
            b: sum(
                one[name] > other[name]
                for name in one.keys() & other.keys()
                if one[name] is not None and other[name] is not None
            )
            for b, other in spearmans.items()
            if b != a
        }
        for a, one in spearmans.items()
    }


def _read(path: Path) -> list[Pair]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: benchmarks must be the folder of the word-similarity "
            f"benchmarks; `lmkit download word_similarity --root FOLDER` fetches it"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            first, second, score = line.split()
            pairs.append(Pair(first.lower(), second.lower(), float(score)))
        except ValueError:
            raise UserError(f"{path}, line {number}: {line!r} is no `word word score`") from None
    return pairs
