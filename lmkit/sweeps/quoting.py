"""Text as Hydra's overrides take it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def quoted(text: str) -> str:
    """Text as Hydra's overrides take it whatever signs it holds."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def as_value(text: str) -> str:
    """Text as the value of an override, in quotes where it needs them."""
    is_plain = re.fullmatch(r"[\w./-]*[A-Za-z./][\w./-]*", text, re.ASCII)
    return text if is_plain else quoted(text)


def search_path(folders: Iterable[Path]) -> str:
    """The override that makes Hydra search folders of configurations."""
    return f"hydra.searchpath=[{','.join(quoted(f'file://{folder}') for folder in folders)}]"
