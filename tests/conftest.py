"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real corpora: LMKIT_DATA, else ../shared/data beside the repository."""
    root = Path(os.environ.get("LMKIT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root} (set LMKIT_DATA)")
    return root.resolve()
