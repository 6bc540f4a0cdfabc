"""The user's cache: what can be computed again, kept for all runs."""

from pathlib import Path

from platformdirs import user_cache_path

from lmkit.errors.user_error import UserError


def user_cache() -> Path:
    """lmkit's folder in it. Raises: UserError where the user has no home, as in some containers."""
    try:
        return user_cache_path("lmkit")
    except RuntimeError:
        raise UserError("there is no home folder: XDG_CACHE_HOME=FOLDER gives a cache") from None
