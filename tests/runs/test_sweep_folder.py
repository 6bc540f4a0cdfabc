"""The records in a sweep's folder say the version of their form."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from lmkit.runs import sweep_folder
from lmkit.runs.sweep_folder import Failure, Manifest, Point, SweepFolder

FAILURE = Failure("exit status 1", 2, ["error: no"])


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    point = Point("a", [], "toy-0", "toy", 1, None)
    sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, [point]))
    sweep.save()
    sweep.record_failure(point, FAILURE)
    return sweep


def test_a_failure_is_read_back(sweep: SweepFolder) -> None:
    assert sweep.failure(sweep.manifest.points[0]) == FAILURE


@pytest.mark.parametrize(
    "change", [{"schema_version": 99}, {"schema_version": None}, {"attempts": "2"}]
)
def test_a_failure_of_another_form_is_none(sweep: SweepFolder, change: dict[str, object]) -> None:
    (record,) = (sweep.path / "failures").iterdir()
    content = json.loads(record.read_bytes())
    assert "schema_version" in content
    changed = {name: value for name, value in (content | change).items() if value is not None}
    record.write_text(json.dumps(changed))
    assert sweep.failure(sweep.manifest.points[0]) is None


def test_lines_typed_at_the_same_instant_keep_each_others_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(path: Path, read=sweep_folder._read) -> Manifest:
        try:
            return read(path)
        finally:
            time.sleep(0.1)  # between what a line reads and what it writes

    monkeypatch.setattr(sweep_folder, "_read", slow)
    points = [Point(str(i), [f"seed={i}"], f"toy-{i}", "toy", 1, None) for i in range(3)]
    sweeps = [SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, [p])) for p in points]
    lines = [threading.Thread(target=sweep.save) for sweep in sweeps]
    for line in lines:
        line.start()
    for line in lines:
        line.join()
    found = SweepFolder.find("mine", str(tmp_path / "runs"))
    assert {point.run for point in found.manifest.all_points} == {"toy-0", "toy-1", "toy-2"}
    assert {path.name for path in found.path.iterdir()} == {"failures", "logs", "manifest.json"}
