"""`analysis/<stem>.json`: what an analysis measured on a run.

Each file has its `kind`, the `schema_version` of that kind, and the weights that were measured:
`checkpoint`, and whether they are `averaged`. The rest belongs to the analysis. The stem is the
kind, plus whatever tells several measurements apart: `rank_test_log_probs_33320`. Reading verifies
a checksum.

`measured_on` is the text, by the hash that a run's identity has of its own. What was measured on
another text has a name of its own, `rank_test_log_probs_33320@1f0c52ab`, and never stands for the
run's.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import Check, make_folder, replace_bytes, unlocked
from lmkit.runs.checksums import checked_json, parse_json, read_json
from lmkit.runs.folder import RunFolder

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
    return [stem for stem in counting if _is_of(kind, stem)]


def of_no_analysis(folders: Iterable[RunFolder], kinds: Collection[str]) -> list[str]:
    """The stems of files that analyses of other kinds wrote into these folders."""
    # not by Path: one folder may be closed to the user
    names = (name for each in folders for name in glob("*.json", root_dir=each.analysis))
    stems = {name.removesuffix(".json") for name in names}
    return sorted(stem for stem in stems if not any(_is_of(kind, stem) for kind in kinds))


def _is_of(kind: str, stem: str) -> bool:
    return re.match(rf"{re.escape(kind)}(_|{_OTHER}|$)", stem) is not None


def write_analysis(
    run: RunFolder,
    stem: str,
    content: Mapping[str, Any],
    check: Check = unlocked,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Writes what was measured, replacing any earlier file.

    Args:
        first: writes what has to be there once the file is.

    Raises: UserError naming the file when it cannot be written, or `content` holds a number that is
        not finite; what `check` raises.
    """
    path = analysis_file(run, stem)
    try:
        data = checked_json(content, indent=1, allow_nan=False)
    except ValueError:
        raise UserError(f"{path} is not written: a number in it is not finite") from None
    check()  # before a folder is made anew where a run was removed
    make_folder(path.parent)
    first()
    replace_bytes(path, data, check)


def read_analysis(run: RunFolder, stem: str, *, kind: str, schema_version: int) -> Content | None:
    """What was measured, None where there is no such file of that kind.

    Raises: UserError naming the file when it is damaged, or of another version.
    """
    path = analysis_file(run, stem)
    with suppress(OSError, ValueError):  # which `read_json` tells
        if parse_json(path.read_bytes()).get("kind", kind) != kind:
            return None  # of an analysis whose name begins alike, which has versions of its own
    with suppress(FileNotFoundError):
        return read_json(path, schema_version, MEASURE_AGAIN)
    return None


def analyses_in(folder: RunFolder) -> tuple[dict[str, Content], dict[str, str]]:
    """What every analysis stored in a folder, of a run or a pretrained model, by the stem of its
    file; and the files that cannot be read, with the reason.
    """
    found: dict[str, Content] = {}
    damaged: dict[str, str] = {}
    for path in sorted(folder.analysis.glob("*.json")):
        try:
            found[path.stem] = parse_json(path.read_bytes())
        except (OSError, ValueError) as error:
            damaged[f"analysis/{path.name}"] = str(error)
    return found, damaged
