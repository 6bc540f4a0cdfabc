"""What source tells, although nothing of it is imported: a class's file, and lmkit's own."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lmkit
from lmkit.runs.source import (
    Source,
    deciding_files,
    find_source,
    option_defaults,
    own_files,
    source_sha256,
)
from tests.conftest import REPOSITORY

PACKAGE = Path(lmkit.__file__).parent
CODE = """
from dataclasses import dataclass

from their_base import Base, Counter, Renamed as Other

raise ImportError("is not to be imported")

class Own:
    def __init__(self, needed, scale=0.5, *, sizes=(1, 2), name=None, call=len, odd=...):
        pass

class Inherits(Own):
    hidden: int = 3

class FromElsewhere(Base):
    pass

@dataclass
class Fields:
    needed: int
    scale: float = 0.5

@dataclass
class Computed(Fields):
    scale: float = 1 / 3

def make(words, scale=-1):
    pass

class Counter(Counter):
    pass

class Plain:
    pass
"""
BASE = """
class Base:
    def __init__(self, rate=1e-3):
        pass

class Counter:
    def __init__(self, rate=3):
        pass

class Renamed:
    def __init__(self, rate=2):
        pass
"""


@pytest.fixture
def their(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder on the path, with a module beside a package and a package without init."""
    monkeypatch.syspath_prepend(str(tmp_path))
    option_defaults.cache_clear()
    (tmp_path / "their_module.py").write_text(CODE)
    (tmp_path / "their_base.py").write_text(BASE)
    for path in ("their_package/__init__.py", "their_package/inner.py", "their_plain/deep/code.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("their_module.Own", "their_module.py"),
        ("their_module.Own.inner", "their_module.py"),
        ("their_package.Own", "their_package/__init__.py"),
        ("their_package.inner.Own", "their_package/inner.py"),
        ("their_plain.deep.code.Own", "their_plain/deep/code.py"),
    ],
)
def test_the_file_of_a_class_is_found_and_hashed(their: Path, target: str, file: str) -> None:
    source = find_source(target)
    assert source == Source(their / file, "Own" + target.partition("Own")[2])
    files = [their / file, their / "their_base.py"]
    hashes = [hashlib.sha256(each.read_bytes()).hexdigest() for each in files]
    assert source_sha256(target) == hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    assert "their_module" not in sys.modules


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("import torch, json\nfrom lmkit.heads.head import Head\n", ()),
        ("import their_base as b\n", ("their_base.py",)),
        ("def f():\n    from their_base import Base\n", ("their_base.py",)),
        ("from their_package import inner\n", ("their_package/__init__.py",
                                               "their_package/inner.py", "their_base.py")),
        ("import their_plain.deep.code\n", ("their_plain/deep/code.py", "their_base.py")),
        ("from nowhere import x\nfrom . import y\n", ()),
    ],
)  # fmt: skip
def test_what_a_file_imports_of_the_users_own_is_found(their: Path, code: str, files) -> None:
    (their / "mine.py").write_text(code + "class Mine: pass\n")
    assert set(own_files(their / "mine.py")) == {their / name for name in ("mine.py", *files)}
    before = source_sha256("mine.Mine")
    for name in files:
        (their / name).write_text(f"{(their / name).read_text()}# changed\n")
        before, changed = source_sha256("mine.Mine"), before
        assert before != changed


def test_relative_imports_are_found_and_circles_end(their: Path) -> None:
    package = their / "their_package"
    (package / "a.py").write_text("from .b import x\nfrom . import inner\n")
    (package / "b.py").write_text("from ..their_package.a import y\n")
    assert set(own_files(package / "a.py")) == {
        package / "a.py", package / "b.py", package / "__init__.py", package / "inner.py",
        their / "their_base.py",
    }  # fmt: skip


@pytest.mark.parametrize("target", ["nowhere.Own", "their_plain.Own", "their_module", "math.sqrt"])
def test_what_has_no_file_of_pythons_has_no_source(their: Path, target: str) -> None:
    assert find_source(target) is None
    assert source_sha256(target) is None
    assert option_defaults(target) == {}


@pytest.mark.parametrize("target", ["torch.optim.SGD", "json.JSONDecoder"])
def test_an_installed_packages_source_does_not_count(target: str) -> None:
    assert find_source(target) is not None
    assert source_sha256(target) is None


