"""What is read of runs beside their results, and what is named as damaged."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lmkit.analyses.one_per_head import having
from lmkit.analyses.rank import Rank
from lmkit.analyses.samples import Samples
from lmkit.comparison.run_files import RANK, Files, StoredKind
from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

LOGITS, SAMPLES, DIALOGUE = (StoredKind(name, 1) for name in ("logits", "samples", "dialogue"))


@pytest.fixture
def runs(tmp_path, make_run):
    """Two runs of one head, by seed."""
    for seed in (1, 2):
        make_run(tmp_path, seed, 57 + seed)
    return sorted(select_runs("run", str(tmp_path)).runs, key=lambda run: run.seed)


def write(folder: RunFolder, stem: str, kind: str = "", version: int = 1, **content: object):
    return write_analysis(
        folder,
        stem,
        content,
        kind=kind or stem,
        schema_version=version,
        checkpoint="best",
        averaged=True,
    )


class Curve(NamedTuple):
    curve: list[int]


class Edges(NamedTuple):
    edges: list[float]


def test_an_analysis_is_handed_out_where_its_version_and_content_fit(runs):
    first, second = runs
    write(first.folder, "logits", curve=[1])
    write(second.folder, "logits", version=2)
    files = Files()
    assert files.analysis(first, LOGITS)["curve"] == [1]
    assert files.analysis(first, LOGITS._replace(form=Curve)) is not None
    assert files.analysis(first, SAMPLES) is None
    assert files.damaged == []
    for _ in range(2):
        assert files.analysis(second, LOGITS) is None
        assert files.analysis(first, LOGITS._replace(form=Edges)) is None
    assert files.damaged == [
        (f"{second.name}/analysis/logits.json",
         "it has schema version 2, and this lmkit reads 1; update lmkit"),
        (f"{first.name}/analysis/logits.json",
         "it is damaged: edges is missing; remove it and measure again"),
    ]  # fmt: skip
    assert files.analysis(second, StoredKind("logits", 2)) is not None


def test_an_analysis_that_raises_its_version_is_read_by_its_section(
    runs, study_of, tmp_path, monkeypatch
):
    texts = ["Once there was"]
    write(runs[0].folder, "samples", version=2, texts=texts, temperature=1.0, top_k=None, seed=1)
    monkeypatch.setattr(Samples, "schema_version", 2)
    study, _ = study_of(tmp_path)
    (section,) = Samples.sections(study, Files())
    assert [passage.text for passage in section.blocks] == texts


def test_the_ranks_that_are_read_are_those_that_the_analysis_stores():
    assert (Rank.name, Rank.schema_version) == RANK[:2]


def test_the_representative_is_the_median_run_that_has_the_analysis(runs, study_of, tmp_path):
    assert Files().representative(runs, SAMPLES) is None
    write(runs[1].folder, "samples", texts=["here"])
    files = Files()
    assert files.representative(runs, SAMPLES)["texts"] == ["here"]
    assert list(files.of_runs(runs, SAMPLES)) == [runs[1]]
    study, _ = study_of(tmp_path)
    assert having(study, SAMPLES) == ([study.groups[0]], [])
    assert having(study, DIALOGUE) == ([], ["Softmax"])


def test_ranks_are_those_of_training_and_those_measured_later(runs, study_of, tmp_path):
    for run, stem, rank in (
        (runs[0], "rank_test_log_probs_82429", 410),
        (runs[1], "rank_test_log_probs_82429", 420),
        (runs[0], "rank_valid_log_probs_500", 90),
        (runs[0], "rank_test_log_probs_300_last", 80),
        (runs[0], "rank_test_transformed_logits_300", 70),
    ):
        write(run.folder, stem, "rank", spectrum={"press_rank": rank})
    (runs[1].folder.analysis / "rank_test_log_probs_7.json").write_text("{")
    files = Files()
    measured, _ = (files.measurements(run) for run in runs)
    assert [(m.split, m.num_contexts, m.file) for m in measured] == [
        ("test", 10000, "test_log_probs.npz"),
        ("test", 82429, "test_log_probs_82429.npz"),
        ("valid", 500, "valid_log_probs_500.npz"),
    ]
    study, _ = study_of(tmp_path)
    assert study.contexts == 82429
    assert study.groups[0].rank(82429).mean == 415
    assert study.groups[0].rank(500) is None
    assert [each.name for each in files.damaged] == [
        f"{runs[1].name}/analysis/rank_test_log_probs_7.json"
    ]


def test_a_run_measured_again_over_the_same_contexts_has_the_later_ranks_alone(runs):
    write(runs[0].folder, "rank_test_log_probs_10000", "rank", spectrum={"press_rank": 77})
    (measured,) = Files().measurements(runs[0])
    assert (measured.num_contexts, measured.spectrum["press_rank"]) == (10000, 77)
    assert measured.file == "test_log_probs_10000.npz"


def test_spectra_and_epochs(runs):
    files = Files()
    assert files.spectrum(runs[0], "test_log_probs.npz").relative_S[0] == 1
    assert files.spectrum(runs[0], "nowhere.npz") is None
    assert [row["epoch"] for row in files.epochs(runs[0])] == [1, 2, 3]
    assert files.damaged == []
    runs[1].folder.metrics.write_text("nothing\n")
    assert files.epochs(runs[1]) == []
    (damaged,) = files.damaged
    assert damaged.name == f"{runs[1].name}/metrics.csv"
    assert damaged.reason.startswith("it is damaged")


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_metrics_that_were_emptied_or_cut_are_damaged(runs, lines):
    whole = runs[0].folder.metrics.read_text()
    runs[0].folder.metrics.write_text("".join(whole.splitlines(keepends=True)[:lines]))
    files = Files()
    assert files.epochs(runs[0]) == []
    (damaged,) = files.damaged
    assert damaged.name == f"{runs[0].name}/metrics.csv"
    runs[0].folder.metrics.write_text(whole)
    assert files.epochs(runs[1]) != []
    assert len(Files().epochs(runs[0])) == 3
