"""Word vectors against human judgement of similarity, and their principal components.

Spearman's rho on 13 benchmarks, and the number of principal components that hold most of the
variance (Parthiban et al. 2021, figure 4, and supplement, tables 3 and 13).

Shapes: V vocabulary, E embedding.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.data.tokenizer import Words
from lmkit.errors.user_error import UserError, require_folder

# the paper's names, and the files of Faruqui and Dyer 2014
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


class WordPair(NamedTuple):
    """Two words, in lower case, and how similar people find them."""

    first: str
    second: str
    score: float


class Similarity(NamedTuple):
    """How well the vectors' cosines reproduce a benchmark's order of pairs."""

    spearman: float | None  # None where fewer than two different values are left
    pairs: int  # of the benchmark
    skipped: int  # of these, with a word outside the vocabulary


class WordVectors(Record):
    """By benchmark: rho, None where too few pairs are left, and pairs that are left out."""

    emb_dim: int = Field(title="dimension")
    has_words: bool  # false for subwords, which no benchmark has
    components_75: int = Field(title="components for 75 %")  # of the variance
    components_95: int = Field(title="for 95 %")
    mean_spearman: float | None = Field(title="mean ρ")  # over the benchmarks that have one
    spearman: dict[str, float | None]
    pairs: dict[str, int]
    skipped: dict[str, int]  # of the pairs, with a word outside the vocabulary


class Embeddings(Analysis):
    """The geometry of the input embedding, which is also the decoder where weights are tied.

    Args:
        benchmarks: folder of the benchmarks; None: word_similarity beside the run's corpus, if it
        exists.
    """

    name, record, title = "embeddings", WordVectors, "Embeddings"

    def __init__(self, *, benchmarks: str | None) -> None:
        if benchmarks is not None:
            require_folder("benchmarks", benchmarks)
        self.benchmarks = None if benchmarks is None else Path(benchmarks)

    def measure(self, subject: Subject) -> Recorded:
        model, data = subject.language_model
        run, words = subject.loaded_run, data.corpus.vocabulary
        vectors_VE = model.trunk.embedding_weight.detach().cpu().numpy()
        vocabulary = {word: index for index, word in enumerate(words)}
        has_words = isinstance(run.source.tokenizer_by(words), Words)
        folder = self.benchmarks or _beside_the_corpus(run.config)
        benchmarks = {} if folder is None or not has_words else read_benchmarks(folder)
        found = {
            name: similarity(pairs, vocabulary, vectors_VE) for name, pairs in benchmarks.items()
        }
        known = [each.spearman for each in found.values() if each.spearman is not None]
        components_75, components_95 = principal_components(vectors_VE, [0.75, 0.95])
        return Recorded(
            WordVectors(
                emb_dim=vectors_VE.shape[1],
                has_words=has_words,
                components_75=components_75,
                components_95=components_95,
                mean_spearman=float(np.mean(known)) if known else None,
                spearman={name: each.spearman for name, each in found.items()},
                pairs={name: each.pairs for name, each in found.items()},
                skipped={name: each.skipped for name, each in found.items()},
            )
        )

    def lines(self, record: WordVectors) -> list[str]:
        if not record.has_words:
            return ["no word similarity: the tokens are subwords, not words"]
        if not record.spearman:
            return ["no word similarity: give the benchmarks as benchmarks=FOLDER"]
        return []

    @classmethod
    def in_print(cls, record: WordVectors) -> dict[str, float | None]:
        return {f"embeddings.{name}": rho for name, rho in record.spearman.items()}


def read_benchmarks(folder: Path) -> dict[str, list[WordPair]]:
    """The benchmarks in a folder, by the paper's names.

    Raises: UserError naming the file that is missing or damaged.
    """
    return {name: _read(folder / file) for name, file in BENCHMARKS.items()}


def similarity(
    pairs: Sequence[WordPair], vocabulary: Mapping[str, int], vectors_VE: np.ndarray
) -> Similarity:
    """Spearman's rho of scores and cosines, over the pairs with both words in the vocabulary.

    A pair that occurs twice in a file counts twice (WS-353: money, cash); Parthiban et al. count it
    once.
    """
    known = [pair for pair in pairs if pair.first in vocabulary and pair.second in vocabulary]
    first, second = (
        vectors_VE[[vocabulary[word] for word in words]].astype(float)
        for words in ([p.first for p in known], [p.second for p in known])
    )
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    scores = [pair.score for pair in known]
    # of a vector of zeros, whose cosines are NaN, and of constant values, whose rho is
    with warnings.catch_warnings(action="ignore"):
        cosines = (first * second).sum(axis=1) / norms
        rho = float(stats.spearmanr(scores, cosines).statistic)
    return Similarity(rho if math.isfinite(rho) else None, len(pairs), len(pairs) - len(known))


def principal_components(vectors_VE: np.ndarray, shares: Sequence[float]) -> list[int]:
    """The smallest number of principal components that hold each share of the variance."""
    centred_VE = vectors_VE.astype(float) - vectors_VE.mean(axis=0, dtype=float)
    variances = np.linalg.svd(centred_VE, compute_uv=False) ** 2
    summed = np.cumsum(variances) / variances.sum()
    return [int(each) + 1 for each in np.searchsorted(summed, shares)]


def _read(path: Path) -> list[WordPair]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: benchmarks must be the folder of the word-similarity "
            f"benchmarks; `lmkit download word_similarity root=FOLDER` fetches it"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    pairs = []
    for position, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            first, second, score = line.split()
            pairs.append(WordPair(first.lower(), second.lower(), float(score)))
        except ValueError:
            raise UserError(f"{path}, line {position}: {line!r} is not `word word score`") from None
    return pairs


def _beside_the_corpus(config: Mapping[str, Any]) -> Path | None:
    root = config["data"].get("root")
    folder = None if root is None else Path(os.path.expanduser(str(root))) / "word_similarity"
    return folder if folder is not None and folder.is_dir() else None
