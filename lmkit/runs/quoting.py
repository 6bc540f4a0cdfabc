"""Text as Hydra's overrides take it."""

import re
import shlex
from collections.abc import Iterable


def quoted(text: str) -> str:
    """Text quoted for Hydra's overrides, whatever characters it holds."""
    # Hydra reads two backslashes as one before a quote alone
    doubled = re.sub(r"\\(?=\\*('|\Z))", r"\\\\", text)
    return "'" + doubled.replace("'", "\\'") + "'"


def typed(words: Iterable[str]) -> str:
    """A command of lmkit as one types it in a shell: double quotes around Hydra's single ones."""
    quoted_words = (
        f'"{word}"' if "'" in word and not re.search(r'["$\\`!]', word) else shlex.quote(word)
        for word in words
    )
    return " ".join(("lmkit", *quoted_words))


def as_value(text: str) -> str:
    """Text as the value of an override, quoted if needed."""
    is_plain = re.fullmatch(r"[\w./-]*[A-Za-z./][\w./-]*", text, re.ASCII)
    return text if is_plain else quoted(text)
