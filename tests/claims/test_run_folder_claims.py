"""A run's folder holds what the manual's table lists, and nothing else."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import lmkit as package
from lmkit.runs.folder import RunFolder
from tests.conftest import REPOSITORY
from tests.tiny import TINY

PAGE = (REPOSITORY / "docs" / "runs.md").read_text("utf-8")
CHOSEN = {"transform.svg", "wandb/", "tensorboard/"}  # of a kind of head, or of a logger


def listed() -> Iterator[str]:
    """The patterns of the table, `{a,b}` as two."""
    (table,) = re.findall(r"^\| in the folder \| \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
    for row in table.splitlines():
        for pattern in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            before, choices, after = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*)", pattern).groups()
            yield from (before + choice + after for choice in (choices or "").split(","))


def matched(run: RunFolder) -> set[str]:
    """The patterns that some file of the run matches; each file matches one of them."""
    patterns, found = list(listed()), set()
    for path in run.path.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(run.path))
            mine = [pattern for pattern in patterns if fnmatchcase(name, pattern)]
            assert len(mine) == 1, f"the manual lists {name} {len(mine)} times"
            found.update(mine)
    return found


def test_a_run_that_went_on_and_was_measured_has_all_that_is_listed(lmkit, three):
    *_, run = three  # of GSS
    extended = {"result-epoch*.json", "analysis-epoch*/*"}
    untouched = {"analysis/*", *extended, *CHOSEN}
    assert matched(run) == {*listed()} - untouched
    lmkit("logits", f"run={run.path}", "contexts=20", "bins=4")
    lmkit("train", *TINY, "head/transform=gss", "seed=1", "max_epochs=3")
    assert matched(run) == {*listed()} - {"analysis/*", *CHOSEN}
    lmkit("logits", f"run={run.path}", "contexts=20", "bins=4")
    assert matched(run) == {*listed()} - CHOSEN


def test_what_was_measured_stays_where_a_larger_budget_trains_no_epoch(lmkit, three):
    *_, run = three
    line = ("train", *TINY, "head/transform=gss", "seed=1")
    lmkit(*line, "max_epochs=3")
    lmkit("logits", f"run={run.path}", "contexts=20", "bins=4")
    before = run.read_result().metrics
    run.reopen()  # by a process that was killed then
    lmkit(*line, "max_epochs=4", "patience=1", "stopping.min_delta=1000.0")
    after = run.read_result()
    assert (after.metrics, after.budget.stopped) == (before, "patience")
    assert (run.analysis / "logits.json").exists()
    run.set_measured_aside(after.budget.epochs)  # by a process that was killed in the midst
    lmkit(*line, "max_epochs=4", "patience=1", "stopping.min_delta=1000.0")
    assert (run.analysis / "logits.json").exists()


def test_what_was_measured_before_a_result_was_removed_is_not_of_the_weights_after(lmkit, three):
    *_, run = three
    lmkit("logits", f"run={run.path}", "contexts=20", "bins=4")
    run.result.unlink()
    lmkit("train", *TINY, "head/transform=gss", "seed=1", "max_epochs=3")
    assert run.read_result().budget.epochs == 3
    assert not (run.analysis / "logits.json").exists()
    assert (run.path / "analysis-epoch2" / "logits.json").exists()


def test_the_provenance_is_of_before_the_training_and_names_the_code_that_a_run_resumed_from(
    lmkit, run, monkeypatch
):
    def of(commit: str) -> dict[str, object]:
        git = {"commit": commit, "dirty": False}
        return {"code_sha256": commit, "git": git, "packages": {"torch": f"2.{commit}"}}

    def provenance(*_: object) -> dict[str, object]:
        checkpoints.append(len([*Path("runs").glob("*/checkpoints/*")]))
        return of(commit)

    checkpoints = []
    monkeypatch.setattr("lmkit.experiment.conclusion.provenance", provenance)
    for epochs, commit in enumerate("aabb", 1):
        lmkit("train", *TINY, f"max_epochs={epochs}")
        by = {"code_sha256": "a", "git": of("a")["git"], "torch": "2.a"}
        earlier = {} if commit == "a" else {"earlier_code": [by]}
        assert run().read_result().provenance == of(commit) | earlier
        (row,) = package.results("runs")[["code.sha256", "code.torch"]].to_numpy().tolist()
        assert row == (["a+b", "2.a+2.b"] if earlier else ["a", "2.a"])
    assert checkpoints == [0, 2, 2, 2]


def test_a_learned_transform_has_its_figure(toy_run):
    figures = {"transform.svg", "curves.svg", "spectrum.svg"}
    assert matched(toy_run) >= figures
    for name in figures:
        drawn = (toy_run.path / name).read_text("utf-8")
        assert re.search(rf">[^<]*{toy_run.path.name}</text>", drawn), name
        ElementTree.fromstring(drawn)
