"""`lmkit compare`: what it prints, and what it writes."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path, make_run) -> Path:
    """Runs of two heads, one that diverged and one that is unfinished among them.

    The ranks of softmax are all equal, as they usually are.
    """
    for transform, perplexities in (("gss", (56.1, 56.4, 56.2)), ("identity", (57.0, 57.2))):
        for seed, ppl in enumerate(perplexities):
            rank = 402 if transform == "identity" else 9000 + seed
            make_run(tmp_path / "runs", seed, ppl, rank, transform=transform)
    make_run(tmp_path / "runs", 8, float("inf"), transform="gss")
    (make_run(tmp_path / "runs", 9) / "result.json").unlink()
    return tmp_path


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "lmkit", "compare", *arguments]
    return subprocess.run(line, capture_output=True, text=True, cwd=folder)


def test_the_command_prints_and_writes(runs):
    groups = ("a=runs head:gss", "b=runs head:softmax")
    done = command(runs, *groups, "out=c.json")
    assert done.returncode == 0
    assert done.stderr == ""  # no warning of a library either
    assert "it has not finished" in done.stdout
    assert "it diverged" in done.stdout
    assert "a: 3 runs: penn_small-" in done.stdout
    assert "sd of a" in done.stdout
    content = json.loads((runs / "c.json").read_text())
    of_test = {name: values["test perplexity"] for name, values in content.items()}
    assert (of_test["runs of a"], of_test["paired seeds"]) == (3, 2)
    of_rank = {name: values["Press rank, 10,000 contexts"] for name, values in content.items()}
    assert (of_rank["mean of a"], of_rank["sd of b"]) == (9001, 0)
    assert of_rank["low"] == pytest.approx(8599 - 4.302653 / 3**0.5)  # t of 2 degrees of freedom
    assert command(runs, *groups, "out=c.csv").returncode == 0
    rows = {row[""]: row for row in csv.DictReader((runs / "c.csv").open())}
    assert float(rows["test perplexity"]["mean of a"]) == of_test["mean of a"]


def test_a_copy_of_a_run_is_no_further_seed(runs):
    for run in [*(runs / "runs").glob("penn_small-*")]:
        shutil.copytree(run, runs / "copies" / run.name)
    done = command(runs, "a=[runs head:gss, copies head:gss]", "b=runs head:softmax", "out=c.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": the head and seed of penn_small-") == 3
    assert "a: 3 runs" in done.stdout
    assert json.loads((runs / "c.json").read_text())["runs of a"]["test perplexity"] == 3


def test_runs_of_several_groups_are_named(runs, make_run):
    make_run(runs / "runs", 1, 56.0, 9100, transform="gss", changes={"transform.k": 2.0})
    done = command(runs, "a=runs head:gss", "b=runs head:softmax")
    assert done.returncode == 0, done.stderr
    assert "a holds 2 groups, tested as if they were one: GSS (k=2), GSS (k=2.5)" in done.stdout
    assert "b holds" not in done.stdout


def test_sets_whose_options_are_of_different_classes_compare(runs, make_run):
    make_run(runs / "runs", 1, 56.0, trigger="nt", name="by_loss")
    done = command(runs, "a=runs name:by_loss", "b=runs head:softmax name:penn_small")
    assert done.returncode == 0, done.stderr
    (told,) = (line for line in done.stdout.splitlines() if "trigger" in line)
    assert told.strip().removeprefix("trigger: ").split(" and ")[1].endswith(".AtEpoch")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a=runs head:gss", "b=runs"), "both hold penn_small-"),
        (("a=runs head:gss", "b=nowhere"), "b=nowhere selects no run"),
        (("a=runs head:gss", "b=rnus"), "(did you mean runs?)"),
        (
            ("a=runs head:softmaxes", "b=runs"),
            "selects none of the 7 runs of runs: there is head:gss, head:softmax\n",
        ),
        (
            ("a=runs", "b=runs", "metric=x"),
            "Could not override 'metric'",
        ),
        (("a=runs head:gss", "b=runs head:softmax", "out=c.txt"), "out=c.txt must be"),
    ],
)
def test_what_is_wrong_is_one_line(runs, arguments, error):
    done = command(runs, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


RUNS_HELP = """\
RUNS is a run's folder, a folder of runs, a sweep's name or folder, a pattern such as
runs/penn_*, or a list of these. Filters may follow: head:gss, name:penn_*, or any
option of the runs, such as head.transform.c:-1.5."""


def test_help_explains_which_runs(tmp_path):
    shown = command(tmp_path, "--help").stdout
    assert " ".join(RUNS_HELP.split()) in " ".join(shown.split())
