"""The notebook runs from its first cell to its last."""

from __future__ import annotations

import ast
import json
import re
import shlex
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from tests.claims.conftest import TINY
from tests.conftest import REPOSITORY

IMPORT = re.compile(r"^import pandas\n", re.MULTILINE)
NOTEBOOK = REPOSITORY / "docs" / "notebook.ipynb"


class Table(list[dict[str, Any]]):
    """What the notebook asks of pandas' table of rows: columns that there are."""

    def __getitem__(self, columns: Any) -> Any:
        assert all(any(column in row for row in self) for column in columns), columns
        return Table({column: row.get(column) for column in columns} for row in self)

    def dropna(self) -> Table:
        return Table(row for row in self if None not in row.values())


def series(values: Any, index: list[str]) -> dict[str, float]:
    return dict(zip(index, values.tolist(), strict=True))


# pandas, or the little of it that the notebook uses: lmkit does not require it
HAS_PANDAS = find_spec("pandas") is not None
PANDAS = SimpleNamespace(DataFrame=Table, Series=series)


def value_of(cell: str, names: dict[str, Any]) -> Any:
    """Executes a cell; returns the value of its last line where that is an expression."""
    lines = ast.parse(cell)
    last = lines.body[-1]
    if not isinstance(last, ast.Expr):
        exec(cell, names)
        return None
    exec(compile(ast.Module(lines.body[:-1], []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_every_cell_runs(lmkit):
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {} if HAS_PANDAS else {"pandas": PANDAS}
    values = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if source.startswith("!"):
            command, _, _ = source[1:].replace("\\\n", " ").partition("|")
            _, *arguments = shlex.split(command)
            typed = {each.partition("=")[0] for each in arguments}
            lmkit(*arguments, *(each for each in TINY if each.partition("=")[0] not in typed))
        else:
            values.append(value_of(source if HAS_PANDAS else IMPORT.sub("", source), names))
    kinds, logged, likeliest, finished = values
    assert kinds == ("SingleContext", 40, 8)
    assert len(logged) > 0
    assert len(likeliest) == 5
    assert len(finished) == 1
