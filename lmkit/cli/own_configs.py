"""Folders of a user's own configurations, as a line names them before Hydra has read it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def config_folders(arguments: Sequence[str]) -> list[Path]:
    """The folders that `--config-dir` adds."""
    folders = []
    for argument, following in pairwise([*arguments, ""]):
        flag, _, value = argument.partition("=")
        if flag in ("--config-dir", "-cd"):
            folders.append(Path(value or following))
    return folders


def first_sentence(file: Path) -> str:
    """What a YAML file says of itself, the lines that are not about Hydra."""
    lines = [line.lstrip("# ") for line in file.read_text("utf-8").splitlines()]
    return next((line for line in lines if line and not line.startswith("@package")), "")
