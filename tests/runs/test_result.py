"""What is missing or newer is named, and when a budget suffices."""

import json
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import SCHEMA_VERSION, Budget, Spent


def test_missing_file_is_an_unfinished_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"result\.json is missing: this run has not finished"):
        RunFolder(tmp_path).read_result()


def test_newer_schema_asks_for_an_update(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "all": "different"}))
    with pytest.raises(UserError, match="update"):
        RunFolder(tmp_path).read_result()


def spent(stopped: str, patience: int | None = 10) -> Spent:
    return Spent(max_epochs=50, patience=patience, epochs=50, stopped=stopped)


@pytest.mark.parametrize(
    ("had", "max_epochs", "patience", "suffices"),
    [
        (spent("max_epochs"), 50, 10, True),
        (spent("max_epochs"), 49, 10, True),
        (spent("max_epochs"), 51, 10, False),
        (spent("max_epochs"), None, 10, False),
        (spent("max_epochs"), 50, 20, True),  # no epoch is left for more patience
        (spent("patience"), 50, 10, True),
        (spent("patience"), 100, 10, True),
        (spent("patience"), 100, 9, True),
        (spent("patience"), 100, 11, False),
        (spent("patience"), 100, None, False),
        (spent("patience"), 50, 11, True),
        (spent("patience", None), 100, None, True),
        (spent("callback"), 100, 100, True),
    ],
)
def test_what_a_budget_would_change(had, max_epochs, patience, suffices):
    assert had.suffices_for(Budget(max_epochs, patience)) is suffices


def test_a_smaller_min_delta_is_a_larger_budget() -> None:
    had = Spent(max_epochs=50, patience=3, epochs=20, stopped="patience", min_delta=0.1)
    for min_delta, suffices in ((0.0, False), (0.05, False), (0.1, True), (0.2, True)):
        asked = Budget(50, 3, min_delta=min_delta)
        assert had.suffices_for(asked) is suffices
        assert Budget(50, 3, min_delta=0.1).suffices_for(asked) is suffices
    assert Budget(50, None, min_delta=0.1).suffices_for(Budget(50, None))
