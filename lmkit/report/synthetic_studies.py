"""Studies without a language model: each claim of the sources, and whether it holds."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.presentation.figure_files import svg_width
from lmkit.presentation.quantities import option_text
from lmkit.presentation.section import Picture, Section
from lmkit.presentation.tables import Table, counted
from lmkit.runs.finished import LeftOut
from lmkit.runs.study_record import RECORD, read_record_of_any_version


def synthetic_studies(patterns: Iterable[str]) -> tuple[list[Section], list[LeftOut]]:
    """A section per finished study in the matching folders, and those that cannot be read."""
    sections, left_out = [], []
    for pattern in patterns:
        for path in map(Path, sorted(glob.glob(f"{pattern}/{RECORD}"))):
            try:
                sections.append(_section(path))
            except UserError as error:
                left_out.append(LeftOut(path.parent.name, str(error)))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"{RECORD} is damaged: {error!r}"
                left_out.append(LeftOut(path.parent.name, reason))
    return sections, left_out


def _section(path: Path) -> Section:
    record = read_record_of_any_version(path)
    key, name = path.parent.name, record.experiment.replace("_", " ")
    rows = [
        [claim["claim"], "yes" if claim["holds"] else "no", claim["evidence"], claim["source"]]
        for claim in record.claims
    ]
    num_held = sum(bool(claim["holds"]) for claim in record.claims)
    hold = "holds" if num_held == 1 else "hold"
    settings = _settings(record.config)
    caption = f"{num_held} of {counted(len(rows), 'claim')} {hold} with these settings: {settings}."
    columns = ("claim", "holds here", "evidence", "source")
    table = Table(key, f"Claims, {name}", caption, columns, rows)
    pictures = []
    for file in (path.parent / Path(figure).name for figure in record.figures):
        title = f"{name.capitalize()}: {file.stem.replace('_', ' ')}"
        caption = _shown_in(file.name, record.claims)
        svg, pdf = _checked(file, record.figure_sha256).decode(), file.with_suffix(".pdf")
        svg_width(svg)
        drawn = _checked(pdf, record.figure_sha256) if pdf.exists() else None
        pictures.append(Picture(f"{key}_{file.stem}", title, caption, svg, drawn))
    intro = f"Made-up distributions, no text and no trained language model ({key})."
    return Section(key, name.capitalize(), intro, [*pictures, table])


def _checked(figure: Path, sha256: Mapping[str, str]) -> bytes:
    """The content of a figure.

    Args:
        sha256: by the figure's name; {} in records of earlier versions.

    Raises: UserError when it is damaged.
    """
    content = figure.read_bytes()
    if sha256 and hashlib.sha256(content).hexdigest() != sha256.get(figure.name):
        raise UserError(
            f"{figure.name} is damaged: it is not what was written, as its checksum shows; remove "
            f"the study's folder and run the same command again"
        )
    return content


def _shown_in(figure: str, claims: Sequence[Mapping[str, Any]]) -> str:
    """The caption of a figure: the claims that it shows."""
    shown = [
        f"“{claim['claim']}”: {'holds' if claim['holds'] else 'does not hold'} here"
        for claim in claims
        if claim["figure"] == figure
    ]
    return f"{'; '.join(shown)}." if shown else ""


def _settings(config: Mapping[str, Any]) -> str:
    """All options of the study in words: `seed 1, heads [none+identity], steps 2,000`."""
    options = {"seed": config["seed"], **config["options"]}
    return ", ".join(
        f"{option.replace('_', ' ')} {_value(value)}"
        for option, value in options.items()
        if not option.startswith("_")
    )


def _value(value: object) -> str:
    if isinstance(value, Mapping):  # a head
        return str(value.get("option", value))
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return option_text(value)
