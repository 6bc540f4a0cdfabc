"""What a class's file tells, although nothing of it is imported."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from lmkit.runs.source import Source, find_source, option_defaults, source_sha256

CODE = """
from dataclasses import dataclass

from their_base import Base, Renamed as Other

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

class Plain:
    pass
"""
BASE = """
class Base:
    def __init__(self, rate=1e-3):
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
    assert source_sha256(target) == hashlib.sha256((their / file).read_bytes()).hexdigest()
    assert "their_module" not in sys.modules


@pytest.mark.parametrize("target", ["nowhere.Own", "their_plain.Own", "their_module", "math.sqrt"])
def test_what_has_no_file_of_pythons_has_no_source(their: Path, target: str) -> None:
    assert find_source(target) is None
    assert source_sha256(target) is None
    assert option_defaults(target) == {}


@pytest.mark.parametrize("target", ["torch.optim.SGD", "json.JSONDecoder"])
def test_an_installed_packages_source_does_not_count(target: str) -> None:
    assert find_source(target) is not None
    assert source_sha256(target) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Own", {"scale": 0.5, "sizes": (1, 2), "name": None}),  # written out, and values
        ("Inherits", {"scale": 0.5, "sizes": (1, 2), "name": None}),
        ("FromElsewhere", {"rate": 1e-3}),
        ("Other", {"rate": 2}),
        ("Fields", {"scale": 0.5}),
        ("make", {"scale": -1}),
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
