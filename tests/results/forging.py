"""Changes the files of finished runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmkit.runs.checksums import checked_json, parse_json


def change(run: Path, file: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Lets `edit` change what a JSON file of the run holds."""
    content = parse_json((run / file).read_bytes())
    edit(content)
    (run / file).write_bytes(checked_json(content))
