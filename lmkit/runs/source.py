"""What source shows without an import: a class's file and its options' defaults, and one
fingerprint of lmkit's code that decides the numbers of runs.
"""

import ast
import hashlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

# of this environment; distributions elsewhere on the path are found by their records
_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}

PACKAGE = Path(__file__).resolve().parent.parent
# changes to what reads, measures, shows or starts runs change none of their numbers
_ROOMS = (
    "data",
    "dialogue",
    "experiment",
    "fixed_trunk",
    "heads",
    "kernels",
    "spectra",
    "training",
    "trunk",
)
# of which runs use some files, analyses the others
_USED = re.compile(r"^\s*from lmkit\.(measures|pretrained)\.(\w+) import", re.MULTILINE)


def program(module: str, folder: Path | str = ".") -> list[str]:
    """The words that start a module of this lmkit as a program in a folder, whatever that holds:
    another version of lmkit, say, or a file named as one of Python's own modules.
    """
    is_checkout = Path(folder).resolve() == PACKAGE.parent  # which need not be installed
    return [sys.executable, "-m" if is_checkout else "-Pm", module]


class Source(NamedTuple):
    """Where a class is defined."""

    file: Path
    name: str  # of the class or function in that file


def find_source(target: str) -> Source | None:
    """The file of `package.module.Class`; None if it is not on the path, or not Python. No module
    is imported: packages such as torch take seconds.
    """
    files, name = _located(target)
    return Source(files[-1], name) if files and name else None


def source_sha256(target: str) -> str | None:
    """SHA-256 (hex) of the files that define a user's own class: the one with the class, and those
    of the user's own that it imports, and they import.

    None for what a distribution installed, wherever it lies: its version is in the provenance of a
    run that it decides. None too if the file is not known. An editable installation counts as the
    user's own, lmkit does not.
    """
    source = find_source(target)
    if source is None or _is_installed(source.file):
        return None
    hashes = list(map(sha256_of_file, own_files(source.file)))
    # of a file that stands alone, as earlier versions hashed every file
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def sha256_of_file(file: Path) -> str:
    """In hex."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def installed_beside(target: str) -> Path | None:
    """The file that a distribution installed of a class which the current folder has too; None for
    any other class.
    """
    source = find_source(target)
    if source is None or not _is_installed(source.file):
        return None
    return source.file if _below([Path.cwd()], target.split("."))[0] else None


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
                found |= _own_of(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found |= _own_of(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1]
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                found |= set(_below([folder], [*parts, alias.name])[0])
    return {each.resolve() for each in found if not _is_installed(each)}


def _own_of(dotted: str) -> set[Path]:
    """The files that an import runs, none of lmkit's."""
    return set() if dotted.split(".")[0] == "lmkit" else set(_located(dotted)[0])


def _located(dotted: str) -> tuple[list[Path], str]:
    """The Python files that run when `package.module.Class` is imported, and the name of the class
    in the last of them; "" for a module.
    """
    top, *rest = dotted.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return [], ""
    files = [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    below, left = _below(list(map(Path, spec.submodule_search_locations or ())), rest)
    return [*files, *below], ".".join(left)


def _below(folders: list[Path], parts: Sequence[str]) -> tuple[list[Path], Sequence[str]]:
    """The files of the packages and modules below folders, and the parts that are neither."""
    files: list[Path] = []
    for i, part in enumerate(parts):
        packages = [folder / part for folder in folders if (folder / part).is_dir()]
        inits = [package / "__init__.py" for package in packages]
        modules = [folder / f"{part}.py" for folder in folders]
        file = next((path for path in (*inits, *modules) if path.is_file()), None)
        if file is None and not packages:
            return files, parts[i:]
        files += [] if file is None else [file]
        folders = [] if file in modules else packages
    return files, []


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


def _defaults_in(source: Source, heir: ast.ClassDef | None = None) -> dict[str, object]:
    """The defaults of a name's last definition in a file. Where a class inherits that name, only
    what stands above the class counts: it may have the same name itself.
    """
    module = _parsed(source.file)
    above = module.body.index(heir) if heir in module.body else None
    for node in reversed(module.body[:above]):
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
            defaults |= _defaults_in(Source(source.file, base.id), heir=node)
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                if inner.value is not None:
                    defaults.pop(inner.target.id, None)  # of a base; not known if no literal
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


@cache
def code_sha256() -> str:
    """SHA-256 (hex) of lmkit's source files that compute a run's result, with their paths."""
    digest = hashlib.sha256()
    for name, content in sorted(deciding_files(PACKAGE).items()):
        digest.update(name.encode())
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def deciding_files(package: Path) -> dict[str, bytes]:
    """The content of each file that decides a run's result, by its path in the package.

    These are whole packages, plus the files of two others that these import, directly or not.
    """
    paths = [path for room in _ROOMS for path in (package / room).rglob("*.py")]
    files: dict[str, bytes] = {}
    while paths:
        name = (path := paths.pop()).relative_to(package).as_posix()
        if name not in files:
            files[name] = path.read_bytes()
            used = _USED.findall(files[name].decode("utf-8"))
            paths += [package / room / f"{module}.py" for room, module in used]
    return files
