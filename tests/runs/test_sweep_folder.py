"""The records in a sweep's folder say the version of their form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("change", [{"schema_version": 99}, {"schema_version": None}, {"more": 1}])
def test_a_failure_of_another_form_is_none(sweep: SweepFolder, change: dict[str, object]) -> None:
    (record,) = (sweep.path / "failures").iterdir()
    content = json.loads(record.read_bytes())
    assert "schema_version" in content
    changed = {name: value for name, value in (content | change).items() if value is not None}
    record.write_text(json.dumps(changed))
    assert sweep.failure(sweep.manifest.points[0]) is None
