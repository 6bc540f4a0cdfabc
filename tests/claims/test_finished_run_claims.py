"""What the manual promises of the commands on finished runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lmkit as package
from lmkit.results.groups import grouped
from lmkit.runs.folder import RunFolder
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from tests.claims.conftest import Lmkit


@pytest.fixture
def three(
    trained: Path, tmp_path: Path, lmkit: Lmkit, runs: Callable[[], list[RunFolder]]
) -> list[RunFolder]:
    """Two runs of plain softmax and one of GSS, the points of the sweep `mine`."""
    shutil.copytree(trained, tmp_path / "runs")
    found = sorted(runs(), key=lambda run: (run.path.name[:4], run.read_config()["seed"]))
    points = [Point(run.path.name, [], run.path.name, "toy", 2, None) for run in found]
    SweepFolder.of(Manifest("mine", "runs", str(Path.cwd()), 0, points)).save()
    return found


@pytest.mark.usefixtures("undrawn")
def test_other_commands_take_runs_in_the_same_words(lmkit, refused, three, capsys, tmp_path):
    capsys.readouterr()
    lmkit("report", "runs=mine", "out=of_sweep")
    assert "3 runs: of_sweep/index.html" in " ".join(capsys.readouterr().out.split())
    lmkit("report", "runs='runs head:softmax'", "out=filtered")
    assert "2 runs: filtered/index.html" in " ".join(capsys.readouterr().out.split())
    assert "selects no run" in refused("report", "runs=nowhere")

    lmkit("compare", "a='mine head:softmax'", "b='runs/toy_gss-*'", "out=c.json")
    printed = capsys.readouterr().out
    assert "a: 2 runs" in printed
    assert "b: 1 run:" in printed
    assert json.loads((tmp_path / "c.json").read_text())["runs of a"]["test perplexity"] == 2
    assert "a=nowhere selects no run" in refused("compare", "a=nowhere", "b=runs")
    assert "none of the 3 runs of runs" in refused("compare", "a='runs seed:9'", "b=runs")


def test_status_tells_which_code_has_changed_since(lmkit, three, capsys, monkeypatch):
    lmkit("sweep", "status", "mine")
    assert "code" not in capsys.readouterr().out
    monkeypatch.setattr("lmkit.sweeps.status.code_sha256", lambda: "of later code")
    lmkit("sweep", "status", "mine")
    assert "3 come from code that has changed since" in capsys.readouterr().out


def test_evaluation_of_several_runs(lmkit, three, capsys):
    capsys.readouterr()
    lmkit("evaluate", "run=runs")
    printed = capsys.readouterr().out
    for run in three:
        content = json.loads((run.analysis / "evaluate_static_test.json").read_text())
        assert content["kind"] == "evaluate"
        assert content["ppl"] == pytest.approx(run.read_result().metrics["test_ppl"])
        assert f"{content['ppl']:.5g}" in printed
    lmkit("evaluate", "run='runs head:gss'", "method=cache", "method.window=20", "split=valid")
    assert len(list(Path("runs").glob("*/analysis/evaluate_cache_valid.json"))) == 1


FINETUNE = ("logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null", "lr=2")


@pytest.mark.usefixtures("undrawn")
def test_finetuned_runs_of_several_seeds_are_one_row_of_the_report(lmkit, three):
    for softmax in three[:2]:
        lmkit("finetune", f"run={softmax.path}", *FINETUNE, "max_epochs=1")
    runs, _ = grouped(package.results("runs head:softmax"))
    sizes = runs.groupby("label", sort=False).size()
    assert sorted("not finetuned" in label for label in sizes.index) == [False, True]
    assert sizes.to_list() == [2, 2]
