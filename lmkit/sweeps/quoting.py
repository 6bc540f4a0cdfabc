"""Text as Hydra's overrides take it."""

from __future__ import annotations

import re


def quoted(text: str) -> str:
    """Text as Hydra's overrides take it whatever signs it holds."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def as_value(text: str) -> str:
    """Text as the value of an override, in quotes where it needs them."""
    return text if re.fullmatch(r"[\w./-]*[A-Za-z./][\w./-]*", text) else quoted(text)
