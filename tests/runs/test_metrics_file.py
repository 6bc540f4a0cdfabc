"""metrics.csv: exact, growing in columns, cut back to a step, robust to a torn last line."""

from __future__ import annotations

import csv
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.metrics import MetricsFile


@pytest.fixture
def metrics(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "metrics.csv")


def test_rows_read_back_exactly(metrics: MetricsFile) -> None:
    values = {"loss": 0.1 + 0.2, "tiny": 5e-324, "big": 1.7976931348623157e308, "count": 2**60}
    metrics.append(10, 1, values)
    metrics.append(20, 1, {**values, "loss": -0.0})
    assert metrics.read() == [
        {"step": 10, "epoch": 1, **values},
        {"step": 20, "epoch": 1, **values, "loss": -0.0},
    ]
    assert math.copysign(1, metrics.read()[1]["loss"]) == -1
    assert isinstance(metrics.read()[0]["count"], int)
    assert isinstance(metrics.read()[0]["loss"], float)


def test_numbers_that_are_not_finite(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {"a": math.inf, "b": -math.inf, "c": math.nan, "d": np.float64(0.1)})
    (row,) = metrics.read()
    assert (row["a"], row["b"], row["d"]) == (math.inf, -math.inf, 0.1)
    assert math.isnan(row["c"])


@pytest.mark.parametrize("value", [True, "0.5", None, np.float32(0.5)])
def test_only_numbers(metrics: MetricsFile, value: object) -> None:
    with pytest.raises(TypeError, match="metric loss"):
        metrics.append(1, 1, {"loss": value})
    assert metrics.read() == []


def test_each_append_is_in_the_file_at_once(metrics: MetricsFile) -> None:
    for step in range(1, 4):
        metrics.append(step, 1, {"loss": 1.0})
        assert len(metrics.path.read_bytes().splitlines()) == step + 1


def test_columns_grow_and_cells_stay_empty(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {"loss": 1.5})
    metrics.append(2, 1, {"loss": 1.25, "lr": 20})
    metrics.append(2, 1, {"valid, raw": 3.0})
    metrics.append(3, 2, {"lr": 10})
    assert metrics.path.read_text() == (
        'step,epoch,loss,lr,"valid, raw"\n1,1,1.5,,\n2,1,1.25,20,\n2,1,,,3.0\n3,2,,10,\n'
    )
    assert metrics.read()[2] == {"step": 2, "epoch": 1, "valid, raw": 3.0}
    with metrics.path.open(newline="") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == ["1.5", "1.25", "", ""]


def test_no_file_is_no_rows(metrics: MetricsFile) -> None:
    assert metrics.read() == []
    assert metrics.latest() == {}
    assert not metrics.path.exists()
    metrics.path.touch()
    assert metrics.read() == []
    assert metrics.latest() == {}


def test_row_without_metrics(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {})
    metrics.append(2, 1, {})
    assert metrics.path.read_text() == "step,epoch\n1,1\n2,1\n"


def test_cut_back_to_a_step(metrics: MetricsFile) -> None:
    for step in (10, 20, 20, 30):
        metrics.append(step, 1, {"loss": step / 7})
    before = metrics.path.read_text().splitlines(keepends=True)
    resumed = MetricsFile(metrics.path)
    resumed.cut_back(20)
    assert metrics.path.read_text() == "".join(before[:-1])
    resumed.append(30, 1, {"loss": 30 / 7})
    assert metrics.path.read_text() == "".join(before)
    resumed.cut_back(5)
    assert metrics.path.read_text() == before[0]


def test_cut_back_keeps_columns_and_so_the_bytes(metrics: MetricsFile) -> None:
    """A run that is cut back and goes on ends with the file of one never disturbed."""
    rows = [(1, {"loss": 0.1}), (2, {"valid": 2.0}), (3, {"loss": 0.3}), (4, {"test": 1.0})]
    for step, values in rows:
        metrics.append(step, 1, values)
    undisturbed = metrics.path.read_bytes()
    for step in range(5):
        metrics.cut_back(step)
        for later, values in rows[step:]:
            metrics.append(later, 1, values)
        assert metrics.path.read_bytes() == undisturbed


def test_nothing_to_cut_leaves_the_file(metrics: MetricsFile) -> None:
    metrics.append(10, 1, {"loss": 1.0})
    before = metrics.path.stat()
    MetricsFile(metrics.path).cut_back(10)
    assert metrics.path.stat().st_ino == before.st_ino
    assert metrics.path.stat().st_mtime_ns == before.st_mtime_ns


