"""What reproductions and sweeps say in their files, without composing each.

Hydra takes tenths of a second to compose a file, too long for a list of all. A file that chooses
nothing but what every such file chooses says itself what Hydra would make of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lmkit.reproduction.steps import Reproduction, Size

_COMMON = {"reproduce": ["/reproduce", "_self_"], "multirun_sweeps": [], "size": []}  # defaults


def content(group: str, file: Path) -> dict[str, Any] | None:
    """What Hydra would compose of a file in a group; None where Hydra alone can tell.

    Raises: YAMLError.
    """
    loaded = OmegaConf.load(file)
    if not isinstance(loaded, DictConfig):
        return None
    plain: Any = OmegaConf.to_container(loaded)
    text = file.read_text("utf-8")
    is_global = "# @package _global_" in text
    if plain.pop("defaults", []) != _COMMON[group] or "${" in text:
        return None
    return dict(plain) if is_global != (group == "size") else None


def group_content(group: str, name: str, folders: Sequence[Path]) -> dict[str, Any] | None:
    """The same of the first of the folders that has the file; None where none has it."""
    files = (folder / group / f"{name}.yaml" for folder in folders)
    file = next((file for file in files if file.is_file()), None)
    return None if file is None else content(group, file)


def reproduction(file: Path, size: Mapping[str, Any]) -> Reproduction | None:
    """A file's reproduction at a size; None where Hydra alone can tell.

    Raises: what OmegaConf raises for an option that is wrong.
    """
    plain = content("reproduce", file)
    if plain is None:
        return None
    common = {"size": size, "runs_dir": "${size.runs_dir}"}
    form = OmegaConf.structured(Reproduction(size=Size()))
    wanted = OmegaConf.to_object(OmegaConf.merge(form, common, plain))
    assert isinstance(wanted, Reproduction)
    return wanted
