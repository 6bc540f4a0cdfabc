"""Every command that README, the manual and the help texts show is one that lmkit takes.

They are typed, and go as far as the work that they ask for.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig

from lmkit.cli import entry, main
from lmkit.cli.words import Command
from lmkit.experiment.definition import define
from lmkit.fixed_trunk import composition
from lmkit.sweeps import multirun
from lmkit.sweeps.axes import Line, option_of
from lmkit.sweeps.points import Composer, ConfigReader
from tests.claims.test_pages_run import NOT_RUN
from tests.pages import PAGES, README, lmkit_command, shell_lines, write_shown_files
from tests.tiny import composed


def commands_of_pages() -> Iterator[str]:
    """Those in their text, and the lines that test_pages_run.py does not run."""
    for page in PAGES:
        text = page.read_text("utf-8")
        lines = (line for line in shell_lines(text) if line.strip().startswith(tuple(NOT_RUN)))
        yield from filter(None, map(lmkit_command, lines))
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for code in re.findall(r"`(lmkit [^`]+)`", prose):
            yield " ".join(code.split())


def examples_of_help() -> Iterator[str]:
    """The indented lines of the help texts in conf/."""
    for file in sorted(entry.CONFIGS.rglob("*.yaml")):
        text = re.sub(r"\\\n\s*", "", file.read_text("utf-8"))
        yield from re.findall(r"^ {8}(lmkit .*)", text, re.MULTILINE)


COMMANDS = list(dict.fromkeys([*commands_of_pages(), *examples_of_help()]))


class Taken(Exception):  # noqa: N818  (it is no error)
    """The line was read to its end."""


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands end with Taken once they know what they are to do.

    They find the files that the pages show; whatever trunk.of names is a trunk of size 8.
    """

    def task(config: DictConfig) -> None:
        entry.plain_config(config)
        raise Taken

    def plan(
        loader: ConfigLoader, config: DictConfig, lines: Sequence[Line], reader: ConfigReader
    ) -> None:
        assert config.hydra.sweep.dir  # what it interpolates is there
        composer = Composer(loader, "train", multirun.common_options(config), reader)
        # of each part: tests/sweeps composes all points
        kinds = {tuple(map(option_of, line)): line for line in lines}
        for line in kinds.values():
            composer.compose(tuple(reader.implied(line)))
        raise Taken

    original = Command.read

    def read(self: Command, arguments: Sequence[str]) -> None:
        original(self, arguments)
        raise Taken

    monkeypatch.setattr(entry, "quiet_when_unread", lambda: lambda _: task)
    monkeypatch.setattr(multirun, "plan", plan)
    monkeypatch.setattr(Command, "read", read)
    source = ({"name": "trunk", "out_dim": 8}, 8, None)
    for kind in ("_run_source", "_pretrained_source"):
        monkeypatch.setattr(composition, kind, lambda _: source)
    write_shown_files(tmp_path)
    monkeypatch.setenv("LMKIT_DATA", "data")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # which hydra/launcher=packed shares out


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 60
    assert sum("multirun_sweeps=" in command for command in COMMANDS) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_is_taken(line, lmkit):
    _, command, *arguments = shlex.split(line, comments=True)
    if arguments in ([], ["--help"]):
        assert command == "--help" or command in main._commands(command)
        return
    with pytest.raises(Taken):
        lmkit(command, *arguments)


def test_the_first_runs_folder_is_told():
    found = define(composed("experiment=toy"), has_gpu=False).folder.path.name
    assert f"run folder: runs/{found}\n" in README.read_text("utf-8")
