"""The script of lmkit's own study keeps finished runs, and puts them back."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from lmkit.comparison.correlation import Correlation, correlate
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs
from lmkit.runs.spectrum_files import final_spectrum, read_spectrum, write_spectrum
from tests.conftest import REPOSITORY

DID_NOT_TRAIN = "MoS (K=1, ET 7), failed"
BEST = "GSS (c=1.5, k=2.5, ET 7)"
PPL, PRESS = "test perplexity mean", "Press rank (10,000 contexts) mean"
Row = dict[str, float]


def interval(row: Row) -> tuple[float, float]:
    return row["95 % interval, method low"], row["95 % interval, method high"]


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


def test_the_kept_runs_are_whole_and_of_the_named_commit(study):
    selected = select_runs("runs", str(study.KEPT))
    assert not selected.left_out
    assert {run.result.provenance["git"]["dirty"] for run in selected.runs} == {False}
    (commit,) = {run.result.provenance["git"]["commit"] for run in selected.runs}
    assert f"git worktree add ../own-study {commit[:7]}\n" in study.TEMPLATE.read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_its_tables_are_those_of_the_kept_runs(study, lmkit, monkeypatch, tmp_path):
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
    assert {row["seeds"] for row in heads.values()} == {3}
    for head in ("MoS", "SS", "MoC", "GSS"):
        assert interval(against[head])[1] < 0
    assert {row["device"] for row in known["origins"].values()} == {"AMD EPYC"}
    low, high = interval(against["LMS-PLIF"])
    assert low < 0 < high
    ranks = {head: row[PRESS] for head, row in heads.items()}
    perplexities = {head: row[PPL] for head, row in heads.items()}
    assert max(ranks, key=ranks.__getitem__) == "MoS"
    assert min(perplexities, key=perplexities.__getitem__) == "MoS"
    assert heads["MoC"]["parameters, M"] == heads["MoS"]["parameters, M"]
    assert known["heads/settings"]["MoC"] | {"head": "MoS"} == known["heads/settings"]["MoS"]
    assert interval(pairs["MoC / MoS"])[0] > 0
    assert ranks["MoC"] == ranks["Softmax"] == 64 + 2 < ranks["LMS-PLIF"]
    assert interval(pairs["LMS-PLIF / MoC"])[0] > 0
    assert ranks["GSS"] == pytest.approx(ranks["SS"], rel=0.05)
    assert interval(pairs["SS / GSS"])[1] < 0
    two, best = (known["performance"][name] for name in ("MoS (K=2, ET 7)", BEST))
    assert two["seeds"] == best["seeds"] == 1
    assert best[PRESS] == pytest.approx(two[PRESS], rel=0.02)
    assert best[PPL] < two[PPL] - 10


def test_what_its_text_says_of_measures_of_rank_follows_from_its_tables(study):
    known = study.tables()
    between_heads = known["heads/rank_measures"].values()
    measures = {row["measure"]: row for row in between_heads}
    assert len(measures) == len(between_heads) == 6
    assert measures["Press rank"]["95 % interval of r, Fisher high"] < 0
    trained = {name: row for name, row in known["ranks_10000"].items() if name != DID_NOT_TRAIN}
    effective = {name: row["1e−3-effective rank mean"] for name, row in trained.items()}
    assert max(effective, key=effective.__getitem__) == BEST
    assert min(effective.values()) == effective["Softmax (ET 7)"] < effective[BEST] < 66 / 4
    finer = {name: row["1e−5-effective rank mean"] for name, row in trained.items()}
    assert finer["Softmax (ET 7)"] < 66 < finer[BEST] < finer["MoS (K=5, ET 7)"]
    stable = [row["stable rank mean"] for row in trained.values()]
    assert stable[0] == min(stable)
    assert round(100 / max(stable)) == 99  # %, of the sum of squares

    def press_and_perplexity(heads: Iterable[Row]) -> Correlation:
        heads = list(heads)
        return correlate([row[PRESS] for row in heads], [row[PPL] for row in heads])

    of_six = known["heads/performance"]
    without_mos = press_and_perplexity(row for head, row in of_six.items() if head != "MoS")
    assert without_mos.n == 5
    assert without_mos.pearson_low < 0 < without_mos.pearson_high
    alike: dict[str, list[Row]] = {}
    for name, row in known["performance"].items():
        alike.setdefault(name.partition(" (")[0], []).append(row)
    all_means, trained_means = (
        [
            {of: mean(row[of] for row in rows if row is not left_out) for of in (PPL, PRESS)}
            for rows in alike.values()
        ]
        for left_out in (None, known["performance"][DID_NOT_TRAIN])
    )
    r = press_and_perplexity(all_means).pearson
    assert f"r between heads would be {r:.2f}, of the other sign" in study.README.read_text("utf-8")
    assert r > 0 > press_and_perplexity(trained_means).pearson
    between = known["rank_measures"]["between heads / Press rank"]
    assert between["Pearson's r"] == measures["Press rank"]["Pearson's r"]  # the same six
    assert between["p of ρ"] > 0.05  # they cannot tell


def test_what_its_text_says_of_gss_over_c_and_k_follows_from_its_tables(study):
    known = study.tables()
    heads, runs = known["performance"], known["runs"]
    grid = {
        (c, k): heads[f"GSS (c={c}, k={k}, ET 7)"]
        for c, k in product(("−1.5", "0", "1.5"), ("1.5", "2", "2.5"))
    }
    assert [row["seeds"] for row in grid.values()] == [1, 1, 3, 1, 1, 1, 1, 1, 1]
    perplexity = np.array([row[PPL] for row in grid.values()]).reshape(3, 3)
    assert (np.diff(perplexity, axis=0) < 0).all()
    assert (np.diff(perplexity, axis=1) < 0).all()
    press = np.array([row[PRESS] for row in grid.values()]).reshape(3, 3)
    assert (np.diff(press, axis=1) > 0).all()
    of_six = known["heads/performance"]
    perplexities = [row[PPL] for row in of_six.values()]
    assert perplexity.max() - perplexity.min() > max(perplexities) - min(perplexities)
    assert heads[BEST]["parameters, M"] == of_six["Softmax"]["parameters, M"]
    (best,), (mos,), (as_ss,), (of_ss,) = (
        [row for row in runs.values() if (row["head"], row["seed"]) == (head, 141)]
        for head in (BEST, "MoS (K=5, ET 7)", "GSS (c=0, k=2, ET 7)", "SS")
    )
    assert runs["penn_study_softmaxes-8addb7b91a73"] is mos
    assert best["test perplexity"] < mos["test perplexity"]
    assert best["test perplexity"] == min(row["test perplexity"] for row in runs.values())
    assert best["Press rank"] < mos["Press rank"]
    digits = ("valid perplexity", "test perplexity", "Press rank")
    assert [as_ss[each] for each in digits] == [of_ss[each] for each in digits]
    over = {row["measure"]: row for name, row in known["rank_measures"].items()
            if name.startswith("GSS over (c, k)")}  # fmt: skip
    press_rank = over.pop("Press rank")
    assert len(over) == 5
    for measure, row in over.items():
        assert row["Spearman's ρ"] < press_rank["Spearman's ρ"], measure
        assert row["Pearson's r"] < press_rank["Pearson's r"], measure


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
    best = {run["best epoch"] for run in runs if run["head"] != DID_NOT_TRAIN}
    assert best == {10}
    low, high = interval(study.tables()["heads/pairs"]["GSS / MoC"])
    assert low < 0 < high


def test_nt_asgd_does_not_begin_and_averaging_lowers_rank_too_as_its_text_says(study):
    known = study.tables()
    runs = {(row["head"], row["seed"]): row for row in known["runs"].values()}
    for head, settings in (("Softmax", ""), ("GSS", "c=−1.5, k=2.5, "), ("MoS", "K=5, ")):
        never = known["averaging"][f"{head} / NT 2"]
        assert (never["switched after epoch"], never["seeds"]) == ("", 1)
        averaged, not_averaged = (
            runs[f"{head} ({settings}{trigger})", 141] for trigger in ("ET 7", "NT 2")
        )
        assert averaged["test perplexity"] < not_averaged["test perplexity"]
        # the same weights until averaging begins, and the same steps after it
        assert averaged["train perplexity"] == not_averaged["train perplexity"]
        if head == "Softmax":
            assert averaged["Press rank"] == not_averaged["Press rank"]
        else:
            assert averaged["Press rank"] < not_averaged["Press rank"]


def test_mixtures_of_few_and_of_many_components_are_as_its_text_says(study):
    known = study.tables()
    of_seed = {(row["head"], row["seed"]): row for row in known["runs"].values()}
    one = of_seed[DID_NOT_TRAIN, 141]
    two, five, ten = (of_seed[f"MoS (K={count}, ET 7)", 141] for count in (2, 5, 10))
    softmax = of_seed["Softmax (ET 7)", 141]
    assert known["runs"]["penn_study_softmaxes-8addb7b91a73"] is five
    assert known["runs"]["penn_study-fdd58f07f0c0"] is softmax
    seeds = {row["number of components K"]: row["seeds"] for row in known["experts"].values()}
    assert seeds == {1: 1, 2: 1, 5: 3, 10: 1}
    press, ppl = "Press rank", "test perplexity"
    assert one[press] == 1
    assert one[ppl] > 600 > two[ppl] > softmax[ppl] > ten[ppl] > five[ppl]
    assert five[press] > ten[press] > two[press] > softmax[press]


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
