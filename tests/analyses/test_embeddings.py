"""Word similarity against scipy and the published counts; principal components; wins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lmkit.analyses.embeddings import (
    BENCHMARKS,
    Embeddings,
    WordPair,
    principal_components,
    read_benchmarks,
    similarity,
    win_matrix,
)
from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.data.corpus import TextCorpus
from lmkit.errors.user_error import UserError
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Table
from lmkit.runs.analysis_files import analysis_file
from lmkit.runs.checksums import checked_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

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
        assert -1 <= found.spearman <= 1


def test_rho_is_scipys_over_known_pairs():
    found = similarity(PAIRS, {"a": 0, "b": 1, "c": 2}, VECTORS)
    cosines = [1 / 2**0.5, -1 / 10**0.5, 2 / 20**0.5]
    expected = stats.spearmanr([3.0, 1.0, 2.0], cosines).statistic
    assert found == (pytest.approx(expected), 4, 1)


def test_too_few_or_equal_pairs_have_no_rho():
    assert similarity(PAIRS, {"a": 0, "b": 1}, VECTORS) == (None, 4, 3)
    equal = [pair._replace(score=1.0) for pair in PAIRS]
    assert similarity(equal, {"a": 0, "b": 1, "c": 2}, VECTORS).spearman is None


def test_components_are_those_of_the_covariance():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 6)) * [9, 5, 3, 1, 0.5, 0.1] + 20
    variances = np.linalg.eigvalsh(np.cov(vectors.T))[::-1]
    counts = principal_components(vectors, ["0.5", "0.75", "0.95", "0.999"])
    assert list(counts) == ["0.5", "0.75", "0.95", "0.999"]
    for share, count in counts.items():
        assert variances[:count].sum() >= float(share) * variances.sum()
        assert variances[: count - 1].sum() < float(share) * variances.sum()


def test_wins_are_counted_over_shared_benchmarks():
    rho = {"x": {"s": 0.3, "t": 0.1}, "y": {"s": 0.2, "t": 0.1, "u": 0.5}}
    np.testing.assert_array_equal(win_matrix(rho), [[np.nan, 1], [0, np.nan]])


def test_files_are_named_when_missing_or_damaged(tmp_path: Path):
    with pytest.raises(UserError, match=r"EN-WS-353-ALL\.txt does not exist"):
        read_benchmarks(tmp_path)
    for file in BENCHMARKS.values():
        (tmp_path / file).write_text("Tiger\tcat 7.35\n\n")
    assert read_benchmarks(tmp_path)["MEN"] == [WordPair("tiger", "cat", 7.35)]
    (tmp_path / "EN-MC-30.txt").write_text("tiger cat 7.35\ntiger cat\n")
    with pytest.raises(UserError, match=r"EN-MC-30\.txt, line 2: 'tiger cat'"):
        read_benchmarks(tmp_path)


def measured_on(*benchmarks: str, spearman: float | None = 0.4) -> dict[str, object]:
    """What the analysis writes of a run, measured on these benchmarks."""
    known = {"spearman": spearman, "pairs": 237, "skipped": 116}
    return {
        "schema_version": 1,
        "kind": "embeddings",
        "checkpoint": "best",
        "averaged": True,
        "emb_dim": 400,
        "has_words": True,
        "word_similarity": dict.fromkeys(benchmarks, known),
        "principal_components": {"0.75": 100, "0.95": 250},
    }


@pytest.fixture
def section(tmp_path: Path, make_run):
    """The section on runs of softmax, GSS and MoS, with what was measured of each."""

    def of(softmax: dict, gss: dict, mos: dict) -> Section:
        runs = tmp_path / "runs"
        folders = (
            make_run(runs),
            make_run(runs, transform="gss"),
            make_run(runs, mixture="softmaxes"),
        )
        for folder, content in zip(folders, (softmax, gss, mos), strict=True):
            file = analysis_file(RunFolder(folder), "embeddings")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(checked_json(content))
        ((study,), _) = studies(
            select_runs("runs", str(runs)).runs, "softmax", experiment_config, Files()
        )
        (found,) = Embeddings.sections(study, Files())
        return found

    return of


def table_of(section: Section, key: str) -> Table:
    (table,) = (b for b in section.blocks if isinstance(b, Table) and b.key == key)
    return table


def test_a_group_without_benchmarks_is_named_and_the_others_keep_their_table(section):
    found = section(measured_on(), measured_on("WS-353", "RG-65"), measured_on("RG-65", "MC-30"))
    table = table_of(found, "word_similarity")
    assert [column.name for column in table.columns][-2:] == ["GSS", "MoS"]
    assert [row[0].text for row in table.rows] == ["WS-353", "RG-65", "MC-30"]
    assert [[cell.values[0] for cell in row[-2:]] for row in table.rows] == [
        [0.4, None],
        [0.4, 0.4],
        [None, 0.4],
    ]
    (wins,) = (block for block in found.blocks if block.key == "wins")
    assert "On how many of the 3 benchmarks" in wins.caption
    (missing,) = found.missing
    assert missing.startswith("no word similarity of Softmax: no benchmarks were there: lmkit")
    assert len(table_of(found, "components").rows) == 3


def test_why_groups_have_no_word_similarity(section):
    subwords = measured_on() | {"has_words": False}
    found = section(subwords, measured_on("RG-65", spearman=None), measured_on())
    assert [block.key for block in found.blocks] == ["components"]
    reasons = [
        line.removeprefix("no word similarity of ").split(": ")[:2] for line in found.missing
    ]
    assert reasons == [
        ["Softmax", "the tokens are subwords, not words"],
        ["GSS", "too few words of the benchmarks are in the vocabulary"],
        ["MoS", "no benchmarks were there"],
    ]
