"""What produced a result: the code, the packages, the machine, the data. Torch is not imported."""

import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from lmkit.runs.identity import IDENTITY_VERSION
from lmkit.runs.result import SCHEMA_VERSION
from lmkit.runs.source import PACKAGE, code_sha256

_DISTRIBUTIONS = (
    "lmkit",
    "torch",
    "pytorch-lightning",
    "torchmetrics",
    "hydra-core",
    "omegaconf",
    "numpy",
    "scipy",
    "tokenizers",
    "transformers",
    "wandb",
)
_TOLD = {name.replace("-", "_") for name in _DISTRIBUTIONS} | {"hydra"}  # their modules
_GIT_TIMEOUT_S = 20


def provenance(
    data_sha256: str, threads: int, device_names: Sequence[str] = (), targets: Iterable[str] = ()
) -> dict[str, object]:
    """The provenance of a result, ready for JSON.

    Args:
        targets: classes from outside lmkit; the packages that they come from are told too.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "identity_version": IDENTITY_VERSION,
        "code_sha256": code_sha256(),
        "git": git_revision(PACKAGE),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in [*_DISTRIBUTIONS, *_others(targets)]},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "hardware": _hardware(device_names),
        "threads": threads,
        "data_sha256": data_sha256,
    }


def git_revision(folder: Path) -> dict[str, object] | None:
    """The `commit` of the checkout that the package in `folder` is part of; `dirty`: whether the
    code in the working tree differs from it.

    Changed and untracked files count in the package and where its links lead: its configurations.
    Anything else in the checkout, such as a user's runs and configurations, decides no number, or
    is in the run's configuration. Ignored files never count. None if git does not track `folder`
    (an installed package may lie in an environment inside another project's checkout), or there is
    no git.
    """
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    # git does not follow links
    code = [folder, *(each.resolve() for each in folder.iterdir() if each.is_symlink())]
    paths = [str(each) for each in code if each.exists()]
    changes = _git(folder, "--literal-pathspecs", "status", "--porcelain", "-unormal", "--", *paths)
    if tracked is None or commit is None or changes is None:
        return None
    return {"commit": commit.strip(), "dirty": bool(changes.strip())}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def usable_cores() -> int | None:
    """Cores that this process may use, of SLURM's nodes a few; None where nothing tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _hardware(device_names: Sequence[str]) -> dict[str, object]:
    """This machine; None stands for what the system does not provide."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_mb": _memory_mb(),
        "devices": list(device_names),
    }


def _others(targets: Iterable[str]) -> list[str]:
    """The distributions that these classes come from, beside those that are always told."""
    if not (modules := {target.partition(".")[0] for target in targets} - _TOLD):
        return []
    by_module = metadata.packages_distributions()  # reads the records of all
    found = {name for module in modules for name in by_module.get(module, ())}
    return sorted(found - set(_DISTRIBUTIONS))


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in `folder`, None when it fails."""
    # Without a hook's environment, and without refreshing the index: many runs may call it at once.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            # the owner of the checkout, whose code runs here, may be another user
            ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine() or None


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (ValueError, OSError):
        return None
