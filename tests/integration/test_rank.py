"""Spectrum and pairwise divergence of finished runs, by their commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmkit.analyses.divergence import Divergence
from lmkit.analyses.measuring import Measured
from lmkit.analyses.rank import Rank
from lmkit.cli import analysis
from lmkit.cli.finetune import published_config
from lmkit.comparison.facts import published_of_runs
from lmkit.comparison.published import published_run
from lmkit.comparison.published_runs import Published
from lmkit.experiment.load import load_run
from lmkit.measures.model_spectra import model_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs
from lmkit.runs.spectrum_files import read_spectrum
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder


def folders(runs: Path) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted(runs.iterdir()) if path.is_dir()]


def content(path: Path) -> dict:
    return json.loads(path.read_text())


def test_rank_of_all_runs_of_a_folder(tiny_runs, lmkit, capsys):
    lmkit("rank", f"run={tiny_runs}", "contexts=300")
    shown = capsys.readouterr().out
    assert len(folders(tiny_runs)) == 2
    for run in folders(tiny_runs):
        assert run.path.name in shown
        assert (run.spectra / "test_log_probs_300.svg").read_text().startswith("<?xml")
        found = content(run.analysis / "rank_test_log_probs_300.json")
        assert (found["kind"], found["checkpoint"], found["averaged"]) == ("rank", "best", True)
        assert found["test_ppl"] == run.read_result().metrics["test_ppl"]
        loaded = load_run(run.path, "best", None, None)
        expected = model_spectrum(loaded.model, loaded.data.eval_batches("test"), 300)
        assert found["spectrum"] == json.loads(json.dumps(expected.measures.to_dict()))
        stored = read_spectrum(run.spectra / "test_log_probs_300.npz")
        assert np.array_equal(stored.singular_values_S, expected.singular_values.numpy())
        if run.path.name.startswith("toy-"):
            assert found["spectrum"]["press_rank"] <= 8 + 2
    together = (tiny_runs / "spectra_test_log_probs_300.svg").read_text()
    assert together.startswith("<?xml")


@pytest.mark.usefixtures("undrawn")
def test_more_contexts_than_the_split_has_are_all_of_them(tiny_runs, lmkit, capsys):
    lmkit("rank", f"run={tiny_runs}", "contexts=10000")
    shown = capsys.readouterr().out
    assert shown.count("contexts=10000: the test split has only 599: all are measured\n") == 2
    assert "log P of all test contexts" in shown
    assert shown.count("all 599") == 2
    for run in folders(tiny_runs):
        found = content(run.analysis / "rank_test_log_probs_599.json")
        assert found["spectrum"]["num_contexts"] == found["all_contexts"] == 599
    assert (tiny_runs / "spectra_test_log_probs_all.svg").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_decoders_weight_and_the_contexts_directions_are_measured_too(tiny_runs, lmkit, capsys):
    lmkit("rank", f"run={tiny_runs}", "contexts=300")
    shown = capsys.readouterr().out
    assert re.search(r"mean cosine of contexts +│ +−?[01]\.\d{4} ", shown)
    assert re.search(r"weight: columns +│ +8 ", shown)
    for run in folders(tiny_runs):
        found = content(run.analysis / "rank_test_log_probs_300.json")
        loaded = load_run(run.path, "best", None, None)
        inputs = loaded.model.head_inputs(loaded.data.eval_batches("test"))
        hidden_ND = torch.cat([hidden.flatten(0, 1) for hidden, _ in inputs])[:300].double()
        units_ND = hidden_ND / hidden_ND.norm(dim=1, keepdim=True)
        pairs_NN = (units_ND @ units_ND.T)[~torch.eye(300, dtype=torch.bool)]
        assert found["mean_cosine"] == pytest.approx(float(pairs_NN.mean()))
        weight = loaded.model.head.decoder_weight.detach().double().numpy()
        expected = np.linalg.svd(weight, compute_uv=False)
        stored = read_spectrum(run.spectra / "decoder_weight.npz")
        assert stored.singular_values_S == pytest.approx(expected, rel=1e-10)
        assert found["weight_spectrum"]["stable_rank"] == pytest.approx(
            (expected**2).sum() / expected[0] ** 2
        )


@pytest.mark.usefixtures("undrawn")
def test_the_last_checkpoint_and_all_contexts(tiny_run, lmkit):
    lmkit("rank", f"run={tiny_run}", "split=valid", "contexts=all", "checkpoint=last")
    assert (tiny_run / "spectra" / "decoder_weight_last.npz").exists()
    found = content(tiny_run / "analysis" / "rank_valid_log_probs_590_last.json")
    assert found["checkpoint"] == "last"
    assert found["spectrum"]["num_contexts"] == found["all_contexts"] == 590
    assert (tiny_run / "spectra" / "valid_log_probs_590_last.npz").exists()
    assert not list(tiny_run.parent.glob("spectra_*"))  # one run has no figure of several


@pytest.mark.usefixtures("undrawn")
def test_rank_of_the_runs_of_a_sweep(tiny_runs, lmkit, capsys):
    names = [run.path.name for run in folders(tiny_runs)]
    points = [Point(name, [], name, name, 3, None) for name in (*names, "toy-0123456789ab")]
    sweep = SweepFolder.of(Manifest("mine", str(tiny_runs), str(tiny_runs), 0, points))
    sweep.save()
    lmkit("rank", f"run={sweep.path}", "contexts=100")
    assert "left out: toy-0123456789ab" in capsys.readouterr().out
    assert (sweep.path / "spectra_test_log_probs_100.svg").exists()
    for name in names:
        assert (tiny_runs / name / "analysis" / "rank_test_log_probs_100.json").exists()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("width", [50, 80])
def test_many_runs_fit_a_narrow_terminal(tiny_runs, lmkit, monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lmkit("rank", f"run={tiny_runs}", "contexts=100")
    table = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "┏┃┡│└"]
    assert max(map(len, table)) <= width
    assert sum(line.startswith("│ Press rank") for line in table) == (2 if width == 50 else 1)
    for run in folders(tiny_runs):
        assert any(run.path.name in line for line in table)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("contexts=1", "contexts must be a whole number of at least 2"),
        ("matrix=transformed_logits", "only a head with one context and a transform"),
        ("matrix=logits", "matrix must be one of log_probs, transformed_logits"),
        ("checkpoint=first", "checkpoint must be one of best, last"),
        ("split=tests", "split must be one of train, valid, test"),
    ],
)
def test_rank_refuses_what_it_cannot_do(trained_runs, lmkit, capsys, option, message):
    with pytest.raises(SystemExit):
        lmkit("rank", f"run={trained_runs}", option)
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_first(tiny_run, lmkit, monkeypatch, capsys):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "spectra")
    with pytest.raises(SystemExit):
        lmkit("rank", f"run={tiny_run}", "contexts=100")
    assert "spectra cannot be written" in capsys.readouterr().err


def measured_rank(contexts: int) -> dict:
    names = ("stable_rank", "participation_ratio", "entropy_rank", "condition")
    spectrum = {
        "num_contexts": contexts,
        "num_columns": 10_000,
        "method": "gram",
        "sigma_1": 1.0,
        "press_rank": 9981,
        "effective_rank": {"0.001": 52},
        "unresolved": {"condition": "it is too small"},
        **dict.fromkeys(names),
    }
    return {
        "checkpoint": "best",
        "averaged": True,
        "split": "test",
        "matrix": "log_probs",
        "all_contexts": 82_429,
        "experiment": "penn_mos",
        "test_ppl": 55.12,
        "spectrum": spectrum,
    }


def compared(runs: Path, run: Path) -> Callable[[str], Published | None]:
    """Looks up what was published, as the command does, of a run that is called "mos"."""
    look_up = published_of_runs(select_runs("run", str(runs)).runs, published_config)
    return lambda name: look_up({"mos": run.name}[name])


def test_published_ranks_stand_below_measured_ones_of_as_many_contexts(tmp_path, make_run):
    facts = published_run("penn_mos", 10_000)
    rank = Rank(split="test", contexts=None, matrix="log_probs", checkpoint="best")
    run = make_run(tmp_path, 1, mixture="softmaxes")
    rank.published_of_run = compared(tmp_path, run)
    same = {"mos": measured_rank(facts.rank_contexts)}
    (table,) = rank.tables(same)
    rows = [[cell.text.strip() for cell in row] for row in table.rows]
    below = rows[rows.index(["Press rank", "9,981"]) + 1]
    assert below == ["published", str(facts.press_rank)]
    unresolved, published = rank.notes(same)
    assert unresolved == "mos: condition is unresolved: it is too small"
    assert published.startswith("mos: published of penn_mos: ")
    other = {"mos": measured_rank(500)}
    (table,) = rank.tables(other)
    rows = [[cell.text.strip() for cell in row] for row in table.rows]
    assert rows[rows.index(["Press rank", "9,981"]) + 1][0] != "published"
    assert rows[-1] == ["published", str(facts.test_ppl)]
    assert "compares only there: contexts=" in rank.notes(other)[1]


def test_terminal_tables_say_what_differs_from_the_published_experiment(
    tmp_path, make_run, lmkit, monkeypatch, capsys
):
    """Whatever the name of the run is."""
    run = make_run(tmp_path, 1, mixture="softmaxes", name="a", options={"optimizer.lr": 5})
    rank = Rank(split="test", contexts=None, matrix="log_probs", checkpoint="best")
    rank.published_of_run = compared(tmp_path, run)
    *_, note = rank.notes({"mos": measured_rank(82_429)})
    assert note.startswith("mos is not penn_mos as published")
    assert note.endswith("optimizer.lr=5 (20)")
    other = make_run(tmp_path, 1, trigger="nt", name="penn_awd_lstm")
    found = {name: measured_divergence() for name in (run.name, other.name)}
    monkeypatch.setattr(analysis, "measure_runs", lambda *_, **__: Measured(found, {}))
    lmkit("divergence", f"run={tmp_path}")
    shown = capsys.readouterr().out
    assert f"{run.name} is not penn_mos as published" in shown
    assert "optimizer.lr=5 (20)" in shown
    assert f"{other.name}: published" not in shown
    assert shown.count("5.284") == 1
    assert "4.763" not in shown  # of Softmax with NT-ASGD


def test_divergence_is_that_of_all_pairs(tiny_runs, lmkit, capsys):
    lmkit("divergence", f"run={tiny_runs}", "contexts=300")
    assert "pairwise KL, nats" in capsys.readouterr().out
    for run in folders(tiny_runs):
        found = content(run.analysis / "divergence_test_300.json")
        assert (found["kind"], found["split"], found["num_contexts"]) == ("divergence", "test", 300)
        # the same matrix, stacked
        loaded = load_run(run.path, "best", None, None)
        windows = loaded.data.eval_batches("test")
        rows = torch.cat(list(loaded.model.log_prob_rows(windows)))[:300].double()
        pairs = (rows.exp() * rows).sum(1, keepdim=True) - rows.exp() @ rows.T
        assert found["exact"] > 0
        np.testing.assert_allclose(found["exact"], float(pairs.sum() / (300 * 299)), rtol=1e-6)


def test_divergence_of_one_pair_has_no_standard_error(tiny_run, lmkit):
    lmkit("divergence", f"run={tiny_run}", "split=valid", "contexts=2")
    found = content(tiny_run / "analysis" / "divergence_valid_2.json")
    assert (found["num_pairs"], found["sampled_standard_error"]) == (1, None)


def measured_divergence() -> dict[str, object]:
    return {
        "split": "test",
        "all_contexts": 82_429,
        "experiment": "penn_mos",
        "num_words": 10_000,
        "exact": 5.25,
        "sampled": 5.2,
        "sampled_standard_error": 0.1,
        "num_contexts": 82_429,
        "num_pairs": 250,
    }


def test_published_divergence_stands_beside_the_measured_one(tmp_path, make_run):
    divergence = Divergence(split="test", contexts=None)
    run = make_run(tmp_path, 1, mixture="softmaxes")
    divergence.published_of_run = compared(tmp_path, run)
    found = measured_divergence()
    (table,) = divergence.tables({"mos": found})
    assert [cell.text for cell in table.rows[0]] == [
        "mos", "all 82,429", "5.2500", "5.284", "5.20 ± 0.10", "250",
    ]  # fmt: skip
    (note,) = divergence.notes({"mos": found})
    assert note.startswith("mos: published of penn_mos: ")
