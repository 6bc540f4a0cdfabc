"""What a class's file tells, although nothing of it is imported."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lmkit.runs.source import Source, find_source, option_defaults, own_files, source_sha256

ROOT = Path(__file__).parents[2]
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


def test_a_file_that_imports_none_of_the_users_own_has_its_own_hash(their: Path) -> None:
    expected = hashlib.sha256((their / "their_base.py").read_bytes()).hexdigest()
    assert source_sha256("their_base.Base") == expected


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


def make_wheel(folder: Path) -> Path:
    """A distribution of one package, `other_package`, and one module, `other_module`."""
    about = "other_dist-1.0.dist-info"
    files = {
        "other_package/__init__.py": CODE,
        "other_package/inner.py": CODE,
        "other_module.py": CODE,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: other-dist\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    path = folder / "other_dist-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def hashed(python: Path | str, path: Path, *targets: str) -> list[bool]:
    """Whether the source of each target counts, in a process with a folder on PYTHONPATH."""
    code = (
        "import json, sys\nfrom lmkit.runs.source import find_source, source_sha256\n"
        "assert all(map(find_source, sys.argv[1:]))\n"
        "print(json.dumps([source_sha256(target) is not None for target in sys.argv[1:]]))"
    )
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [python, "-c", code, *targets], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def test_what_pip_installed_in_a_folder_is_not_the_users_own(tmp_path: Path) -> None:
    where = tmp_path / "packages"
    options = ["--no-index", "--no-deps", "--quiet", "--no-compile", "--target", where]
    install = [sys.executable, "-m", "pip", "install", *options, make_wheel(tmp_path)]
    subprocess.run(install, check=True)
    (where / "their_module.py").write_text(CODE)  # beside it, by hand
    targets = ("other_package.Own", "other_package.inner.Own", "other_module.Own")
    assert hashed(sys.executable, where, *targets) == [False] * 3
    assert hashed(sys.executable, where, "their_module.Own") == [True]


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
    assert hashed(python, tmp_path, "their_package.Own") == [True]
    debian = tmp_path / "dist-packages"  # whose distributions have no RECORD
    debian.mkdir()
    (debian / "other_module.py").write_text(CODE)
    assert hashed(python, debian, "other_module.Own") == [False]
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


def test_torch_is_read_and_not_imported() -> None:
    code = (
        "import sys\nfrom lmkit.runs.source import option_defaults\n"
        "assert option_defaults('torch.optim.SGD')['momentum'] == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
