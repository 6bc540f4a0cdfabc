"""Arguments of commands without Hydra: words, and options written `option=value`."""

import glob
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError, did_you_mean, require_choice

TRUTH = ("true", "false")


class Option(NamedTuple):
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    is_path: bool = False


RUNS_DIR = Option("runs", "folder in whose sweeps/ the name of a sweep is looked up", is_path=True)


class Command(NamedTuple):
    """The arguments that a command takes."""

    name: str  # such as "lmkit clean"
    words: str  # its words: RUNS, SWEEP, ...; they may also be written runs=..., sweep=...
    description: str
    options: Mapping[str, Option]
    epilog: str = ""  # examples
    least: int = 1  # words
    most: int | None = None  # words; None: any number
    choices: tuple[str, ...] = ()  # that the first word has, if these are all

    def read(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The words, and the value of each option.

        Raises: UserError for a wrong argument. SystemExit after --help.
        """
        if {"--help", "-h"} & set(arguments):
            print(self.help_text())
            sys.exit()
        if arguments[:1] == ["-sc"]:  # see command_line.complete
            print("\n".join(self.completions(word_begun())))
            sys.exit()
        words: list[str] = []
        given: dict[str, str] = {}
        for word in arguments:
            if word.startswith("--"):
                raise UserError(f"there is no flag {word}; options are written option=value")
            option, equals, value = word.partition("=")
            is_option = option.replace(".", "").isidentifier()
            if not equals or not is_option or os.path.exists(word):
                words += self._entries(word)
            elif option.rstrip("s") == self.words.split()[0].lower().rstrip("s"):
                words += self._entries(value)
            elif option in self.options:
                if self.options[option].choices:
                    require_choice(option, value, self.options[option].choices)
                is_path = self.options[option].is_path
                given[option] = os.path.expanduser(value) if is_path else value
            else:
                near = did_you_mean(option.rpartition(".")[2], list(self.options))
                beside = "; a filter stands with its runs in quotes, as in 'runs seed=1'"
                filters = beside if self.words == "RUNS" and not near else ""
                raise UserError(f"there is no option {option}{near}; --help lists them{filters}")
        self._require(words)
        return words, {name: option.default for name, option in self.options.items()} | given

    def _entries(self, word: str) -> list[str]:
        """The word, or of a list of runs its entries, as Hydra's commands read it."""
        if self.words != "RUNS" or not word.startswith("[") or os.path.exists(word):
            return [word]
        from hydra.errors import HydraException

        from lmkit.sweeps.axes import read  # brings Hydra

        with suppress(HydraException):  # a pattern
            if isinstance(value := read(f"runs={word}").value(), list):
                return list(map(str, value))
        return [word]

    def _require(self, words: Sequence[str]) -> None:
        if len(words) < self.least:
            what = ", ".join(self.choices) or "--help says more"
            raise UserError(f"{self.words.split()[len(words)]} is missing: {what}")
        if self.most is not None and len(words) > self.most:
            raise UserError(f"{words[self.most]!r} is too much; usage: {self._usage()}")
        if self.choices:
            require_choice(self.words.lower(), words[0], self.choices)

    def _usage(self) -> str:
        return f"{self.name} {self.words} [option=value ...]"

    def help_text(self) -> str:
        lines = [f"usage: {self._usage()}", "", self.description]
        if self.choices:
            lines += ["", f"{self.words}: {', '.join(self.choices)}"]
        lines += ["", "== Options: set with option=value =="]
        for name, option in self.options.items():
            choices = f" ({', '.join(option.choices)})" if option.choices else ""
            text = f"{name}={option.default} # {option.meaning}{choices}"
            lines += textwrap.wrap(text, 100, subsequent_indent="  # ")
        return "\n".join([*lines, *(["", self.epilog.rstrip()] if self.epilog else [])])

    def completions(self, word: str) -> list[str]:
        option, equals, value = word.partition("=")
        if not equals:
            names = [*(f"{name}=" for name in self.options), *self.choices]
            if self.words.startswith("SWEEP"):
                names += (file.parent.name for file in Path("runs/sweeps").glob("*/manifest.json"))
            paths = [] if self.choices else folders(word)
            return [name for name in names if name.startswith(word)] + paths
        known = self.options.get(option)
        if known is None:
            return []
        if known.is_path:
            return [f"{option}={folder}" for folder in folders(value)]
        return [f"{option}={each}" for each in known.choices if each.startswith(value)]


def word_begun() -> str:
    """The word of a shell's line that is to be completed."""
    line = os.environ.get("COMP_LINE", "")
    return "" if line.endswith(" ") else line.split()[-1]


def folders(begun: str) -> list[str]:
    """The folders whose path begins like that, each with a / after it."""
    return sorted(glob.glob(f"{glob.escape(begun)}*/"))
