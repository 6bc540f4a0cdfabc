"""The command line before Hydra reads it: its flags and names, and where configurations lie."""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path

from lmkit.errors.user_error import UserError, did_you_mean, require_choice
from lmkit.runs.quoting import quoted

CONFIGS = (Path(__file__).parents[1] / "conf").resolve()  # lmkit's own
FLAGS = (
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m",
    "--shell-completion", "-sc", "--info", "-i",
)  # fmt: skip
FLAGS_WITH_VALUE = (
    "--cfg", "-c", "--package", "-p", "--config-name", "-cn", "--config-dir", "-cd",
)  # fmt: skip
CONFIG_DIR = ("--config-dir", "-cd")
_CFG = ("job", "hydra", "all")
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
CHOICES = {"--cfg": _CFG, "-c": _CFG, "--info": _INFO, "-i": _INFO}

_FOLDERS_OF_HYDRA = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")


def options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with options before flags: Hydra does not take options on both sides of a flag.

    Raises: UserError for a flag that Hydra does not know, or that lacks its value; for a group that
        is removed, whose section would be there, but empty; for a file of the user's that one of
        lmkit's hides.
    """
    options, flags = [], []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, _, value = argument.partition("=")
        if not name.startswith("-"):
            group = name[1:] if name[:1] == "~" else ""
            if group not in ("", "experiment") and (CONFIGS / group).is_dir():
                raise UserError(f"{group} cannot be removed: choose another with {group}=NAME")
            if name.lstrip("+") in _FOLDERS_OF_HYDRA:
                raise UserError(f"{name}: lmkit writes nothing there; runs_dir=FOLDER has the runs")
            options.append(_readable(argument))
            continue
        if name not in (*FLAGS, *FLAGS_WITH_VALUE):
            raise UserError(
                f"there is no flag {name}{did_you_mean(name, (*FLAGS, *FLAGS_WITH_VALUE))}; "
                f"options are written option=value, and --help lists them"
            )
        # shells leave ~ as it is behind a =
        flags.append(f"{name}={os.path.expanduser(value)}" if value else argument)
        takes_next = name in FLAGS_WITH_VALUE and not value
        if takes_next and not rest:
            raise UserError(f"{name} must be followed by its value")
        is_next = name in ("--info", "-i") and rest and rest[0][:1].isalpha() and "=" not in rest[0]
        if takes_next or is_next:
            value = os.path.expanduser(rest.pop(0))
            flags.append(value)
        if name in CHOICES and value:
            require_choice(name, value, CHOICES[name])
    for folder in searched_folders(arguments):
        _require_seen(folder)
    return [*options, *flags]


def _require_seen(folder: Path) -> None:
    """Raises UserError if Hydra would take a file of lmkit's for another one of the folder."""
    for own in CONFIGS.rglob("*.yaml"):
        theirs = folder / own.relative_to(CONFIGS)
        if theirs.is_file() and theirs.read_bytes() != own.read_bytes():
            raise UserError(f"{theirs} would not be read, as lmkit has one of that name: rename it")


def _readable(argument: str) -> str:
    """The value in quotes if it has letters that Hydra reads in quotes alone, such as ü; with the
    folder for which ~ stands, which shells leave as it is behind a =."""
    option, _, value = argument.partition("=")
    is_plain = value.isascii() and value[:1] != "~"
    if is_plain or re.search(r"""['"\[\]{},$]""", value):
        return argument
    return f"{option}={quoted(os.path.expanduser(value))}"


def config_folders(arguments: Sequence[str]) -> list[Path]:
    """The folders that `--config-dir` adds. Raises: UserError for one that is not there."""
    folders = []
    for argument, following in pairwise([*arguments, ""]):
        flag, _, value = argument.partition("=")
        if flag in CONFIG_DIR:
            folders.append(Path(os.path.expanduser(value or following)))
            if not folders[-1].is_dir():
                raise UserError(f"--config-dir: {folders[-1]} is no folder")
    return folders


def searched_folders(arguments: Sequence[str]) -> list[Path]:
    """The folders that `--config-dir` and `hydra.searchpath` add."""
    places: list[object] = []
    for argument in arguments:
        if argument.startswith("hydra.searchpath="):
            from hydra.errors import HydraException

            from lmkit.sweeps.axes import read  # brings Hydra

            with suppress(HydraException):  # Hydra reports it, and a non-list
                value = read(argument).value()
                places += value if isinstance(value, list) else []
    paths = [str(place).removeprefix("file://") for place in places]
    return [*config_folders(arguments), *(Path(path) for path in paths if "://" not in path)]


def files_of(group: str, arguments: Sequence[str]) -> dict[str, Path]:
    """The files of a group, by name: the user's own in `config_folders`, and lmkit's."""
    folders = [*config_folders(arguments), CONFIGS]
    files = {file.stem: file for folder in folders for file in folder.glob(f"{group}/*.yaml")}
    return dict(sorted(files.items()))


def run_named(
    kind: str, names: Collection[str], run: Callable[[str], None], show_all: Callable[[], None]
) -> None:
    """Takes the line's first word as a name, and leaves the rest of the line to Hydra.

    Options and flags may precede it.

    Args:
        kind: what the names are of, for messages.
        show_all: prints what there is, where the line has no name.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["-sc"]:
        return complete(names, run)
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        line = takewhile(lambda each: not each.startswith("-"), options_first(arguments))
        first = next((each for each in line if "=" not in each), None)
        if first is None:
            return show_all()
        arguments.remove(first)
        arguments.insert(0, first)
    name = arguments[0]
    if name not in names:
        near = did_you_mean(name, list(names))
        if len(arguments) > 1 and arguments[1] in names:
            near = f" (did you mean {arguments[1]} {name}?)"
        sys.exit(f"error: there is no {kind} {name}{near}; there are {', '.join(names)}")
    sys.argv = [f"{sys.argv[0]} {name}", *arguments[1:]]
    run(name)


def complete(names: Iterable[str], run: Callable[[str], None]) -> None:
    """Shell completion: of a line's second word here, of all after it by Hydra.

    Hydra's shell function asks the bare program, with the line so far in COMP_LINE.

    Args:
        names: what the second word may be.
        run: completes what follows that word, in a COMP_LINE without it.
    """
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    if len(words) < 2 or (len(words) == 2 and not line.endswith(" ")):
        typed = words[1] if len(words) == 2 else ""
        print("\n".join(name for name in names if name.startswith(typed)))
        return
    if words[1] not in names:
        return
    start = line.index(words[1], len(words[0]))
    rest = line[:start] + line[start + len(words[1]) :].lstrip(" ")
    point = int(os.environ.get("COMP_POINT") or len(line))
    os.environ["COMP_LINE"] = rest
    os.environ["COMP_POINT"] = str(max(0, point - (len(line) - len(rest))))
    run(words[1])


def first_sentence(file: Path) -> str:
    """The first comment of a YAML file that is neither for Hydra nor the name of the file."""
    lines = [line.lstrip("# ") for line in file.read_text("utf-8").splitlines()]
    told = (each for each in lines if not each.startswith("@package") and each[-5:] != ".yaml")
    return next(filter(None, told), "")


def listed(lines: Mapping[str, str]) -> str:
    """Names, and beside each what it does."""
    width = max(map(len, lines))
    return "\n".join(f"  {name:{width}}  {line}" for name, line in lines.items())
