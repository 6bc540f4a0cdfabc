"""What `--help` shows for a Hydra command: its groups, and its options with their meaning.

An option's meaning is the comment beside or above it in a file that is merged.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import hydra
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lmkit.cli.command_line import CONFIGS, searched_folders
from lmkit.runs.quoting import quoted
from lmkit.sweeps.axes import GROUP, OF_SWEEPS, read

WIDTH = 100
LAUNCHER = "hydra/launcher"  # a group that is not chosen by default
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
        loader = GlobalHydra.instance().config_loader()
        merged = loader.compute_defaults_list(config_name, line, RunMode.RUN).defaults
    hidden = ("hydra", *(OF_SWEEPS if config_name == "describe" else ()))  # which shows one run
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key not in hidden])
    # Hydra does not list groups that take several choices
    chosen: dict[str, object] = {str(key): None for key in own if _files(str(key), folders)}
    choices = config.hydra.runtime.choices.items()
    chosen |= {str(group): choice for group, choice in choices if group not in hidden}
    meanings = _meanings(merged, chosen, folders)
    return Template(config.hydra.help.template).substitute(
        APP_CONFIG_GROUPS="\n".join(_groups(chosen, folders)),
        CONFIG="\n".join(_annotated(own, meanings)),
    )


def _groups(chosen: dict[str, object], folders: Sequence[Path]) -> Iterator[str]:
    """One paragraph per group that the command chooses from, with its choices."""
    names = [group for group in chosen if not group.startswith("hydra/")]
    if GROUP in names:
        names.append(LAUNCHER)
    for group in sorted(set(names)):
        choices = sorted({file.stem for file in _files(group, folders)})
        line = f"{group}: {', '.join(choices)}"
        yield textwrap.fill(
            line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def _files(group: str, folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted((folder / group).glob("*.yaml"))]


def _meanings(
    merged: Iterable[ResultDefault], chosen: Mapping[str, object], folders: Sequence[Path]
) -> dict[str, Meaning]:
    """Each option with its comment. Of several, the last counts, but not those in files that set
    options of any section, as experiments do, or that are one of several choices."""
    meanings: dict[str, Meaning] = {}
    for each in merged:
        group = str(each.config_path).rpartition("/")[0]
        counts = not group or each.primary or (each.package and chosen.get(group))
        for file in _found(str(each.config_path), folders)[:1]:
            found = dict(_comments(file, each.package or ""))
            meanings = meanings | found if counts else found | meanings
    return meanings


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
