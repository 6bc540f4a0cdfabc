"""What a result says of its making."""

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from lmkit.runs.provenance import git_revision, provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("lmkit.runs.provenance._GIT_TIMEOUT_S", 600)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").write_text("")
    (package / "conf").symlink_to("../conf")
    (tmp_path / ".gitignore").write_text("runs/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return package


def test_a_checkout_is_dirty_where_its_code_has_changed(checkout: Path) -> None:
    top = checkout.parent
    clean = {"commit": git(top, "rev-parse", "HEAD"), "dirty": False}
    code = ["package/__init__.py", "package/new.py", "conf/train.yaml", "conf/new.yaml"]
    for name in [*code, "my_conf/mine.yaml", "parts/head.py", ".gitignore", "notes"]:
        assert git_revision(checkout) == clean
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text("# changed\n")
        assert git_revision(checkout) == clean | {"dirty": name in code}, name
        git(top, "checkout", "-q", ".")
        git(top, "clean", "-fdq")


def test_a_new_file_counts_where_git_status_shows_none(checkout: Path) -> None:
    git(checkout, "config", "status.showUntrackedFiles", "no")
    (checkout / "new.py").write_text("")
    assert git_revision(checkout)["dirty"] is True


def test_package_installed_inside_another_checkout(checkout: Path) -> None:
    installed = checkout.parent / "runs" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    assert git_revision(installed) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_checkout_of_another_user_has_its_commit(checkout):
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, 12345, 12345)
    assert git_revision(checkout) is not None


def test_what_a_git_hook_sets_does_not_mislead(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert git_revision(checkout) is not None


def test_provenance_is_json() -> None:
    made = provenance("d" * 64, threads=2, device_names=["NVIDIA H200"])
    assert json.loads(json.dumps(made)) == made
    assert made["data_sha256"] == "d" * 64
    assert made["threads"] == 2
    assert {"lmkit", "torch", "numpy"} <= made["packages"].keys()
    assert "nltk" not in made["packages"]
    own = provenance("", 1, targets=["nltk.metrics.Paice", "heads.Cube", "torch.optim.SGD"])
    others = own["packages"].keys() - made["packages"].keys()
    assert others == {"nltk"}  # a class of a package's own, at its version
    assert own["packages"]["nltk"] == version("nltk")


def test_devices_are_told():
    assert provenance("data", 1, ["H100"])["hardware"]["devices"] == ["H100"]
