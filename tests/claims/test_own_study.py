"""The script of lmkit's own study keeps finished runs, and puts them back."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lmkit.comparison.correlation import correlate
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs
from lmkit.runs.spectrum_files import final_spectrum, read_spectrum, write_spectrum
from tests.conftest import REPOSITORY

DID_NOT_TRAIN = ("MoS (K=1)", "MoS (K=1,")  # what its label begins with


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


def test_runs_trained_anew_are_compared_with_those_kept(
    study, make_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(study, "KEPT", tmp_path / "kept")
    for folder, ppl in (("kept", 131.7), ("same", 131.7), ("other", 131.8)):
        run = make_run(tmp_path / folder, 1, ppl, 66, name="penn_study")
    study.compare(tmp_path / "same")
    assert capsys.readouterr().out == f"{run.name}: the same digits\n"
    with pytest.raises(SystemExit) as left:
        study.compare(tmp_path / "other")
    assert left.value.code == 1
    assert capsys.readouterr().out == f"{run.name}: other test_ppl, train_ppl, valid_ppl\n"
    spectrum = final_spectrum(RunFolder(tmp_path / "same" / run.name))
    write_spectrum(spectrum, np.geomspace(100.0, 1e-6, 400), read_spectrum(spectrum).measures)
    with pytest.raises(SystemExit):
        study.compare(tmp_path / "same")
    assert capsys.readouterr().out == f"{run.name}: other {spectrum.name}\n"
    with pytest.raises(SystemExit, match="no finished run"):
        study.compare(tmp_path / "nowhere")


def test_the_kept_runs_are_whole_and_of_the_tagged_code(study):
    selected = select_runs("runs", str(study.KEPT))
    assert not selected.left_out
    assert {run.result.provenance["git"]["dirty"] for run in selected.runs} == {False}
    assert len({run.result.provenance["git"]["commit"] for run in selected.runs}) == 1


def test_its_tables_are_those_of_the_kept_runs(study, tmp_path):
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


def test_its_texts_are_their_templates_with_the_numbers_of_its_tables(study):
    known = study.tables()
    assert study.README.read_text("utf-8") == study.filled(study.TEMPLATE, known)
    readme = study.PROJECT.read_text("utf-8")
    assert readme == study.with_first_screen(readme, known)


def test_what_its_text_says_follows_from_its_tables(study):
    """Sentence by sentence, what the numbers in them are said to mean."""
    known = study.tables()
    heads, against, pairs = (
        known[f"heads/{table}"] for table in ("performance", "significance", "pairs")
    )

    def interval(row: dict[str, float]) -> tuple[float, float]:
        return row["95 % interval, method low"], row["95 % interval, method high"]

    assert {row["seeds"] for row in heads.values()} == {3}
    for head in ("MoS", "SS", "MoC", "GSS"):
        assert interval(against[head])[1] < 0
    assert {row["device"] for row in known["origins"].values()} == {"AMD EPYC"}
    low, high = interval(against["LMS-PLIF"])
    assert low < 0 < high
    ranks = {head: row["Press rank (10,000 contexts) mean"] for head, row in heads.items()}
    perplexities = {head: row["test perplexity mean"] for head, row in heads.items()}
    assert max(ranks, key=ranks.__getitem__) == "MoS"
    assert min(perplexities, key=perplexities.__getitem__) == "MoS"
    assert heads["MoC"]["parameters, M"] == heads["MoS"]["parameters, M"]
    assert known["heads/settings"]["MoC"] | {"head": "MoS"} == known["heads/settings"]["MoS"]
    assert interval(pairs["MoC / MoS"])[0] > 0
    assert ranks["MoC"] == ranks["Softmax"] == 64 + 2 < ranks["LMS-PLIF"]
    assert interval(pairs["LMS-PLIF / MoC"])[0] > 0
    assert ranks["GSS"] == pytest.approx(ranks["SS"], rel=0.05)
    assert interval(pairs["SS / GSS"])[1] < 0


def test_what_its_text_says_of_measures_of_rank_follows_from_its_tables(study):
    known = study.tables()
    between_heads = known["heads/rank_measures"].values()
    measures = {row["measure"]: row for row in between_heads}
    assert len(measures) == len(between_heads) == 6
    assert measures["Press rank"]["95 % interval of r, Fisher high"] < 0
    of_measure = {name: abs(row["Spearman's ρ"]) for name, row in measures.items()}
    assert min(of_measure, key=of_measure.__getitem__) == "Press rank"
    assert max(of_measure, key=of_measure.__getitem__) == "1e−3-effective rank"
    effective = [row["1e−3-effective rank mean"] for row in known["heads/ranks_10000"].values()]
    assert min(effective) == known["heads/ranks_10000"]["Softmax"]["1e−3-effective rank mean"]
    assert max(effective) == known["heads/ranks_10000"]["MoS"]["1e−3-effective rank mean"]
    others = [row for head, row in known["heads/performance"].items() if head != "MoS"]
    without_mos = correlate(
        [row["Press rank (10,000 contexts) mean"] for row in others],
        [row["test perplexity mean"] for row in others],
    )
    assert without_mos.n == 5
    assert without_mos.pearson_low < 0 < without_mos.pearson_high


def test_what_its_text_says_of_gss_over_c_and_k_follows_from_its_tables(study):
    known = study.tables()
    heads, ranks, runs = (known[key] for key in ("performance", "ranks_10000", "runs"))
    grid = {name: row for name, row in heads.items() if name.startswith("GSS (c=")}
    assert sorted(row["seeds"] for row in grid.values()) == [1] * 8 + [3]
    perplexities = {name: row["test perplexity mean"] for name, row in grid.items()}
    worst, best = "GSS (c=−1.5, k=1.5)", "GSS (c=1.5, k=2.5)"
    assert max(perplexities, key=perplexities.__getitem__) == worst
    assert min(perplexities, key=perplexities.__getitem__) == best
    of_mos = known["heads/performance"]["MoS"]
    press = "Press rank (10,000 contexts) mean"
    assert perplexities[best] < of_mos["test perplexity mean"]
    assert grid[best][press] < of_mos[press]
    softmax = known["heads/performance"]["Softmax"]
    assert grid[best]["parameters, M"] == softmax["parameters, M"]
    of_heads = [row["test perplexity mean"] for row in known["heads/performance"].values()]
    assert perplexities[worst] - perplexities[best] > max(of_heads) - min(of_heads)
    digits = ("valid perplexity", "test perplexity", "Press rank")
    (as_ss,) = (row for row in runs.values() if row["head"] == "GSS (c=0, k=2)")
    (of_ss,) = (row for row in runs.values() if (row["head"], row["seed"]) == ("SS", 141))
    assert [as_ss[each] for each in digits] == [of_ss[each] for each in digits]
    over = {row["measure"]: row for name, row in known["rank_measures"].items()
            if name.startswith("GSS over (c, k)")}  # fmt: skip
    assert len(over) == 6
    for measure, row in over.items():
        assert abs(row["Spearman's ρ"]) >= abs(over["Press rank"]["Spearman's ρ"]), measure
    effective = "1e−3-effective rank mean"
    trained = [row[effective] for head, row in ranks.items() if not head.startswith(DID_NOT_TRAIN)]
    assert len(trained) == len(ranks) - 1
    assert known["heads/ranks_10000"]["Softmax"][effective] == min(trained)
    assert ranks[best][effective] == max(row[effective] for row in ranks.values()) < 66 / 4
    assert ranks[worst][effective] == min(ranks[name][effective] for name in grid)


def test_heads_at_the_published_size_differ_as_its_text_says(study):
    known = study.tables()
    published = [known["heads/published"][f"{head} / test perplexity"]["published mean"]
                 for head in ("Softmax", "SS", "GSS", "LMS-PLIF")]  # fmt: skip
    assert max(published[:3]) - min(published[:3]) < 0.1 < min(published[:3]) - published[3]


def test_the_order_over_the_epochs_is_as_its_text_says(study):
    order = study.tables()["heads/order"]

    def places(column: str) -> list[str]:
        return sorted(order, key=lambda head: order[head][f"{column} place"])

    assert places("after 80 %") == ["MoS", "SS", "GSS", "MoC", "LMS-PLIF", "Softmax"]
    for column in ("after 90 %", "after 100 %"):
        assert places(column) == ["MoS", "SS", "MoC", "GSS", "LMS-PLIF", "Softmax"]
    raw = ["SS", "GSS", "MoS", "Softmax", "LMS-PLIF", "MoC"]
    assert places("after 100 %, not averaged") == raw
    runs = study.tables()["runs"].values()
    of_heads_and_grid = [run for run in runs if not run["head"].startswith(DID_NOT_TRAIN)]
    assert len(of_heads_and_grid) == len(runs) - 1
    assert all(run["best epoch"] == 10 for run in of_heads_and_grid)


def test_nt_asgd_does_not_begin_as_its_text_says(study):
    softmax = study.tables()["averaging"]["Softmax / NT 2"]
    assert (softmax["switched after epoch"], softmax["seeds"]) == ("", 1)


def test_mixtures_of_few_components_are_as_its_text_says(study):
    known = study.tables()
    one, two = (known["experts"][f"MoS / ET 7 / {count}"] for count in (1, 2))
    press, ppl = "Press rank (10,000 contexts) mean", "test perplexity mean"
    softmax = known["heads/performance"]["Softmax"]
    assert (one[press], one["seeds"], two["seeds"]) == (1, 1, 1)
    assert one[ppl] > 600 > two[ppl] > softmax[ppl]
    assert two[press] > softmax[press]


def test_a_template_takes_cells_by_their_row_and_column(study, tmp_path):
    table, template = tmp_path / "penn_t.csv", tmp_path / "README.template.md"
    table.write_text("head,measure,ours mean\nSS,ppl,1234.5\nSS,rank,-7\nGSS,ppl,\n")
    known = {"t": study.rows_of(table), "runs": {"a": {}, "b": {}}}
    table.write_text("head,trigger,K,ppl\nMoS,ET 7,1,126\nMoS,ET 7,5,117\n")
    assert list(study.rows_of(table)) == ["MoS / ET 7 / 1", "MoS / ET 7 / 5"]
    template.write_text("{finished}: {t[SS / ppl][ours mean]:,.0f}, {t[SS / rank][ours mean]:.1f}")
    assert study.filled(template, known) == "2: 1,234, −7.0"
    for wrong in ("{t[SS / ppl][theirs]}", "{t[GSS / ppl][ours mean]:.1f}"):
        template.write_text(wrong)
        with pytest.raises(SystemExit, match=r"README\.template\.md"):
            study.filled(template, known)


def test_the_texts_and_tables_are_written_together_or_not_at_all(study, tmp_path, monkeypatch):
    def make_report(out: Path, filters: Sequence[str] = ()) -> None:
        for folder, file in (("tables", "penn_runs.csv"), ("figures", "penn_a.svg")):
            (out / folder).mkdir(parents=True)
            (out / folder / file).write_text("run,test perplexity\na,131.7\n")
        (out / "index.html").write_text("page")

    monkeypatch.setattr(study, "make_report", make_report)
    folder = tmp_path / "study"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables/penn_old.csv").touch()
    files = {"FOLDER": folder, "PROJECT": tmp_path / "README.md"}
    for name in ("TEMPLATE", "README", "FIRST_SCREEN"):
        files[name] = folder / getattr(study, name).name
    for name, path in files.items():
        monkeypatch.setattr(study, name, path)
    files["PROJECT"].write_text(f"before\n{study.BEGINS}old{study.ENDS}after\n")
    files["FIRST_SCREEN"].write_text("{finished} run\n")
    files["TEMPLATE"].write_text("{runs[b][test perplexity]:.1f}\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match="'b'"):
        study.write()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    files["TEMPLATE"].write_text("{runs[a][test perplexity]:.1f} {heads/runs[a][run]}\n")
    study.write()
    assert files["README"].read_text() == "131.7 a\n"
    readme = files["PROJECT"].read_text()
    assert readme == f"before\n{study.BEGINS}1 run\n{study.ENDS}after\n"
    made = {path.relative_to(folder).as_posix() for path in folder.glob("*/**/*.*")}
    assert made == {"tables/penn_runs.csv", "tables/heads/penn_runs.csv", "figures/penn_a.svg"}
    assert (folder / "index.html").read_text() == "page"