def hashed(python: Path | str, path: Path, *targets: str) -> list[bool]:
    """Whether the source of each target counts, in a process with a folder on PYTHONPATH."""
    code = (
        "import json, sys\nfrom lmkit.runs.source import find_source, source_sha256\n"
        "assert all(map(find_source, sys.argv[1:]))\n"
        "print(json.dumps([source_sha256(target) is not None for target in sys.argv[1:]]))"
    )
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{REPOSITORY}"}
    done = subprocess.run(
        [python, "-c", code, *targets], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def test_what_a_distribution_installed_in_a_folder_is_not_the_users_own(tmp_path, monkeypatch):
    """Every installer lists its files in RECORD (PEP 376)."""
    names = ("other_package/__init__.py", "other_package/inner.py", "other_module.py")
    for name in (*names, "their_module.py"):  # the last beside them, by hand
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(CODE)
    about = tmp_path / "other_dist-1.0.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in names))
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in ("other_package.Own", "other_package.inner.Own", "other_module.Own"):
        assert find_source(target) is not None
        assert source_sha256(target) is None
    assert source_sha256("their_module.Own") is not None


def test_the_systems_packages_are_not_the_users_own_and_editable_ones_are(tmp_path: Path) -> None:
    """In a virtual environment that sees the packages of the Python that it was made with."""
    own = tmp_path / "src" / "their_package"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text(CODE)
    base = Path(sys.base_prefix, "bin", "python3")
    subprocess.run(
        [base, "-m", "venv", "--system-site-packages", "--without-pip", tmp_path / "venv"],
        check=True,
    )
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # as an editable installation leaves it
    (site / "__editable__.their_dist-1.0.pth").write_text(f"{tmp_path / 'src'}\n")
    about = site / "their_dist-1.0.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("__editable__.their_dist-1.0.pth,,\n")
    debian = tmp_path / "dist-packages"  # whose distributions have no RECORD
    debian.mkdir()
    (debian / "other_module.py").write_text(CODE)
    assert hashed(python, debian, "their_package.Own", "other_module.Own") == [True, False]
    system = "pip._internal.cli.main.main"
    seen = [python, "-c", "import importlib.util as i, sys; sys.exit(not i.find_spec('pip'))"]
    if subprocess.run(seen).returncode == 0:
        assert hashed(python, tmp_path, system) == [False]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Own", {"scale": 0.5, "sizes": (1, 2), "name": None}),  # written out, and values
        ("Inherits", {"scale": 0.5, "sizes": (1, 2), "name": None}),
        ("FromElsewhere", {"rate": 1e-3}),
        ("Other", {"rate": 2}),
        ("Fields", {"scale": 0.5}),
        ("Computed", {}),  # a third, and not its base's half
        ("make", {"scale": -1}),
        ("Counter", {"rate": 3}),  # of the class that it takes the place of
        ("Plain", {}),
        ("Absent", {}),
    ],
)
def test_defaults_are_those_that_are_written_out(their: Path, name: str, expected: dict) -> None:
    assert option_defaults(f"their_module.{name}") == expected


def test_a_file_that_does_not_parse_tells_no_defaults(their: Path) -> None:
    (their / "their_broken.py").write_text("class Own:\n    def __init__(self, a=1) pass\n")
    assert option_defaults("their_broken.Own") == {}
    assert source_sha256("their_broken.Own") is not None


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("conf", "__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "lmkit", ignore=ignored))


def test_what_trains_evaluates_and_measures_a_run_decides_its_numbers():
    files = deciding_files(PACKAGE)
    for path in (
        *("trunk/awd_lstm.py", "heads/head.py", "data/corpus.py", "training/optimizer.py"),
        *("experiment/run.py", "experiment/conclusion.py", "training/callbacks/asgd_switch.py"),
        *("measures/perplexity.py", "measures/model_spectra.py", "spectra/measures.py"),
        *("fixed_trunk/corpus.py", "fixed_trunk/composition.py", "pretrained/loading.py"),
    ):
        assert path in files, path
    rooms = {path.split("/")[0] for path in files}
    assert not rooms & {"analyses", "evaluation", "report", "results", "presentation", "cli"}


def test_what_decides_takes_nothing_from_elsewhere_that_could():
    imported = {
        room
        for content in deciding_files(PACKAGE).values()
        for room in re.findall(r"^\s*from lmkit\.(\w+)", content.decode(), re.MULTILINE)
    }
    rooms = {path.split("/")[0] for path in deciding_files(PACKAGE)}
    # none of these computes a run: they name, store and draw; dialogue has an analysis
    assert imported - rooms <= {"errors", "runs", "presentation", "analyses"}


def test_a_measure_decides_numbers_once_a_run_takes_it(package):
    before = deciding_files(package)
    for room in ("analyses", "evaluation", "measures"):
        (package / room / "mine.py").write_text("MINE = 1\n")
    assert deciding_files(package) == before
    taken = package / "measures" / "perplexity.py"  # which a run takes
    taken.write_text(f"{taken.read_text()}\n\n    from lmkit.measures.mine import MINE\n")
    files = deciding_files(package)
    assert files.keys() - before.keys() == {"measures/mine.py"}
    assert files["measures/perplexity.py"] != before["measures/perplexity.py"]
