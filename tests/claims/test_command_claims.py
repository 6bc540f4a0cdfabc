"""What the manual promises of the command itself."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.tiny import TINY

STUDY = REPOSITORY / "docs/study/first/runs"


def lmkit(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lmkit", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )


def test_help_lists_every_command_with_a_line_and_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = lmkit("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    # processor time, so that a busy machine changes nothing
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    listed = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    for command in ("train", "describe", "finetune", "report", "sweep", "compare", "study"):
        assert len(listed[command].split()) > 3
    for analysis in ("evaluate", "rank", "divergence", "predictions", "embeddings", "logits"):
        assert len(listed[analysis].split()) > 3
    assert {"gradient_bottleneck", "press_robustness", "samples", "dialogue"} < listed.keys()


def test_without_a_command_it_lists_them():
    done = lmkit()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == lmkit("--help").stdout


def test_a_misspelt_command_is_one_line_with_what_was_meant():
    done = lmkit("trian", "seed=1")
    assert done.returncode == 1
    assert done.stderr == (
        "error: there is no command trian (did you mean train?); lmkit --help lists them\n"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lmkit tra", "train"),
        ("lmkit pre", "predictions\npress_robustness"),
        ("lmkit train trigger=n", "trigger=never\ntrigger=non_monotone"),
        ("lmkit rank spl", "split="),
    ],
)
def test_completion_is_of_commands_and_then_hydras(line, expected):
    done = lmkit("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert sorted(done.stdout.split()) == sorted(expected.split()), done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lmkit study mode", "mode_matching"),
        ("lmkit study degenerate dra", "draws="),
        ("lmkit reproduce parthiban_table2", "parthiban_table2"),
        ("lmkit reproduce parthiban_table2 dry", "dry_run="),
        ("lmkit train head/transform=si", "head/transform=sigsoftmax"),
        ("lmkit evaluate method=dynamic_m", "method=dynamic_mos\nmethod=dynamic_mos_wt2"),
    ],
)
def test_completion_knows_studies_reproductions_and_choices(line, expected):
    done = lmkit("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert sorted(done.stdout.split()) == sorted(expected.split()), done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lmkit clean ke", "keep="),
        ("lmkit clean runs keep=b", "keep=best"),
        ("lmkit clean ru", "runs/ runs_dir="),
        ("lmkit clean runs/toy-", "runs/toy-a/ runs/toy-b/"),
        ("lmkit sweep st", "status stop"),
        ("lmkit sweep status mi", "mine"),
        ("lmkit sweep status mine a", "all="),
        ("lmkit download pe", "penn"),
        ("lmkit runs runs so", "sort="),
        ("lmkit rank run=r", "run=runs/"),
        ("lmkit rank run=runs/t", "run=runs/toy-a/ run=runs/toy-b/"),
        ("lmkit train data.root=", "data.root=runs/"),
        ("lmkit dashboard mine --", ""),
        ("lmkit train experiment=nope head/m", "head/mixture="),
        ("lmkit sweep nothing x", ""),
    ],
)
def test_completion_knows_all_commands_and_folders_and_prints_nothing_else(
    line, expected, tmp_path, monkeypatch
):
    for folder in ("toy-a", "toy-b", "sweeps/mine"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
    (tmp_path / "runs/sweeps/mine/manifest.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    done = lmkit("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert (sorted(done.stdout.split()), done.stderr) == (sorted(expected.split()), "")


def test_help_lists_no_module_that_is_no_command():
    listed = {line.split()[0] for line in lmkit("--help").stdout.splitlines() if line[:2] == "  "}
    assert not listed & {"options", "entry", "analysis", "main", "command_line", "check_points"}


def test_an_option_that_is_there_needs_no_plus():
    done = lmkit("train", "+seed=3")
    assert "An item is already at 'seed'" in done.stderr


@pytest.fixture
def unread() -> Iterator[int]:
    """The descriptor of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


COMPARED = ["compare", f"a={STUDY}/penn_study-*", f"b={STUDY}/penn_study_*"]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["runs", str(STUDY)], COMPARED]
)
def test_a_command_whose_output_nobody_reads_ends_quietly(unread, arguments):
    command = [sys.executable, "-m", "lmkit", *arguments]
    ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_training_whose_output_nobody_reads_ends_with_its_result(unread, tmp_path):
    command = [sys.executable, "-m", "lmkit", "train", *TINY]
    ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert ended.stderr == ""
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1


def test_a_mistake_is_told_where_the_output_is_not_read(unread):
    command = [sys.executable, "-m", "lmkit", "train", "nothing=1"]
    ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: Could not override 'nothing'")
    assert ended.stderr.count("\n") == 1
    assert subprocess.run(command, stdout=unread, stderr=unread).returncode == 1
