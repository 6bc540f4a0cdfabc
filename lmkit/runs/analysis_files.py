"""`analysis/<stem>.json`: what an analysis measured on a run.

Each file has its `kind`, the `schema_version` of that kind, and the weights that were measured:
`checkpoint`, and whether they are `averaged`. The rest belongs to the analysis. The stem is the
kind, plus whatever tells several measurements apart: `rank_test_log_probs_33320`. Reading verifies
a checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import make_folder, replace_bytes
from lmkit.runs.checksums import checked_json, read_json
from lmkit.runs.folder import RunFolder

Content = dict[str, Any]  # plain data, as JSON holds it
MEASURE_AGAIN = "remove it and measure again"  # where a file is damaged


def analysis_file(run: RunFolder, stem: str) -> Path:
    """The file with that stem, which need not exist."""
    return run.analysis / f"{stem}.json"


def analysis_stems(run: RunFolder, kind: str) -> list[str]:
    """The stems of the existing files of a kind, in alphabetical order."""
    stems = sorted(path.stem for path in run.analysis.glob(f"{kind}*.json"))
    return [stem for stem in stems if stem == kind or stem.startswith(f"{kind}_")]


def write_analysis(
    run: RunFolder,
    stem: str,
    content: Mapping[str, Any],
    *,
    kind: str,
    schema_version: int,
    checkpoint: str,
    averaged: bool,
) -> Content:
    """Writes what was measured, replacing any earlier file; returns the file's content.

    Raises: UserError naming the file when it cannot be written, or `content` holds a number that is
        not finite.
    """
    head = {
        "schema_version": schema_version,
        "kind": kind,
        "checkpoint": checkpoint,
        "averaged": averaged,
    }
    whole = {**head, **content}
    path = analysis_file(run, stem)
    try:
        data = checked_json(whole, indent=1, allow_nan=False)
    except ValueError:
        raise UserError(f"{path} is not written: a number in it is not finite") from None
    make_folder(path.parent)
    replace_bytes(path, data)
    return whole


def read_analysis(run: RunFolder, stem: str, *, kind: str, schema_version: int) -> Content | None:
    """What was measured, None where there is no such file.

    Raises: UserError naming the file when it is damaged, or of another kind or version.
    """
    path = analysis_file(run, stem)
    try:
        content = read_json(path, schema_version, MEASURE_AGAIN)
    except FileNotFoundError:
        return None
    if content.get("kind") != kind:
        raise UserError(f"{path} is of another kind: {content.get('kind')!r}, not {kind!r}")
    return content
