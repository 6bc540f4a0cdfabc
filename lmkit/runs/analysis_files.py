"""`analysis/<stem>.json`: what an analysis measured on a run.

Each file has its `kind`, the `schema_version` of that kind, and the weights that were measured:
`checkpoint`, and whether they are `averaged`. The rest belongs to the analysis. The stem is the
kind, plus whatever tells several measurements apart: `rank_test_log_probs_33320`. Reading verifies
a checksum.

`measured_on` is the text, by the hash that a run's identity has of its own. What was measured on
another text has a name of its own, `rank_test_log_probs_33320@1f0c52ab`, and never stands for the
run's.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import make_folder, replace_bytes
from lmkit.runs.checksums import checked, checked_json, read_json, unchecked
from lmkit.runs.folder import RunFolder

if TYPE_CHECKING:  # listing runs does not wait for it
    import numpy as np

Content = dict[str, Any]  # plain data, as JSON holds it
MEASURE_AGAIN = "remove it and measure again"  # where a file is damaged
_OTHER = "@"  # in the stem, before the hash of a text that is not the run's own


class Text(NamedTuple):
    """The text that was measured: all splits of a corpus, or one file."""

    name: str  # of its folder or file
    sha256: str  # hex; of a corpus its fingerprint
    is_own: bool  # whether the run was trained on it

    @property
    def suffix(self) -> str:
        """Of the names of all files with what was measured on it; "" for the run's own text."""
        return "" if self.is_own else f"{_OTHER}{self.sha256[:8]}"


def analysis_file(run: RunFolder, stem: str) -> Path:
    """The file with that stem, which need not exist."""
    return run.analysis / f"{stem}.json"


def analysis_stems(run: RunFolder, kind: str, *, every_text: bool = False) -> list[str]:
    """The stems of the existing files of a kind, in alphabetical order: of the run's own text, or
    of every one.
    """
    stems = sorted(path.stem for path in run.analysis.glob(f"{kind}*.json"))
    counting = [stem for stem in stems if every_text or _OTHER not in stem]
    return [stem for stem in counting if re.match(rf"{re.escape(kind)}(_|{_OTHER}|$)", stem)]


def write_analysis(
    run: RunFolder,
    stem: str,
    content: Mapping[str, Any],
    *,
    kind: str,
    schema_version: int,
    checkpoint: str,
    averaged: bool,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Writes what was measured, replacing any earlier file.

    Raises: UserError naming the file when it cannot be written, or `content` holds a number that is
        not finite; what `before_rename` raises.
    """
    head = {
        "schema_version": schema_version,
        "kind": kind,
        "checkpoint": checkpoint,
        "averaged": averaged,
    }
    path = analysis_file(run, stem)
    try:
        data = checked_json({**head, **content}, indent=1, allow_nan=False)
    except ValueError:
        raise UserError(f"{path} is not written: a number in it is not finite") from None
    make_folder(path.parent)
    replace_bytes(path, data, before_rename)


def write_arrays(
    run: RunFolder,
    stem: str,
    arrays: Mapping[str, np.ndarray],
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Writes the arrays of a measurement beside its file, replacing any earlier ones."""
    import numpy as np

    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]  # an option named as an array
    make_folder(run.analysis)
    path = analysis_file(run, stem).with_suffix(".npz")
    replace_bytes(path, checked(archive.getvalue()), before_rename)


def read_arrays(run: RunFolder, stem: str) -> dict[str, np.ndarray]:
    """The arrays of a measurement; none where there is no such file.

    Raises: UserError naming the file when it is damaged.
    """
    import numpy as np

    path = analysis_file(run, stem).with_suffix(".npz")
    try:
        with np.load(io.BytesIO(unchecked(path.read_bytes())), allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged: {error}; {MEASURE_AGAIN}") from None


def read_analysis(run: RunFolder, stem: str, *, kind: str, schema_version: int) -> Content | None:
    """What was measured, None where there is no such file of that kind.

    Raises: UserError naming the file when it is damaged, or of another version.
    """
    path = analysis_file(run, stem)
    try:
        content = read_json(path, schema_version, MEASURE_AGAIN)
    except FileNotFoundError:
        return None
    # another is of an analysis whose name begins alike
    return content if content.get("kind") == kind else None
