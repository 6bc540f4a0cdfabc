"""Where the user's cache is."""

from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.user_cache import user_cache


def test_a_user_without_a_home_is_told_what_to_set(tmp_path, monkeypatch):
    def nobody(user: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(UserError, match="no home folder: XDG_CACHE_HOME=FOLDER gives a cache"):
        user_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == Path(tmp_path, "lmkit")
