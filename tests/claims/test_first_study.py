"""The first study: what its text says follows from the tables of the runs that are kept."""

from __future__ import annotations

from types import SimpleNamespace

import first_study as study
import pytest
from keeping import filled

from lmkit.runs.selection import select_runs

DID_NOT_TRAIN = "MoS (K=1, ET 7), failed"
BEST = "GSS (c=1.5, k=2.5, ET 7)"
PPL, PRESS = "test perplexity mean", "Press rank (10,000 contexts) mean"
Row = dict[str, float]


def interval(row: Row) -> tuple[float, float]:
    return row["95 % interval, method low"], row["95 % interval, method high"]


def test_the_kept_runs_are_whole_and_of_the_named_commit():
    selected = select_runs("runs", str(study.KEPT))
    assert not selected.left_out
    assert {run.result.provenance["git"]["dirty"] for run in selected.runs} == {False}
    (commit,) = {run.result.provenance["git"]["commit"] for run in selected.runs}
    assert f"git worktree add ../own-study {commit[:7]}\n" in study.TEMPLATE.read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_its_tables_are_those_of_the_kept_runs(lmkit, monkeypatch, tmp_path):
    run = SimpleNamespace(run=lambda words, check: lmkit(*words[3:]))  # after python -m lmkit
    monkeypatch.setattr(study, "subprocess", run)
    study.make_report(tmp_path / "all")
    study.make_report(tmp_path / "heads", study.SIX_HEADS)
    (tmp_path / "heads/tables").rename(tmp_path / "all/tables/heads")
    made, kept = study.tables(tmp_path / "all/tables"), study.tables()
    assert made.keys() == kept.keys()
    for table, rows in made.items():
        assert rows.keys() == kept[table].keys(), table
        for row, cells in rows.items():
            assert cells == {
                column: value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
                for column, value in kept[table][row].items()
            }


def test_its_text_is_its_template_with_the_numbers_of_its_tables():
    assert study.README.read_text("utf-8") == filled(study.TEMPLATE, study.numbers())
