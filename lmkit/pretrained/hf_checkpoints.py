"""Which pretrained models a user selects: folders, patterns of folders, names on the hub.

    models/gpt2                    a folder with a model, as `save_pretrained` writes it
    models/gpt2-ptb                a folder with checkpoints of one model, such as checkpoint-500
    "models/gpt2-ptb/step*"        a pattern: each match is one of the above
    EleutherAI/pythia-70m          a name on Hugging Face's hub, at one revision or several

No torch and no transformers are needed here.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError, require_names

CONFIG = "config.json"
_STEP = re.compile(r"(?:checkpoint|step|epoch)[-_]?(\d+)$")


class Checkpoint(NamedTuple):
    """One pretrained model, at one point of its training."""

    place: str  # the folder, or the name on the hub
    revision: str | None  # on the hub
    name: str  # in tables, and of the folder for what is measured
    step: int | None  # of training, where the folder or the revision says so

    @property
    def family(self) -> str:
        """What the checkpoints of one model have in common."""
        return self.name.partition("@")[0]

    @property
    def is_local(self) -> bool:
        return Path(self.place).is_dir()


def find_checkpoints(places: object, revisions: object) -> list[Checkpoint]:
    """The checkpoints that the options hf and revision select, by model, then by step.

    Raises: UserError for a place that is none, or two checkpoints of one name.
    """
    texts = require_names("hf", places, "models")
    wanted = [] if revisions is None else require_names("revision", revisions, "revisions")
    found: list[Checkpoint] = []
    for text in texts:
        found += _at(text, wanted)
    found.sort(key=lambda each: (each.family, each.step or 0))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"hf={places} means two models with the name {twice}: measure them apart")
    return found


def _at(text: str, revisions: Sequence[str]) -> list[Checkpoint]:
    folders = [Path(text)] if Path(text).exists() else [Path(p) for p in sorted(glob.glob(text))]
    if folders and revisions:
        raise UserError(f"revision is of names on the hub, but hf={text} is a folder")
    if folders:
        found = [each for folder in folders for each in _in_folder(folder)]
        if not found:
            raise UserError(
                f"hf={text} holds no {CONFIG}: give a folder that save_pretrained wrote, or one "
                f"that holds such folders"
            )
        return found
    if re.search(r"^[./~]|/.*/|[*?\[]|/$", text):
        raise UserError(f"hf={text} is no folder")
    name = text.rpartition("/")[2]
    if not revisions:
        return [Checkpoint(text, None, name, None)]
    return [Checkpoint(text, each, f"{name}@{each}", _step(each)) for each in revisions]


def _in_folder(folder: Path) -> Iterator[Checkpoint]:
    """The model in a folder, or those in its subfolders."""
    if (folder / CONFIG).is_file():
        path = folder.resolve()
        step = _step(path.name)
        name = path.name if step is None else f"{path.parent.name}@{path.name}"
        yield Checkpoint(str(folder), None, name, step)
    elif folder.is_dir():
        for each in sorted(folder.iterdir()):
            if (each / CONFIG).is_file():
                yield from _in_folder(each)


def _step(name: str) -> int | None:
    numbered = _STEP.search(name)
    return int(numbered[1]) if numbered else None
