"""metrics.csv: exact, growing in columns, cut back to a step, robust to a torn last line."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.metrics import MetricsFile, merged


@pytest.fixture
def metrics(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "metrics.csv")


def without_checksums(metrics: MetricsFile) -> list[str]:
    """The file's lines without their first cells."""
    return [line.partition(",")[2] for line in metrics.path.read_text().splitlines()]


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


@pytest.mark.parametrize("name", ["step", "epoch", "chained_crc32", "a\nb", ""])
def test_a_metric_leaves_the_files_own_columns_and_lines_alone(metrics: MetricsFile, name: str):
    with pytest.raises(UserError, match="a metric cannot be called"):
        metrics.append(100, 2, {"valid/ppl": 8.0, name: 7.0})
    assert metrics.read() == []


def test_columns_grow_and_cells_stay_empty(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {"loss": 1.5})
    metrics.append(2, 1, {"loss": 1.25, "lr": 20})
    metrics.append(2, 1, {"valid, raw": 3.0})
    metrics.append(3, 2, {"lr": 10})
    assert without_checksums(metrics) == [
        'step,epoch,loss,lr,"valid, raw"',
        *["1,1,1.5,,", "2,1,1.25,20,", "2,1,,,3.0", "3,2,,10,"],
    ]
    assert metrics.read()[2] == {"step": 2, "epoch": 1, "valid, raw": 3.0}
    with metrics.path.open(newline="") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == ["1.5", "1.25", "", ""]


def test_no_file_is_no_rows(metrics: MetricsFile) -> None:
    assert metrics.read() == []
    assert merged(metrics.tail()) == {}
    assert not metrics.path.exists()
    metrics.path.touch()
    assert metrics.read() == []
    assert merged(metrics.tail()) == {}


def test_a_restored_file_keeps_columns_and_so_the_bytes(metrics: MetricsFile) -> None:
    """A run that is resumed ends with the file of one never disturbed."""
    rows = [(1, {"loss": 0.1}), (2, {"valid": 2.0}), (2, {"loss": 0.3}), (4, {"test": 1.0})]
    for step, values in rows:
        metrics.append(step, 1, values)
    undisturbed = metrics.path.read_bytes()
    for step in range(5):
        resumed = MetricsFile(metrics.path)
        resumed.restore(step, 1, "")
        assert metrics.path.read_bytes().count(b"\n") == 1 + sum(at <= step for at, _ in rows)
        for later, values in rows:
            if later > step:
                resumed.append(later, 1, values)
        assert metrics.path.read_bytes() == undisturbed


def test_a_writer_from_before_a_takeover_writes_into_no_file(metrics: MetricsFile) -> None:
    """A process may be suspended between the check of its lock and the writing of a row."""
    metrics.append(10, 1, {"loss": 1.0})
    successor = MetricsFile(metrics.path)
    successor.restore(10, 1, "")
    successor.append(20, 1, {"loss": 2.0})
    before = metrics.path.read_bytes()
    metrics.append(20, 1, {"loss": 3.0})
    assert metrics.path.read_bytes() == before


def test_nothing_is_written_without_the_lock(metrics: MetricsFile) -> None:
    def lose() -> None:
        if lost:
            raise UserError("lost")

    lost = False
    checking = MetricsFile(metrics.path, lose)
    checking.append(10, 1, {"loss": 1.0})
    before, lost = metrics.path.read_bytes(), True
    for act in (
        lambda: checking.append(20, 1, {"loss": 1.0}),
        lambda: checking.append(20, 1, {"new": 1.0}),
        lambda: checking.restore(0, 0, "step,epoch\n"),
    ):
        with pytest.raises(UserError, match="lost"):
            act()
    assert metrics.path.read_bytes() == before
    assert list(metrics.path.parent.iterdir()) == [metrics.path]


def test_no_flipped_bit_and_no_zeroed_part_passes_as_a_number(metrics: MetricsFile) -> None:
    metrics.append(1, 1, {"loss": 1.25, "valid": 7.5})
    metrics.append(2, 1, {"loss": 1.125, "valid": 3.0})
    metrics.append(3, 2, {"loss": 1.5})
    whole, rows = metrics.path.read_bytes(), metrics.read()
    damaged = [bytes([*whole[:i], whole[i] ^ 1 << b, *whole[i + 1 :]])
               for i in range(len(whole)) for b in (0, 3, 6)]  # fmt: skip
    damaged += [whole[:i] + bytes(20) + whole[i + 20 :] for i in range(len(whole) - 20)]
    refused = 0
    for content in damaged:
        metrics.path.write_bytes(content)
        try:
            assert metrics.read() == rows[:-1]  # as after a kill: the last line has no newline
        except UserError:
            refused += 1
    assert refused >= len(damaged) - 9


def test_files_without_checksums_are_read_and_go_on(metrics: MetricsFile) -> None:
    metrics.path.write_text("step,epoch,loss\n1,1,0.5\n2,1,0.25\n")
    metrics.restore(1, 1, "")
    metrics.append(2, 1, {"loss": 0.125})
    assert [row["loss"] for row in metrics.read()] == [0.5, 0.125]
    assert without_checksums(metrics)[0] == "step,epoch,loss"


