"""The pieces of a study belong to the process that holds its lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmkit.runs.lock import LockLost
from lmkit.studies.work import Work


def test_a_process_that_was_taken_over_writes_into_no_file_of_its_successor(tmp_path: Path) -> None:
    pieces = tmp_path / "pieces.jsonl"
    with Work(pieces, show=False) as suspended:
        suspended.do("first", lambda: {"value": 1})
    with Work(pieces, show=False) as successor:
        assert successor.do("first", lambda: {"value": 2}) == {"value": 1}
        successor.do("second", lambda: {"value": 2})
        whole = pieces.read_bytes()
        suspended.do("third", lambda: {"value": 3})  # it has checked its lock before it was
        assert pieces.read_bytes() == whole


def test_nothing_is_written_without_the_lock(tmp_path: Path) -> None:
    def lost() -> None:
        raise LockLost("taken over meanwhile")

    with Work(tmp_path / "pieces.jsonl", False, lost) as work, pytest.raises(LockLost):
        work.do("first", lambda: {"value": 1})
    assert not list(tmp_path.iterdir())
