"""What `--help` shows for a Hydra command: its groups, and its options with their meaning.

An option's meaning is the comment beside or above it in the file that sets its default.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import hydra
import yaml
from omegaconf import DictConfig, OmegaConf

from lmkit.cli.command_line import CONFIGS, searched_folders
from lmkit.sweeps.axes import GROUP, read
from lmkit.sweeps.quoting import quoted

WIDTH = 100
OF_SWEEPS = ("hydra/launcher",)  # groups that are not chosen by default
_KEY = re.compile(r"( *)'?([\w@/.-]+)'?:(?: +|$)(.*)")  # YAML's y and n are quoted


class Meaning(NamedTuple):
    """The comment on an option or section."""

    above: tuple[str, ...]  # lines
    beside: str


def help_text(config_name: str, arguments: Sequence[str]) -> str:
    """A command's help: its template with the groups and options that its arguments compose."""
    # in the order in which Hydra searches
    folders = [CONFIGS, *(each.resolve() for each in searched_folders(arguments))]
    primary = _found(config_name, folders)[0].parents[config_name.count("/")]
    overrides = [a for a in arguments if "=" in a and not a.startswith("-")]
    single = [each for each in overrides if not read(each).is_sweep_override()]
    with hydra.initialize_config_dir(str(primary), version_base="1.3"):
        searched = ",".join(quoted(f"file://{folder}") for folder in folders)
        line = [f"hydra.searchpath=[{searched}]", *single]
        config = hydra.compose(config_name, line, return_hydra_config=True)
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    # Hydra does not list groups that take several choices
    chosen: dict[str, object] = {str(key): None for key in own if _files(str(key), folders)}
    chosen |= {str(group): choice for group, choice in config.hydra.runtime.choices.items()}
    meanings = dict(_meanings(config_name, chosen, folders))
    return Template(config.hydra.help.template).substitute(
        APP_CONFIG_GROUPS="\n".join(_groups(chosen, folders)),
        CONFIG="\n".join(_annotated(own, meanings)),
    )


def _groups(chosen: dict[str, object], folders: Sequence[Path]) -> Iterator[str]:
    """One paragraph per group that the command chooses from, with its choices."""
    names = [group for group in chosen if not group.startswith("hydra/")]
    if GROUP in names:
        names += OF_SWEEPS
    for group in sorted(set(names)):
        choices = sorted({file.stem for file in _files(group, folders)})
        line = f"{group}: {', '.join(choices)}"
        yield textwrap.fill(
            line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def _files(group: str, folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted((folder / group).glob("*.yaml"))]


def _meanings(
    config_name: str, chosen: dict[str, object], folders: Sequence[Path]
) -> Iterator[tuple[str, Meaning]]:
    """Each option with its comment; the last of several counts."""
    for group, choice in chosen.items():
        section = group.replace("/", ".")
        # the chosen file comes last; one that it builds on may have the comments
        last = choice or "default"
        for file in sorted(_files(group, folders), key=lambda file: file.stem == last):
            yield from _with_bases(file, section, folders)
    yield from _with_bases(_found(config_name, folders)[0], "", folders)


def _with_bases(file: Path, section: str, folders: Sequence[Path]) -> Iterator[tuple[str, Meaning]]:
    """The comments of a file, after those of the files on which it builds: ungrouped ones, and
    others of its group."""
    content = yaml.safe_load(file.read_text("utf-8")) or {}
    group = section.replace(".", "/")
    for name in content.get("defaults", []):
        if isinstance(name, str):
            path = name.partition("@")[0] if name.startswith("/") else f"{group}/{name}"
            for base in _found(path.lstrip("/"), folders)[:1]:
                yield from _with_bases(base, section, folders)
    yield from _comments(file, section)


def _found(name: str, folders: Sequence[Path]) -> list[Path]:
    """The files of that name, in Hydra's order: lmkit's before the user's."""
    files = [folder / f"{name}.yaml" for folder in folders]
    return [file for file in files if file.is_file()]


def _comments(file: Path, section: str) -> Iterator[tuple[str, Meaning]]:
    """The options of a file that have a comment; the first comment is that of its section, which is
    "" for a command's own file.
    """
    above: list[str] = []
    is_first = True
    for line, key, option in _options(file.read_text("utf-8").splitlines(), section):
        text = line.strip()
        if text.startswith("#"):
            above.append(text.lstrip("# "))
            continue
        if is_first and above:
            lines = tuple(each for each in above if not each.startswith("@package"))
            if section:
                yield section, Meaning(lines, "")
            is_first, above = False, []
        if key:
            beside = re.search(r"(?:^|\s)#\s*(.*)", key[3])
            if above or beside:
                yield option, Meaning(tuple(above), beside[1] if beside else "")
        above = []


def _annotated(config: DictConfig, meanings: dict[str, Meaning]) -> Iterator[str]:
    """The configuration as YAML, with the comments on its options."""
    for line, key, option in _options(OmegaConf.to_yaml(config).splitlines()):
        if not key:
            yield line
            continue
        above, beside = meanings.get(option, Meaning((), ""))
        commented = f"{line} # {beside}" if beside else line
        if len(commented) > WIDTH:
            above, commented = (*above, beside), line
        before = f"{key[1]}# "
        yield from textwrap.wrap(
            " ".join(above), WIDTH, initial_indent=before, subsequent_indent=before
        )
        yield commented


def _options(
    lines: Iterable[str], section: str = ""
) -> Iterator[tuple[str, re.Match[str] | None, str]]:
    """Each line of YAML, with the match of _KEY and the whole name of the option that it sets."""
    path: list[tuple[int, str]] = [(-1, section)] if section else []
    for line in lines:
        key = _KEY.fullmatch(line)
        if key:
            indent = len(key[1])
            path = [each for each in path if each[0] < indent] + [(indent, key[2])]
        yield line, key, ".".join(name for _, name in path)
