"""Imports point only to the left in the chain of rooms; quick commands stay free of torch."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lmkit

PACKAGE = Path(lmkit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# from left to right: a room may import itself and what stands left of it
CHAIN = (
    "data",
    "trunk",
    "heads",
    "objective",
    "optimizer",
    "token_mean",
    "recorded_step",
    "head_module",
    "module",
    "build",
    "callbacks",
    "evaluation",
    "analysis",
)
# open to every room, importing nothing of the chain
BESIDE = {"errors": (), "cpu": (), "spectra": ("errors",), "runs": ("errors",)}
# houses of their own beside the chain, imported by no room: what each may import of it
HOUSES = {
    "synthetic": ("lmkit.data", "lmkit.heads", "lmkit.analysis.figures"),
    "dialogue": ("lmkit.data", "lmkit.heads", "lmkit.head_module"),
}
# what the user starts, and what puts the rooms together: free to import any, imported by no room
ENTRY_POINTS = (
    "train",
    "finetune",
    "evaluate",
    "rank",
    "generate",
    "describe",
    "sweep",
    "dashboard",
    "report",
)
EXEMPT = (*ENTRY_POINTS, "cli", "mistakes", "experiment", "parent", "conclude", "sweeps", "mirror")
# entry points that lie within a room: free to import any, imported by none, quick to start
COMMANDS = (
    "lmkit.analysis.compare",
    "lmkit.analysis.embeddings",
    "lmkit.analysis.gradient_bottleneck",
    "lmkit.analysis.logits",
    "lmkit.analysis.predictions",
    "lmkit.analysis.press_robustness",
    "lmkit.dialogue.respond",
    "lmkit.synthetic.__main__",
)

TORCH_FREE_ROOMS = ("errors", "runs", "cli", "mistakes", *ENTRY_POINTS)
TORCH_FREE_MODULES = (
    "lmkit.data.corpus",
    "lmkit.data.toy",
    "lmkit.data.download",
    "lmkit.dialogue.corpus",
)
HEAVY = {"torch", "pytorch_lightning", "torchmetrics", "wandb", "matplotlib"}

MAX_LINES = 250


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [module_name(path) for path in FILES]


def room_of(module: str) -> str:
    """`lmkit.data.corpus` is of the room data, `lmkit` of none."""
    return f"{module}.".split(".")[1]


def imported(source: str, module: str) -> Iterator[str]:
    """Every module of lmkit that a source imports, within functions and for types too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "lmkit")


def allowed(room: str) -> set[str]:
    """Rooms that a room may import."""
    if room in BESIDE:
        return {room, *BESIDE[room]}
    return {*CHAIN[: CHAIN.index(room) + 1], *BESIDE}


def violations(source: str, module: str) -> list[str]:
    room = room_of(module)
    if room in ("", *EXEMPT) or module in COMMANDS:
        return []
    return [
        name
        for name in imported(source, module)
        if not (is_open_to(room, name) if room in HOUSES else room_of(name) in allowed(room))
        or is_command(name)
    ]


def is_open_to(house: str, name: str) -> bool:
    """Whether a house may import `name`: its own, what stands beside the chain, what it lists."""
    mine = (f"lmkit.{house}", *(f"lmkit.{room}" for room in BESIDE), *HOUSES[house])
    return any(f"{name}.".startswith(f"{module}.") for module in mine)


def is_command(name: str) -> bool:
    """Whether `name` is a module of COMMANDS, or something in one."""
    return any(f"{name}.".startswith(f"{command}.") for command in COMMANDS)


def test_every_file_belongs_to_a_room_that_has_its_place_above():
    rooms = {room_of(module) for module in MODULES} - {""}
    assert rooms - {*CHAIN, *BESIDE, *HOUSES, *EXEMPT} == set()
    assert {*CHAIN, *BESIDE, *HOUSES} <= rooms


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_imports_point_to_the_left(path):
    assert violations(path.read_text(), module_name(path)) == []


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from lmkit.module import LanguageModel", "lmkit.heads.head"),
        ("import lmkit.callbacks.cost as cost", "lmkit.module"),
        ("from lmkit import analysis", "lmkit.evaluation.perplexity"),
        ("def f():\n    from lmkit.experiment import run", "lmkit.callbacks.cost"),
        ("from lmkit.data.corpus import Corpus", "lmkit.runs.folder"),
        ("from lmkit.runs.result import Result", "lmkit.spectra.gram"),
        ("if TYPE_CHECKING:\n    from lmkit.heads.head import Head", "lmkit.trunk.dropout"),
        ("from lmkit.cli import entry_point", "lmkit.analysis.figures"),
        ("from lmkit.analysis.compare import main", "lmkit.analysis.figures"),
        ("from lmkit.analysis import compare", "lmkit.analysis.figures"),
        ("from lmkit.trunk.dropout import locked_dropout", "lmkit.synthetic.fit"),
        ("from lmkit.callbacks.cost import Cost", "lmkit.synthetic.fit"),
        ("from lmkit.analysis.figures2 import save", "lmkit.synthetic.study"),
        ("from lmkit.synthetic.fit import fit", "lmkit.analysis.figures"),
    ],
)
def test_an_import_to_the_right_is_found(source, module):
    assert len(violations(source, module)) == 1


def test_commands_may_import_any():
    assert violations("from lmkit.cli import entry_point", COMMANDS[0]) == []


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports(module):
    importlib.import_module(module)


def test_quick_modules_do_not_import_torch():
    """Commands that list, check or report must start within a second."""
    modules = [
        *TORCH_FREE_MODULES,
        *(m for m in MODULES if room_of(m) in TORCH_FREE_ROOMS or m in COMMANDS),
    ]
    assert set(TORCH_FREE_MODULES) < set(MODULES)
    code = "import importlib, sys\n" + "".join(
        f"importlib.import_module({module!r})\n"
        f"print({module!r}, *(sys.modules.keys() & {HEAVY!r}))\n"
        for module in modules
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == modules


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


# the whole package's own sets what PyTorch must be told before its first tensor
@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*/**/__init__.py")), ids=str)
def test_packages_hold_a_line_of_documentation_alone(path):
    body = ast.parse(path.read_text()).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)
    assert len(path.read_text().splitlines()) == 1
