"""The script of lmkit's own study keeps finished runs, and puts them back."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs
from tests.conftest import REPOSITORY


@pytest.fixture
def study() -> ModuleType:
    path = REPOSITORY / "docs/study/study.py"
    spec = importlib.util.spec_from_file_location("own_study", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_kept_and_put_back_is_a_finished_run(study, make_run, tmp_path: Path):
    run = make_run(tmp_path / "there", 1, 131.7, 66, name="penn_study")
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "last.ckpt").write_bytes(b"large")
    unfinished = make_run(tmp_path / "there", 2, 130.7, 66, name="penn_study")
    (unfinished / "result.json").unlink()
    kept, back = tmp_path / "kept", tmp_path / "back"
    assert study.copy_finished(tmp_path / "there", kept) == 1
    assert study.copy_finished(tmp_path / "there", kept) == 0
    assert study.copy_finished(kept, back) == 1
    (restored,) = select_runs("runs", str(back)).runs
    assert restored.result.metrics == RunFolder(run).read_result().metrics
    assert restored.folder.state() == "finished"
    assert restored.folder.read_config()["data"]["root"] is None
    assert not (back / run.name / "checkpoints").exists()


def test_the_kept_runs_are_whole_and_of_the_tagged_code(study):
    selected = select_runs("runs", str(study.KEPT))
    assert not selected.left_out
    assert {run.result.provenance["git"]["dirty"] for run in selected.runs} == {False}
    assert len({run.result.provenance["git"]["commit"] for run in selected.runs}) == 1


def test_its_tables_are_those_of_the_kept_runs(study, tmp_path):
    study.make_report(tmp_path)
    made = {path.name: study.rows_of(path) for path in (tmp_path / "tables").glob("*.csv")}
    kept = {path.name: study.rows_of(path) for path in (study.FOLDER / "tables").iterdir()}
    assert made.keys() == kept.keys()
    for table, rows in made.items():
        assert rows.keys() == kept[table].keys(), table
        for row, cells in rows.items():
            assert cells == {
                column: value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
                for column, value in kept[table][row].items()
            }


def test_every_number_of_its_text_is_one_of_a_table(study):
    known = study.tables()
    assert study.README.read_text("utf-8") == study.filled(study.TEMPLATE, known)
    readme = study.PROJECT.read_text("utf-8")
    assert readme == study.with_first_screen(readme, known)
    assert study.filled(study.FIRST_SCREEN, known) in readme


def test_what_its_text_says_follows_from_its_tables(study):
    """Sentence by sentence, what the numbers in them are said to mean."""
    known = study.tables()
    heads, against, pairs = (known[key] for key in ("performance", "significance", "pairs"))
    contexts = "Press rank (10,000 contexts) mean"
    interval = "95 % interval, method"
    for head in ("SS", "MoC", "GSS"):
        assert against[head][f"{interval} high"] < 0
        assert against[head]["p, Student, Holm"] <= against["MoC"]["p, Student, Holm"]
    assert against["LMS-PLIF"][f"{interval} low"] < 0 < against["LMS-PLIF"][f"{interval} high"]
    ranks = {head: row[contexts] for head, row in heads.items()}
    assert ranks["MoC"] == ranks["Softmax"] == 64 + 2
    assert max(ranks, key=ranks.__getitem__) == "GSS"
    assert sorted(ranks, key=ranks.__getitem__)[-2] == "SS"
    equal = pairs["GSS / MoC"]
    assert equal[f"{interval} low"] < 0 < equal[f"{interval} high"]
    assert pairs["SS / GSS"][f"{interval} high"] < 0
    assert {row["seeds"] for row in heads.values()} == {3}
    correlation = known["correlation"]["all heads, pooled"]
    assert correlation["95 % interval of r, Fisher low"] < 0
    assert correlation["95 % interval of r, Fisher high"] > 0
    assert correlation["p of ρ"] > 0.05


def test_the_order_over_the_epochs_is_as_its_text_says(study):
    order = study.tables()["order"]

    def places(share: int) -> list[str]:
        return sorted(order, key=lambda head: order[head][f"after {share} % place"])

    assert places(80) == ["SS", "GSS", "MoC", "LMS-PLIF", "Softmax"]
    assert places(90) == places(100) == ["SS", "MoC", "GSS", "LMS-PLIF", "Softmax"]
    assert all(run["best epoch"] == 10 for run in study.tables()["runs"].values())


def test_a_template_takes_cells_by_their_row_and_column(study, tmp_path):
    table, template = tmp_path / "penn_t.csv", tmp_path / "README.template.md"
    table.write_text("head,measure,ours mean\nSS,ppl,1234.5\nSS,rank,-7\nGSS,ppl,\n")
    known = {"t": study.rows_of(table), "runs": {"a": {}, "b": {}}}
    template.write_text("{finished}: {t[SS / ppl][ours mean]:,.0f}, {t[SS / rank][ours mean]:.1f}")
    assert study.filled(template, known) == "2: 1,234, −7.0"
    for wrong in ("{t[SS / ppl][theirs]}", "{t[GSS][ours mean]:.1f}"):
        template.write_text(wrong)
        with pytest.raises(SystemExit, match=r"README\.template\.md"):
            study.filled(template, known)