def test_restored_from_a_copy(metrics: MetricsFile) -> None:
    """Whatever has become of the file since the copy was made, the rows until then are there."""
    metrics.append(1, 1, {"loss": 1.25, "valid": math.nan})
    metrics.append(2, 1, {"loss": 1.125})
    whole, copy = metrics.path.read_bytes(), metrics.copy()
    assert copy.encode() == whole
    for content in (whole.replace(b"25", b"26"), whole[:-5], whole[:30], b"", b"garbage\n\0"):
        metrics.path.write_bytes(content)
        MetricsFile(metrics.path).restore(2, 1, copy)
        assert metrics.path.read_bytes() == whole
    metrics.path.unlink()
    MetricsFile(metrics.path).restore(2, 1, copy)
    assert metrics.path.read_bytes() == whole


def test_restoring_a_whole_file_keeps_later_columns_and_cuts_later_rows(metrics):
    metrics.append(1, 1, {"loss": 1.25})
    copy = metrics.copy()
    metrics.append(1, 1, {"late": 5.0})  # of the step of the checkpoint, but after it
    metrics.append(1, 2, {"rate": 20.0})  # as the next epoch starts
    metrics.append(2, 1, {"loss": 1.125})
    MetricsFile(metrics.path).restore(1, 1, copy)
    assert metrics.read() == [
        {"step": 1, "epoch": 1, "loss": 1.25},
        {"step": 1, "epoch": 1, "late": 5.0},
    ]


def test_a_run_without_a_checkpoint_begins_with_no_row(metrics: MetricsFile) -> None:
    metrics.append(0, 1, {"rate": 20.0})
    MetricsFile(metrics.path).restore(0, 0, "")
    assert metrics.read() == []


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
        MetricsFile(metrics.path).restore(1, 1, "")
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
    assert merged(metrics.tail()) == {"step": 3, "epoch": 2, "loss": 0.5, "valid": 8.0}
    with metrics.path.open("ab") as file:
        file.write(b"4,2,0.")
    assert merged(metrics.tail())["loss"] == 0.5


def test_latest_reads_whole_rows_of_the_tail_only(metrics: MetricsFile) -> None:
    metrics.append(0, 0, {"once": 1.0, "loss": 100.0})
    for step in range(100, 200):
        metrics.append(step, 1, {"loss": step / 2})
    length = len(metrics.path.read_bytes().splitlines()[-1]) + 1
    for tail_bytes in range(1, 200):
        latest = merged(metrics.tail(tail_bytes))
        assert latest in ({}, {"step": 199, "epoch": 1, "loss": 99.5})
        # the row before it shows whether it is whole
        assert bool(latest) == (tail_bytes >= 2 * length)
    assert merged(metrics.tail(10**6))["once"] == 1.0


@pytest.mark.parametrize(
    "content",
    [
        "step,epoch,loss\n1,1\n",
        "step,epoch,loss\n1,1,abc\n",
        "step,epoch,loss\n,1,0.5\n",
        "step,epoch,loss\n\n1,1,0.5\n",
        "epoch,step,loss\n1,1,0.5\n",
        "chained_crc32,step,epoch,loss\n1,1,1,0.5\n",
        '"' + "x" * 200_000 + "\n",
    ],
    ids=lambda content: repr(content[:30]),
)
def test_damaged_line_is_named_and_left(metrics: MetricsFile, content: str) -> None:
    metrics.path.write_bytes(content.encode())
    for act in (metrics.read, metrics.tail, lambda: metrics.append(9, 1, {})):
        with pytest.raises(UserError, match=f"{metrics.path} is damaged"):
            act()
    with pytest.raises(UserError, match="is damaged"):
        metrics.append(1, 1, {"loss": 1.0})
    assert metrics.path.read_bytes() == content.encode()


@pytest.mark.parametrize("missing", range(4))
def test_a_row_that_was_taken_out_is_missed(metrics: MetricsFile, missing: int) -> None:
    for step in range(1, 6):
        metrics.append(step, 1, {"loss": 1.0})  # the rows differ in their steps alone
    header, *rows = metrics.path.read_bytes().splitlines(keepends=True)
    del rows[missing]
    metrics.path.write_bytes(b"".join([header, *rows]))
    with pytest.raises(UserError, match=f"is damaged: .*checksum.* in '\\d+,{missing + 2},1"):
        metrics.read()


def test_the_tail_has_a_thousand_rows(metrics: MetricsFile) -> None:
    """Of as many bytes as those of a usual run."""
    header = ",".join(["step", "epoch", *(f"metric_{number}" for number in range(19))])
    rows = [f"{step},1{f',{1 / 3}' * 19}" for step in range(2000)]
    metrics.path.write_text("\n".join([header, *rows, ""]))
    assert len(metrics.tail()) >= 1000
