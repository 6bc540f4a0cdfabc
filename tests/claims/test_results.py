"""Finished runs in Python and as a table: `lmkit.load`, `lmkit.results`, `lmkit results`."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch

import lmkit as package
from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder


def test_a_loaded_run_measures_what_it_measured(trained: Path):
    path = next(trained.glob("toy-*/"))
    run = package.load(path)
    metrics = RunFolder(path).read_result().metrics
    assert not run.model.training
    assert run.config["data"]["num_words"] == len(run.vocabulary) == 40
    assert (
        min(row["valid/ppl"] for row in run.metrics if "valid/ppl" in row) == metrics["valid_ppl"]
    )
    # all but the first word of test are predicted, here with an end of line before the first
    words = ToyLanguage(**without_target(run.config["data"])).load().test.tolist()
    log_probs = run.log_probs(" ".join(run.vocabulary[word] for word in words))
    assert log_probs.shape == (300, 40)
    nll = -log_probs[range(1, 300), words[1:]].double().mean()
    assert math.exp(nll) == pytest.approx(metrics["test_ppl"], rel=0.01)


def test_a_loaded_run_is_shown_in_one_line_and_the_package_by_what_it_offers(trained: Path):
    path = next(trained.glob("toy-*/"))
    shown = repr(package.load(path))
    assert shown.startswith(f"<TrainedRun {path}: ")
    assert "40 words, test perplexity" in shown
    assert "w1" not in shown
    public = [name for name in dir(package) if not name.startswith("_")]
    assert public == sorted(package.__all__)
    assert {"load", "results"} <= set(public)


def without_target(section: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in section.items() if key != "_target_"}


def test_log_probs_do_not_see_what_follows(trained: Path):
    run = package.load(next(trained.glob("toy-*/")))
    long, short = run.log_probs("w1 w2 w3"), run.log_probs("w1 w9")
    assert torch.equal(long[0], short[0])
    assert torch.allclose(long[1], short[1])
    assert not torch.allclose(long[2], long[1])
    with pytest.raises(UserError, match="does not know the word 'w99'"):
        run.log_probs("w1 w99")
    with pytest.raises(UserError, match="is no folder"):
        package.load("nowhere")


def test_results_are_one_row_a_run(trained: Path, lmkit, tmp_path, capsys, monkeypatch):
    rows = package.results(str(trained))
    assert sorted((row["head_name"], row["seed"]) for row in rows) == [
        ("GSS", 1), ("Softmax", 1), ("Softmax", 2),
    ]  # fmt: skip
    lmkit("results", str(trained), "out=all.csv")
    assert "3 runs: all.csv" in capsys.readouterr().out
    with (tmp_path / "all.csv").open(newline="") as lines:
        written = list(csv.DictReader(lines))
    assert [float(row["test_ppl"]) for row in written] == [row["test_ppl"] for row in rows]
    assert [row["optimizer.lr"] for row in written] == ["5", "5", "5"]
    assert all(math.isfinite(row["test_spectrum.press_rank"]) for row in rows)
    assert {row["code_has_changed"] for row in written} == {"False"}

    monkeypatch.setattr("lmkit.runs.rows.code_sha256", lambda: "of later code")
    lmkit("results", str(trained), "out=all.csv")
    assert "3 of 3 runs come from code that has changed since" in capsys.readouterr().err
    lmkit("report", f"runs={trained}", "out=page")
    assert "3 of 3 runs come from code that has changed since" in capsys.readouterr().out
    page = (tmp_path / "page/index.html").read_text("utf-8")
    assert "3 of 3 runs come from code that has changed since" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs", "ot=all.csv"], "error: there is no option ot (did you mean out?)"),
        (["out=all.csv"], "error: RUNS is missing"),
    ],
)
def test_a_bad_line_of_results_is_one_line(lmkit, capsys, words, message):
    with pytest.raises(SystemExit) as failed:
        lmkit("results", *words)
    printed = f"{failed.value.code}\n{capsys.readouterr().err}"
    assert message in printed
    assert printed.count("\n") == 2  # the status, and one line
