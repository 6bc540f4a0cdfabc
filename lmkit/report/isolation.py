"""Studies without a language model: each claim of the sources, and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from lmkit.presentation.section import Picture, Section
from lmkit.presentation.tables import Column, Table, word
from lmkit.runs.finished import LeftOut

RECORD = "synthetic.json"


def isolation(folders: Iterable[Path]) -> tuple[list[Section], list[LeftOut]]:
    """A section for each study in synthetic/ of the folders, and those that cannot be read."""
    sections, left_out = [], []
    records = (path for folder in folders for path in sorted(folder.glob(f"synthetic/*/{RECORD}")))
    for record in records:
        try:
            sections.append(_section(record))
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{RECORD} is damaged: {error!r}"
            left_out.append(LeftOut(record.parent.name, reason))
    return sections, left_out


def _section(record: Path) -> Section:
    content = json.loads(record.read_bytes())
    name = content["experiment"].replace("_", " ")
    claims: Sequence[dict] = content["claims"]
    rows = []
    for claim in claims:
        text, evidence, source = (str(claim[key]) for key in ("claim", "evidence", "source"))
        holds = "yes" if claim["holds"] else "no"
        rows.append([word(cell) for cell in (text, holds, evidence, source)])
    titles = ("claim", "holds here", "evidence", "source")
    columns = [Column(title, is_text=True) for title in titles]
    held = sum(bool(claim["holds"]) for claim in claims)
    key = record.parent.name
    table = Table(
        key, f"Claims, {name}", f"{held} of {len(claims)} claims hold here.", columns, rows
    )
    pictures = [
        Picture(
            f"{key}_{file.stem}",
            f"{name.capitalize()}: {file.stem.replace('_', ' ')}",
            (record.parent / file.name).read_bytes(),
        )
        for file in map(Path, content["figures"])
    ]
    return Section(key, name.capitalize(), f"{record.parent.name}.", [*pictures, table])
