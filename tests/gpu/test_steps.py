"""tests/gpu/run.sh on the CPU at tiny sizes: every step, from a checkout that is only read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
READ = ("conf", "multirun_sweeps", "lmkit", "hydra_plugins", "tests/gpu", "tests/benchmarks")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what the script reads."""
    root = tmp_path_factory.mktemp("checkout")
    for name in READ:
        links = name == "lmkit"  # lmkit/conf leads to conf
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, symlinks=links, ignore=ignored)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / name, root / name)
    return root


def run(checkout: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on a machine with little: no home, no settings, no git on its PATH."""
    line = [checkout / "tests" / "gpu" / "run.sh", *words, "--device", "cpu", "--tiny"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHON": sys.executable}
    environment |= {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*line, "--work", "work", "--results", "results"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )


def of(folder: Path, step: str) -> dict[str, dict]:
    found: dict[str, dict] = json.loads((folder / "results" / f"{step}.json").read_text())
    return found


@pytest.mark.slow
def test_every_step_ends_with_a_line_and_goes_on(checkout, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in checkout.rglob("*")}
    done = run(checkout, tmp_path, "all", "--minutes", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check 1 of 1; bench 5 of 5; spectrum 1 of 1; train 2 of 2; none failed" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in checkout.rglob("*")} == before
    files = sorted((tmp_path / "results").iterdir())
    assert len(files) <= 8
    assert all(file.stat().st_size < 2**20 for file in files)

    (check,) = of(tmp_path, "check").values()
    assert check["passed"] >= 4
    bench = of(tmp_path, "bench")
    softmax = bench["experiment-penn_softmax"]
    for measured in (*softmax["ways"].values(), softmax["plain"]):
        assert 0 < measured["seconds"] < 60
    assert len(softmax["ways"]["32-true eager"]["profile"]["kernels"]) == 10
    assert set(bench["packed-penn_softmax"]["of_one"]) == {"1", "2"}
    (spectrum,) = of(tmp_path, "spectrum").values()
    assert spectrum["deviation"] < 1e-6
    assert len(set(spectrum["press_ranks"])) == 1
    for trained in of(tmp_path, "train").values():
        assert trained["epochs"] == 3
        assert 1 < trained["metrics"]["test_ppl"] < 100
    assert (tmp_path / "results" / "train_mos.csv").read_text().count("\n") == 4

    # on another machine, which is given the results: nothing is left to be done
    shutil.rmtree(tmp_path / "work")
    again = run(checkout, tmp_path, "all", "--minutes", "1")
    assert again.returncode == 0
    assert len(again.stdout.splitlines()) == 1


def test_without_time_nothing_begins(checkout, tmp_path):
    done = run(checkout, tmp_path, "bench", "--minutes", "0.1")
    assert done.returncode == 0, done.stderr
    assert "bench 0 of 5; none failed" in done.stdout


def test_options_of_train_follow_two_dashes(steps, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.sh", "train", "--work", "w", "--", "max_epochs=7"])
    assert steps.arguments().train_options == ["max_epochs=7"]


def test_what_is_missing_is_said_in_one_line(checkout, tmp_path):
    line = [checkout / "tests" / "gpu" / "run.sh", "train", "--device", "cpu"]
    line += ["--work", tmp_path / "work", "--data", tmp_path / "nowhere"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"error: {tmp_path}/nowhere has no folder penn; --data FOLDER names the corpora"
    )


@pytest.fixture
def steps(monkeypatch):
    """The module steps.py, imported as run.sh does."""
    monkeypatch.syspath_prepend(str(HERE))
    import steps

    return steps


def test_a_piece_that_takes_too_long_is_ended_with_all_it_started(steps, tmp_path):
    pieces = sys.modules["pieces"]
    args = SimpleNamespace(work=tmp_path, results=None, minutes=1.0, tiny=False)
    work = steps.Work(args)
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"
    piece = pieces.Piece("long", [sys.executable, "-c", code], pieces.of_json, 0.02)
    steps.do(work, "bench", piece)
    assert work.found("bench")["long"]["error"] == "not done within 0.02 minutes"
    group = subprocess.run(["ps", "-eo", "pgid,args"], capture_output=True, text=True).stdout
    assert not any(line.endswith("sleep 300") for line in group.splitlines())


def test_a_piece_that_fails_leaves_its_words(steps, tmp_path):
    pieces = sys.modules["pieces"]
    work = steps.Work(
        SimpleNamespace(work=tmp_path, results=tmp_path / "out", minutes=1.0, tiny=False)
    )
    failing = pieces.Piece(
        "failing", [sys.executable, "-c", "print('no'); 1 / 0"], pieces.of_json, 1
    )
    assert steps.do(work, "bench", failing)
    assert "status 1" in work.found("bench")["failing"]["error"]
    work.hand_out()
    assert "ZeroDivisionError" in (tmp_path / "out" / "log.txt").read_text()


def test_results_that_were_cut_short_count_as_none(steps, tmp_path):
    work = steps.Work(SimpleNamespace(work=tmp_path, results=None, minutes=1.0, tiny=False))
    (work.kept / "bench.json").write_text('{"half": ')
    assert work.found("bench") == {}
    assert os.access(work.kept, os.W_OK)
