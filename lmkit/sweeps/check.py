"""Holds every point of a sweep against what training would say of it, without training.

A process of its own, `python -m lmkit.sweeps.check` (as JSON, a device and configurations on stdin,
findings on stdout), so that a sweep, which may wait for weeks, holds no torch in memory.

What points have in common is checked once: models are made on the meta device, which computes
nothing, one for each trunk and head that differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lmkit.errors.user_error import UserError

_NUM_WORDS = 1000  # of the models made here: no option is right or wrong by the vocabulary
_OWN = ("trunk", "head", "module", "objective", "optimizer", "trigger", "windows", "data")


class Found(NamedTuple):
    """What the check says of a point."""

    run: str  # name of its run folder; empty with an error
    error: str | None  # what is wrong with it, in one line


class Known:
    """A corpus of which the fingerprint alone is asked, read once for all points."""

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256

    def fingerprint(self) -> str:
        """The fingerprint of the corpus itself."""
        return self.sha256


def check(configs: Sequence[dict], has_gpu: bool | None = None) -> list[Found]:
    """Checks composed configurations (plain data), in order; stops after the first bad one.

    Args:
        configs: what is to be trained.
        has_gpu: whether a GPU is there where it is to be trained; None: as here.

    Raises: UserError when the check itself cannot run.
    """
    done = subprocess.run(
        [sys.executable, "-m", "lmkit.sweeps.check"],
        input=json.dumps({"has_gpu": has_gpu, "configs": configs}),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        tail = " ".join(done.stderr.strip().splitlines()[-1:])
        raise UserError(f"the points cannot be checked: {tail}")
    return [Found(*found) for found in json.loads(done.stdout.splitlines()[-1])]


class _Checker:
    """Checks one configuration after another, remembering what it has seen."""

    def __init__(self, has_gpu: bool | None) -> None:
        self._has_gpu = has_gpu
        self._seen: dict[str, object] = {}

    def check(self, config: dict) -> str:
        """The name of the run's folder. Raises: UserError for what training would refuse."""
        from lmkit.runs.folder import RunFolder
        from lmkit.runs.identity import identity
        from lmkit.training.run import define

        data, windows = config["data"], config["windows"]
        sha256 = self._once("data", data, lambda: _create(data, "data").fingerprint())
        known = {"_target_": f"{Known.__module__}.{Known.__name__}", "sha256": sha256}
        self._check_objects(config)
        self._once("windows", [windows, config["seed"]], lambda: _check_windows(config))
        others = {key: value for key, value in config.items() if key not in _OWN}
        defined = self._once(
            "others", others, lambda: define(config | {"data": known}, self._has_gpu)
        )
        found = identity(config, sha256, "cuda" if defined.accelerator == "gpu" else "cpu")
        return RunFolder.of(config["runs_dir"], config["name"], found).path.name

    def _check_objects(self, config: dict) -> None:
        import torch

        from lmkit.training.build import build_model

        for section in ("objective", "optimizer", "trigger"):
            self._once(section, config[section], lambda s=section: _check_made(config[s], s))
        modules = [config["trunk"], config["head"], config["module"]]
        counts_V = torch.zeros(_NUM_WORDS, dtype=torch.int64)
        self._once("model", modules, lambda: _on_meta(lambda: build_model(config, counts_V)))

    def _once(self, what: str, section: object, work: Callable[[], object]) -> object:
        key = f"{what} {json.dumps(section, sort_keys=True)}"
        if key not in self._seen:
            self._seen[key] = work()
        return self._seen[key]


def _create(section: dict, option: str) -> object:
    from lmkit.training.build import create

    return create(section, option)


def _check_made(section: dict, option: str) -> None:
    _create(section, option)


def _on_meta(make: Callable[[], object]) -> None:
    import torch

    with torch.device("meta"):
        make()


def _check_windows(config: dict) -> None:
    import numpy as np

    from lmkit.data.corpus import TextSplits
    from lmkit.training.build import build_data

    def made(num_tokens: int) -> object:
        tokens = np.zeros(num_tokens, np.int64)
        return build_data(config, TextSplits(("a",), tokens, tokens, tokens))

    data = made(0)  # refuses batch sizes that are no counts
    if "_target_" in config["windows"]:  # of another kind of corpus
        return
    longest = max(data.batch_size, data.valid_batch_size, data.test_batch_size)
    data = made(4 * longest)
    data.train_windows, data.eval_windows("valid"), data.eval_windows("test")


def main() -> None:
    """Reads what `check` sends on stdin; prints one JSON list, a [run, error] each, on stdout."""
    sent = json.load(sys.stdin)
    checker, found = _Checker(sent["has_gpu"]), []
    for config in sent["configs"]:
        try:
            found.append(Found(checker.check(config), None))
        except UserError as error:
            found.append(Found("", str(error)))
            break
    print(json.dumps(found))


if __name__ == "__main__":
    main()
