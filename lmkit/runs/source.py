"""What a class's source shows without an import: its file, and its options' defaults."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

# of this environment; distributions elsewhere on the path are found by their records
_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}


class Source(NamedTuple):
    """Where a class is defined."""

    file: Path
    name: str  # of the class or function in that file


def find_source(target: str) -> Source | None:
    """The file of `package.module.Class`; None if it is not on the path, or not Python. No module
    is imported: packages such as torch take seconds.
    """
    top, *rest = target.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for i, part in enumerate(rest):
        packages = [folder / part for folder in folders if (folder / part).is_dir()]
        inner = [package / "__init__.py" for package in packages]
        inner += [folder / f"{part}.py" for folder in folders]
        existing = next((path for path in inner if path.is_file()), None)
        if existing is not None:
            file = existing
            folders = [file.parent] if file.name == "__init__.py" else []
        elif packages:  # without an __init__.py
            file, folders = None, packages
        else:
            return None if file is None else Source(file, ".".join(rest[i:]))
    return None  # a module, not a class


def source_sha256(target: str) -> str | None:
    """SHA-256 (hex) of the files that define a user's own class: the one with the class, and those
    of the user's own that it imports, and they import.

    None for what a distribution installed, wherever it lies: its version is in a result's
    provenance. None too if the file is not known. An editable installation counts as the user's
    own, lmkit does not.
    """
    source = find_source(target)
    if source is None or _is_installed(source.file):
        return None
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in own_files(source.file)]
    # of a file that stands alone, as earlier versions hashed every file
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def own_files(file: Path) -> list[Path]:
    """A file, and the user's own files that importing it imports, in the order of their imports."""
    found: dict[Path, None] = {}
    waiting = [file.resolve()]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += sorted(_imported_files(each), reverse=True)
    return list(found)


def _imported_files(file: Path) -> set[Path]:
    """The user's own files among what a file imports, also within functions."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except SyntaxError:  # reported when it is imported
        return set()
    found: set[Path] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found |= set(_files_of(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found |= set(_files_of(f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1]
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                found |= set(_files_below([folder], [*parts, alias.name]))
    return {each.resolve() for each in found if not _is_installed(each)}


def _files_of(dotted: str) -> list[Path]:
    """The Python files that run when `package.module.name` is imported, none of lmkit's."""
    top, *rest = dotted.split(".")
    if top == "lmkit":
        return []
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    files = [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return [*files, *_files_below(folders, rest)]


def _files_below(folders: Sequence[Path], parts: Sequence[str]) -> list[Path]:
    files: list[Path] = []
    for part in parts:
        inits = [folder / part / "__init__.py" for folder in folders]
        modules = [folder / f"{part}.py" for folder in folders]
        files += [path for path in (*inits, *modules) if path.is_file()][:1]
        folders = [folder / part for folder in folders if (folder / part).is_dir()]
    return files


@cache
def _is_installed(file: Path) -> bool:
    if any(file.is_relative_to(folder) for folder in _INSTALLED):
        return True
    roots = {Path(entry).absolute() for entry in sys.path}
    return any(_is_recorded(file, root) for root in roots if file.is_relative_to(root))


def _is_recorded(file: Path, root: Path) -> bool:
    """Whether a distribution installed a file below that entry of the path.

    Installers list their files in RECORD, beside the packages (PEP 376). Linux distributions omit
    it, but have their own folders.
    """
    if root.name == "dist-packages":
        return True
    line = f"\n{file.relative_to(root).as_posix()},".encode()
    records = root.glob("*.dist-info/RECORD")
    return any(line in b"\n" + record.read_bytes() for record in records)


@cache
def option_defaults(target: str) -> dict[str, object]:
    """The options of a class that have a default, by name; of its bases too.

    Only defaults written as literals count: numbers, texts, None, lists of these.
    """
    source = find_source(target)
    try:
        return {} if source is None else _defaults_in(source)
    except SyntaxError:  # reported when the class is imported
        return {}


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _defaults_in(source: Source) -> dict[str, object]:
    module = _parsed(source.file)
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == source.name:
            return dict(_function_defaults(node))
        if isinstance(node, ast.ClassDef) and node.name == source.name:
            return _class_defaults(node, source)
    imported = _imported_from(module, source.name)
    return {} if imported is None else option_defaults(imported)


def _class_defaults(node: ast.ClassDef, source: Source) -> dict[str, object]:
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            return dict(_function_defaults(inner))
    defaults: dict[str, object] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            defaults |= _defaults_in(Source(source.file, base.id))
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                defaults |= dict(_literal(inner.target.id, inner.value))
    return defaults


def _function_defaults(node: ast.FunctionDef) -> Iterator[tuple[str, object]]:
    arguments = node.args
    with_default = [*arguments.posonlyargs, *arguments.args][::-1]
    for argument, value in zip(with_default, arguments.defaults[::-1], strict=False):
        yield from _literal(argument.arg, value)
    for argument, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield from _literal(argument.arg, keyword)


def _literal(name: str, value: ast.expr | None) -> Iterator[tuple[str, object]]:
    if value is not None:
        try:
            default = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError):
            return
        if default is None or isinstance(default, bool | int | float | str | list | tuple):
            yield name, default


def _imported_from(module: ast.Module, name: str) -> str | None:
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{node.module}.{alias.name}"
    return None