def test_torn_anywhere(metrics: MetricsFile) -> None:
    """Cut after any byte, the whole lines count, and the next row begins a line of its own."""
    metrics.append(1, 1, {"loss": 1.25, "é": 7.5})
    metrics.append(2, 1, {"loss": 1.125})
    whole = metrics.path.read_bytes()
    for length in range(len(whole) + 1):
        metrics.path.write_bytes(whole[:length])
        lines = whole[:length].count(b"\n")
        rows = [{"step": 1, "epoch": 1, "loss": 1.25, "é": 7.5}, {"step": 2, "epoch": 1}]
        rows[1]["loss"] = 1.125
        expected = rows[: max(0, lines - 1)]
        assert metrics.read() == expected
        MetricsFile(metrics.path).append(3, 1, {"loss": 1.0})
        assert metrics.read() == [*expected, {"step": 3, "epoch": 1, "loss": 1.0}]
        metrics.path.write_bytes(whole[:length])
        MetricsFile(metrics.path).cut_back(1)
        assert metrics.read() == expected[:1]
        assert metrics.path.read_bytes().endswith(b"\n")


def test_appending_drops_no_later_row(metrics: MetricsFile) -> None:
    metrics.append(10, 1, {"loss": 1.0})
    MetricsFile(metrics.path).append(5, 1, {"loss": 2.0})
    assert [row["step"] for row in metrics.read()] == [10, 5]


def test_latest_of_each_column(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {"loss": 1.0, "valid": 9.0})
    metrics.append(2, 2, {"valid": 8.0})
    metrics.append(3, 2, {"loss": 0.5})
    assert metrics.latest() == {"step": 3, "epoch": 2, "loss": 0.5, "valid": 8.0}
    with metrics.path.open("ab") as file:
        file.write(b"4,2,0.")
    assert metrics.latest()["loss"] == 0.5


def test_latest_reads_whole_rows_of_the_tail_only(metrics: MetricsFile) -> None:
    metrics.append(0, 0, {"once": 1.0, "loss": 100.0})
    for step in range(100, 200):
        metrics.append(step, 1, {"loss": step / 2})
    for tail_bytes in range(1, 200):
        latest = metrics.latest(tail_bytes)
        assert latest in ({}, {"step": 199, "epoch": 1, "loss": 99.5})
        assert bool(latest) == (tail_bytes >= len("199,1,,99.5\n"))
    assert metrics.latest(10**6)["once"] == 1.0


@pytest.mark.parametrize(
    "content",
    [
        "step,epoch,loss\n1,1\n",
        "step,epoch,loss\n1,1,2,3\n",
        "step,epoch,loss\n1,1,abc\n",
        "step,epoch,loss\n,1,0.5\n",
        "step,epoch,loss\n\n1,1,0.5\n",
        "epoch,step,loss\n1,1,0.5\n",
        "\n1,1,0.5\n",
    ],
)
def test_damaged_line_is_named_and_left(metrics: MetricsFile, content: str) -> None:
    metrics.path.write_text(content)
    for act in (metrics.read, metrics.latest, lambda: metrics.cut_back(0)):
        with pytest.raises(UserError, match=f"{metrics.path} is damaged"):
            act()
    with pytest.raises(UserError, match="is damaged"):
        metrics.append(1, 1, {"loss": 1.0})
    assert metrics.path.read_text() == content


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent/metrics.csv"):
        MetricsFile(tmp_path / "absent" / "metrics.csv").append(1, 1, {"loss": 1.0})


WRITER = """
import sys
from pathlib import Path
from lmkit.runs.metrics import MetricsFile
metrics = MetricsFile(Path(sys.argv[1]))
rows = metrics.read()
metrics.cut_back(len(rows) // 2)
step = len(metrics.read())
print("ready", flush=True)
while True:
    step += 1
    metrics.append(step, 1, {"loss": step / 3, f"column{step % 40}": step})
"""


def test_killed_while_appending(metrics: MetricsFile) -> None:
    moments = random.Random(0)
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(metrics.path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.02, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        rows = metrics.read()
        for step, row in enumerate(rows, start=1):
            expected = {"step": step, "epoch": 1, "loss": step / 3, f"column{step % 40}": step}
            assert row == expected
    assert len(rows) > 3
