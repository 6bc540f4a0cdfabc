"""Studies without a language model: each claim of the sources, and whether it holds."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from lmkit.presentation.section import Picture, Section
from lmkit.presentation.tables import Table
from lmkit.runs.checksums import parse_json
from lmkit.runs.finished import LeftOut

RECORD = "synthetic.json"


def synthetic_studies(patterns: Iterable[str]) -> tuple[list[Section], list[LeftOut]]:
    """A section for each finished study in the matching folders, and those that cannot be read."""
    sections, left_out = [], []
    for pattern in patterns:
        for record in map(Path, sorted(glob.glob(f"{pattern}/{RECORD}"))):
            try:
                sections.append(_section(record))
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = f"{RECORD} is damaged: {error!r}"
                left_out.append(LeftOut(record.parent.name, reason))
    return sections, left_out


def _section(record: Path) -> Section:
    content = parse_json(record.read_bytes())
    key, name = record.parent.name, content["experiment"].replace("_", " ")
    rows = [
        [claim["claim"], "yes" if claim["holds"] else "no", claim["evidence"], claim["source"]]
        for claim in content["claims"]
    ]
    num_held = sum(bool(claim["holds"]) for claim in content["claims"])
    caption = f"{num_held} of {len(rows)} claims hold here."
    columns = ("claim", "holds here", "evidence", "source")
    table = Table(key, f"Claims, {name}", caption, columns, rows)
    pictures = [
        Picture(
            f"{key}_{file.stem}",
            f"{name.capitalize()}: {file.stem.replace('_', ' ')}",
            (record.parent / file.name).read_bytes(),
        )
        for file in map(Path, content["figures"])
    ]
    return Section(key, name.capitalize(), f"{key}.", [*pictures, table])
