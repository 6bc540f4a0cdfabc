"""The command `lmkit`: finds the subcommand, and passes it the rest of the line.

A subcommand is a module of this package with a function `main`; `lmkit --help` shows the first line
of its docstring.
"""

import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path

import lmkit
from lmkit.cli.command_line import complete, files_of, first_sentence, listed
from lmkit.cli.interruption import ends_in_one_line, quiet_when_unread
from lmkit.cli.words import folders, word_begun
from lmkit.errors.user_error import did_you_mean
from lmkit.runs.stop_signals import stopping_in_order
from lmkit.runs.unread_output import forget_closed_pipes, open_outputs

FOLDER = Path(__file__).parent
NOT_COMMANDS = ("main", "check_points")  # programs of their own
# options of commands with Hydra whose values are folders
PATHS = ("run", "runs", "a", "b", "out", "runs_dir", "data.root", "data_root", "hf")
USAGE = """\
lmkit trains language models with interchangeable output heads, and measures the spectrum of log P.

usage: lmkit COMMAND [option=value ...]      lmkit COMMAND --help lists a command's options

"""


def main() -> None:
    """Runs the subcommand that `sys.argv` names, and shuts down cleanly on a signal."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # read when PyTorch is imported: a thread that waits in a loop keeps a core from the thread
        # for which it waits, where other work has cores, too (tests/benchmarks/RESULTS.md)
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    gc.set_threshold(50_000, 20, 20)  # imports make objects by the million, and no garbage
    open_outputs()
    try:
        with stopping_in_order(), quiet_when_unread(), ends_in_one_line():
            _main()
    finally:
        forget_closed_pipes()  # Python's own last line would end it with another status
        # first, before libraries' exit handlers, where Ctrl-C would print their traceback
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def _main() -> None:
    find_own_classes()
    arguments = sys.argv[1:]
    if arguments[:1] == ["-sc"]:
        if not os.environ.get("COMP_LINE"):  # -sc install=bash prints the shell's function
            return _run("train", arguments, program="lmkit")
        return complete(_commands(), lambda name: _complete(name, arguments))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE + listed(_commands()))
        return
    if arguments == ["--version"]:
        print(f"lmkit {lmkit.__version__}")
        return
    name = arguments[0]
    if name not in _commands(name):
        sys.exit(
            f"error: there is no command {name}{did_you_mean(name, list(_commands()))}; "
            f"lmkit --help lists them"
        )
    _run(name, arguments[1:])


def find_own_classes() -> None:
    """Puts the current folder on Python's path, where a console script lacks it: the user's own
    classes must be found from it, and from the processes that it starts. It is the last, so that no
    file of the user's stands for a module of Python or of a library.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        sys.exit("error: the current folder has been removed: change to another")
    if not {"", here} & set(sys.path):
        sys.path.append(here)


def _complete(name: str, arguments: Sequence[str]) -> None:
    """Prints what may follow, and nothing else, which would appear on the shell's prompt."""
    option, equals, value = word_begun().partition("=")
    if equals and option in PATHS:
        print("\n".join(f"{option}={folder}" for folder in folders(value)))
        return
    # an unfinished line may be wrong in any way
    with redirect_stderr(StringIO()), suppress(Exception, SystemExit):
        _run(name, arguments)


def _run(name: str, arguments: Sequence[str], program: str = "") -> None:
    sys.argv = [program or f"lmkit {name}", *arguments]
    if _modules(name):
        importlib.import_module(f"lmkit.cli.{name}").main()
    else:
        importlib.import_module("lmkit.cli.analysis").run_analysis(name)


def _commands(only: str | None = None) -> dict[str, str]:
    """What each subcommand (or the named one) does, by name; none is imported."""
    files = files_of("analyses", sys.argv[1:])
    commands = {n: first_sentence(file) for n, file in files.items() if only in (None, n)}
    return dict(sorted((commands | _modules(only)).items()))


def _modules(only: str | None = None) -> dict[str, str]:
    """Of these, the modules of this package."""
    commands = {}
    for file in FOLDER.glob("*.py"):
        if file.stem not in NOT_COMMANDS and only in (None, file.stem):
            text = file.read_text("utf-8")
            if "\ndef main(" in text:
                commands[file.stem] = text.partition("\n")[0].strip('"')
    return commands
