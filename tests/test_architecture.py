"""Imports point only to the left in the chain of rooms; quick commands stay free of torch."""

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
    *("kernels", "data", "trunk", "heads", "measures", "training", "experiment", "evaluation"),
    *("pretrained", "analyses", "report"),
)
# open to every room, importing nothing of the chain: what each may import
OPEN = {
    "errors": (),
    "spectra": ("errors",),
    "runs": ("errors",),
    "presentation": ("errors", "runs"),
    "results": ("errors", "runs"),
}
# beside the chain, imported by none of its rooms: what each may import
BESIDE = {
    "sweeps": tuple(OPEN),
    "tracking": tuple(OPEN),
    "reproduction": (*OPEN, "sweeps"),
    "studies": (*CHAIN, *OPEN),
    "dialogue": (*CHAIN, *OPEN),
    "fixed_trunk": (*CHAIN, *OPEN),
}
ON_TOP = ("cli", "__main__")

TORCH_FREE_ROOMS = ("errors", "runs", "results", "sweeps", "cli")
TORCH_FREE_MODULES = (
    *("lmkit.data.corpus", "lmkit.data.toy", "lmkit.data.download", "lmkit.dialogue.corpus"),
    *("lmkit.experiment.definition", "lmkit.experiment.run"),
)
# programs of their own, and what an analysis draws, which is imported with it
SLOW = ("lmkit.cli.check_points", "lmkit.cli.analysis")
HEAVY = {"torch", "pytorch_lightning", "torchmetrics", "wandb", "matplotlib", "mlflow"}
# of runs, on which status commands depend, none but the module of arrays brings these either
HEAVY_FOR_RUNS = HEAVY | {"numpy", "pandas", "hydra", "omegaconf", "scipy", "rich"}
OF_ARRAYS = "lmkit.runs.array_files"
# nor do a sweep's worker and what finds that a run has finished bring numpy, nor the first Hydra
WORKER = "lmkit.cli.sweep"
SKIPPING = ("lmkit.cli.train", "lmkit.experiment.run", "lmkit.data.corpus", "lmkit.data.tokenizer")


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
    if room in CHAIN:
        return {*CHAIN[: CHAIN.index(room) + 1], *OPEN}
    return {room, *(OPEN | BESIDE)[room]}


def violations(source: str, module: str) -> list[str]:
    room = room_of(module)
    if room in ("", *ON_TOP):
        return []
    return [name for name in imported(source, module) if room_of(name) not in allowed(room)]


def test_every_file_belongs_to_a_room_that_has_its_place_above():
    rooms = {room_of(module) for module in MODULES} - {""}
    assert rooms == {*CHAIN, *OPEN, *BESIDE, *ON_TOP}


def test_imports_point_to_the_left():
    found = {module_name(path): violations(path.read_text(), module_name(path)) for path in FILES}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from lmkit.experiment.run import Run", "lmkit.heads.head"),
        ("import lmkit.evaluation.cache as c", "lmkit.training.trainer"),
        ("from lmkit import analyses", "lmkit.measures.perplexity"),
        ("def f():\n    from lmkit.report.page import page", "lmkit.analyses.rank"),
        ("from lmkit.data.corpus import Corpus", "lmkit.runs.folder"),
        ("from lmkit.runs.result import Result", "lmkit.spectra.gram"),
        ("if TYPE_CHECKING:\n    from lmkit.heads.head import Head", "lmkit.trunk.dropout"),
        ("from lmkit.cli.entry import entry_point", "lmkit.presentation.figures"),
        ("from lmkit.heads.head import Head", "lmkit.sweeps.multirun"),
        ("from lmkit.tracking.wandb import WandbLogger", "lmkit.experiment.run"),
        ("from lmkit.studies.heads import fitted", "lmkit.report.page"),
        ("from lmkit.dialogue.scores import bleu", "lmkit.studies.heads"),
    ],
)
def test_an_import_to_the_right_is_found(source, module):
    assert len(violations(source, module)) == 1


def test_every_module_imports():
    for module in MODULES:
        importlib.import_module(module)


def test_quick_modules_do_not_import_torch():
    """Commands that list, check or report must start within a second."""
    of_runs = [m for m in MODULES if room_of(m) == "runs" and m != OF_ARRAYS]
    others = [m for m in MODULES if room_of(m) in TORCH_FREE_ROOMS and m not in (*SLOW, *of_runs)]
    heavy = dict.fromkeys(of_runs, HEAVY_FOR_RUNS) | {WORKER: HEAVY | {"hydra", "numpy"}}
    heavy |= dict.fromkeys(SKIPPING, HEAVY | {"numpy"})
    modules = list(dict.fromkeys([*heavy, *TORCH_FREE_MODULES, *others]))
    code = "import importlib, sys\n" + "".join(
        f"importlib.import_module({module!r})\n"
        f"print({module!r}, *(sys.modules.keys() & {heavy.get(module, HEAVY)!r}))\n"
        for module in modules
    )
    analyses = [m for m in MODULES if room_of(m) == "analyses"]  # a report imports them all
    of_reports = [*analyses, "lmkit.dialogue.responses", "lmkit.report.contents"]
    code += "".join(f"import {module}\n" for module in of_reports)
    code += "assert 'torch' not in sys.modules\n"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == modules


# two are left out: the whole package's own sets what PyTorch must be told before its first tensor,
# and `lmkit.results` can be called, whichever of its modules was imported first
def test_packages_hold_documentation_alone():
    contents = {path: ast.parse(path.read_text()).body for path in PACKAGE.glob("*/**/__init__.py")}
    del contents[PACKAGE / "results" / "__init__.py"]
    kinds = {path: [type(node) for node in content] for path, content in contents.items()}
    assert {path: found for path, found in kinds.items() if found != [ast.Expr]} == {}


MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION = 450, 50


def test_no_two_public_classes_share_a_name():
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module_name(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def too_long(source: str) -> list[str]:
    """The names of functions over their limit, and "file" where the file is over its own."""
    functions = [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    is_long = len(source.splitlines()) > MOST_LINES_OF_A_FILE
    return [*functions, "file"] if is_long else functions


def test_functions_and_files_are_short():
    names = {module_name(path): too_long(path.read_text()) for path in FILES}
    assert {module: long for module, long in names.items() if long} == {}


def test_what_is_too_long_is_found():
    line = "    x = 1\n"
    assert too_long("def f():\n" + 49 * line) == []
    assert too_long("def f():\n" + 50 * line) == ["f"]
    assert too_long("class C:\n    async def f():\n" + 50 * f"    {line}") == ["f"]
    assert too_long("x = 1\n" * 450) == []
    assert too_long("x = 1\n" * 451) == ["file"]
