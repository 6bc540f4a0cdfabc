"""Word similarity against scipy and the published counts; principal components."""

from pathlib import Path

import numpy as np
import pytest

from lmkit.analyses.embeddings import (
    BENCHMARKS,
    WordPair,
    _beside_the_corpus,
    principal_components,
    read_benchmarks,
    similarity,
)
from lmkit.data.corpus import TextCorpus
from lmkit.errors.user_error import UserError

# Parthiban et al. 2021, supplement, table 13: pairs, and those not in the vocabularies of PTB, WT2
PUBLISHED = {
    "WS-353": (353, 116, 48),
    "WS-353-SIM": (203, 66, 28),
    "WS-353-REL": (252, 80, 28),
    "RG-65": (65, 55, 20),
    "MC-30": (30, 21, 4),
    "MTurk-287": (287, 146, 106),
    "MTurk-771": (771, 346, 99),
    "MEN": (3000, 1952, 863),
    "YP-130": (130, 65, 43),
    "VERB-143": (144, 9, 0),
    "RW-STANFORD": (2034, 1889, 1605),
    "SimVerb-3500": (3500, 1746, 1080),
    "SimLex-999": (999, 424, 106),
}
PAIRS = [
    WordPair("a", "b", 3.0),
    WordPair("a", "c", 1.0),
    WordPair("b", "c", 2.0),
    WordPair("a", "x", 9.0),
]
VECTORS = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 3.0]], dtype=np.float32)


def test_benchmarks_lie_beside_the_corpus_whose_folder_may_be_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("2026/word_similarity").mkdir(parents=True)
    assert _beside_the_corpus({"data": {"root": 2026}}) == Path("2026/word_similarity")
    assert _beside_the_corpus({"data": {"root": "2025"}}) is None
    assert _beside_the_corpus({"data": {}}) is None


@pytest.mark.realdata
@pytest.mark.parametrize(("folder", "column"), [("penn", 1), ("wikitext-2", 2)])
def test_counts_are_those_of_the_paper(data_root, folder, column):
    corpus = TextCorpus(folder, str(data_root), folder).load()
    vocabulary = {word: index for index, word in enumerate(corpus.vocabulary)}
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), 3))
    benchmarks = read_benchmarks(data_root / "word_similarity")
    assert benchmarks.keys() == PUBLISHED.keys()
    for name, pairs in benchmarks.items():
        found = similarity(pairs, vocabulary, vectors)
        assert (found.pairs, found.skipped) == (PUBLISHED[name][0], PUBLISHED[name][column]), name


@pytest.mark.filterwarnings("error")
def test_too_few_or_equal_pairs_or_a_vector_of_zeros_have_no_rho_and_no_warning():
    assert similarity(PAIRS, {"a": 0, "b": 1}, VECTORS) == (None, 4, 3)
    equal = [pair._replace(score=1.0) for pair in PAIRS]
    assert similarity(equal, {"a": 0, "b": 1, "c": 2}, VECTORS).spearman is None
    assert similarity(PAIRS, {"a": 0, "b": 1, "c": 2}, VECTORS * [[0], [1], [1]]).spearman is None


def test_components_are_those_of_the_covariance():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 6)) * [9, 5, 3, 1, 0.5, 0.1] + 20
    variances = np.linalg.eigvalsh(np.cov(vectors.T))[::-1]
    shares = [0.5, 0.75, 0.95, 0.999]
    for share, count in zip(shares, principal_components(vectors, shares), strict=True):
        assert variances[:count].sum() >= share * variances.sum()
        assert variances[: count - 1].sum() < share * variances.sum()


def test_files_are_named_when_missing_or_damaged(tmp_path: Path):
    with pytest.raises(UserError, match=r"EN-WS-353-ALL\.txt does not exist"):
        read_benchmarks(tmp_path)
    for file in BENCHMARKS.values():
        (tmp_path / file).write_text("Tiger\tcat 7.35\n\n")
    assert read_benchmarks(tmp_path)["MEN"] == [WordPair("tiger", "cat", 7.35)]
    (tmp_path / "EN-MC-30.txt").write_text("tiger cat 7.35\ntiger cat\n")
    with pytest.raises(UserError, match=r"EN-MC-30\.txt, line 2: 'tiger cat'"):
        read_benchmarks(tmp_path)
