"""The wheel, installed away from the checkout: all travels with it, and it leaves no debris."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

CACHES = shutil.ignore_patterns("__pycache__")
NOT_BUILT = shutil.ignore_patterns(
    *(".*", "__pycache__", "build", "*.egg-info", "runs", "data", "report", "tests")
)
SMALL = (
    *("threads=1", "callbacks.progress_bar=null", "max_epochs=1", "data.train_tokens=4000"),
    *("data.valid_tokens=500", "data.test_tokens=500"),
)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lmkit` of a new environment, with the libraries of this one, but lmkit from its wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # where setuptools may leave what it builds
    shutil.copytree(REPOSITORY, source, symlinks=True, ignore=NOT_BUILT)
    for name in ("lmkit/data", "conf/data", "lmkit/runs", "lmkit/report"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=CACHES, dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    _succeeds([*pip, "wheel", *options, str(source)])
    (wheel,) = folder.glob("lmkit-*.whl")
    home = folder / "environment"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    _succeeds([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)])
    (packages,) = home.glob("lib/python*/site-packages")
    # a path file of this environment, such as that of an editable lmkit, is not followed there
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "lmkit"


def _typed(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


def _succeeds(command: list[str], **options: object) -> str:
    done = _typed(command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_trains_from_an_empty_folder_and_leaves_nothing_but_runs(command, tmp_path):
    _succeeds([str(command), "train", *SMALL], cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert len([*tmp_path.glob("runs/toy-*/result.json")]) == 1
    where = [str(command.with_name("python")), "-c", "import lmkit; print(lmkit.__file__)"]
    assert Path(_succeeds(where, cwd=tmp_path).strip()).is_relative_to(command.parents[1])


@pytest.mark.slow
def test_the_wheel_has_every_sweep_and_our_sweeper(command, tmp_path):
    # the sweep's own complaint, which comes before all that takes time
    line = [str(command), "train", "multirun_sweeps=smoke", "sweep.name=../x"]
    done = _typed(line, cwd=tmp_path)
    assert done.stderr.startswith("error: sweep.name must be a letter"), done.stderr
    assert list(tmp_path.iterdir()) == []
    package = next(command.parents[1].glob("lib/python*/site-packages/lmkit"))
    sources = {path.relative_to(REPOSITORY / "conf") for path in _files(REPOSITORY / "conf")}
    assert {path.relative_to(package / "conf") for path in _files(package / "conf")} == sources


def _files(folder: Path) -> list[Path]:
    walked = os.walk(folder, followlinks=True)
    return [Path(root, name) for root, _, names in walked for name in names]
