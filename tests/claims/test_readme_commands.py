"""Every command that README, the manual and the help texts show is one that lmkit takes."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra

from lmkit.cli import entry, main
from lmkit.cli.command_line import options_first
from lmkit.cli.words import Command
from lmkit.fixed_trunk import composition
from lmkit.sweeps import axes
from tests.pages import PAGES, lmkit_command, shell_lines, write_shown_files

CONFIGS = entry.CONFIGS


def commands_of_pages() -> Iterator[str]:
    for page in PAGES:
        text = page.read_text("utf-8")
        yield from filter(None, map(lmkit_command, shell_lines(text)))
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for code in re.findall(r"`(lmkit [^`]+)`", prose):
            yield " ".join(code.split())


def examples_of_help() -> Iterator[str]:
    """The indented lines of the help texts in conf/."""
    for file in sorted(CONFIGS.rglob("*.yaml")):
        text = re.sub(r"\\\n\s*", "", file.read_text("utf-8"))
        yield from re.findall(r"^ {8}(lmkit .*)", text, re.MULTILINE)


COMMANDS = list(dict.fromkeys([*commands_of_pages(), *examples_of_help()]))


@pytest.fixture
def shown_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the pages show."""
    write_shown_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LMKIT_DATA", "data")


def config_of(command: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The primary configuration of a command, and the rest of its line."""
    if command in ("study", "reproduce"):
        group = "studies" if command == "study" else command
        return f"{group}/{arguments[0]}", list(arguments[1:])
    is_analysis = not (CONFIGS / f"{command}.yaml").exists()
    return f"analyses/{command}" if is_analysis else command, list(arguments)


def with_own(arguments: Sequence[str], folder: Path) -> tuple[Path, list[str]]:
    """Where the configurations are, those of --config-dir among ours, and the rest of the line."""
    if "--config-dir" not in arguments:
        return CONFIGS, list(arguments)
    at = arguments.index("--config-dir")
    shutil.copytree(CONFIGS, folder)
    shutil.copytree(arguments[at + 1], folder, dirs_exist_ok=True)
    return folder, [*arguments[:at], *arguments[at + 2 :]]


def compose_all(configs: Path, name: str, overrides: Sequence[str], is_multirun: bool) -> None:
    """Composes what the line asks for: one configuration, or a point of each part of a sweep."""
    with hydra.initialize_config_dir(str(configs), version_base="1.3"):
        if not is_multirun and not any(each.startswith(f"{axes.GROUP}=") for each in overrides):
            entry.plain_config(hydra.compose(name, list(overrides)))
            return
        line = axes.for_sweeper(["--multirun", *overrides])
        typed = [each for each in line if each != "--multirun"]
        single = [each for each in typed if not axes.read(each).is_sweep_override()]
        of_sweep = hydra.compose(name, single, return_hydra_config=True).hydra
        assert of_sweep.sweep.dir  # what it interpolates is there
        sweeper = of_sweep.sweeper
        of_hydra = [each for each in overrides if each.startswith("hydra")]
        of_runs = [each for each in axes.run_overrides(typed) if each not in of_hydra]
        for part in sweeper.get("parts") or [{}]:
            point, *_ = axes.expand(sweeper.get("params") or {}, [part], of_runs)
            entry.plain_config(hydra.compose(name, [*of_hydra, *point]))


class Parsed(Exception):  # noqa: N818  (it is no error)
    """The parser took the line."""


def parse(command: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the command's own parser read the line, and goes no further."""
    original = Command.read

    def read(self: Command, given: Sequence[str]) -> None:
        assert not any(each.startswith("--") for each in given), "flags are of before"
        original(self, given)
        raise Parsed

    monkeypatch.setattr(Command, "read", read)
    monkeypatch.setattr(sys, "argv", ["lmkit", command, *arguments])
    with pytest.raises(Parsed):
        main.main()


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 60
    assert sum("multirun_sweeps=" in command for command in COMMANDS) >= 5


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    """Hydra knows our sweeper and our forms once anything was composed."""
    GlobalHydra.instance().clear()
    entry.compose("compare")


@pytest.fixture
def trunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever trunk.of names is there: a trunk of size 8."""
    source = composition._TrunkSource({"name": "trunk"}, 8, 8)
    for kind in ("_run_source", "_pretrained_source"):
        monkeypatch.setattr(composition, kind, lambda _: source)


@pytest.mark.usefixtures("shown_files", "trunks")
@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_is_taken(line, monkeypatch, tmp_path):
    _, command, *arguments = shlex.split(line, comments=True)
    monkeypatch.setattr(sys, "argv", ["lmkit", command, *arguments])
    if command == "--help":
        return
    assert command in main._commands(command)
    if arguments in ([], ["--help"]):
        return
    if command in ("clean", "download", "dashboard", "runs", "sweep", "sync"):
        parse(command, arguments, monkeypatch)
        return
    config_name, rest = config_of(command, arguments)
    configs, rest = with_own(rest, tmp_path / "configs")
    flags = [each for each in rest if each.startswith("-")]
    options_first(rest)  # refuses a flag that there is not
    GlobalHydra.instance().clear()
    overrides = composition.implied([each for each in rest if each not in flags])
    compose_all(configs, config_name, overrides, "--multirun" in flags)
