"""Fixtures shared by all tests."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lmkit.cli.finetune import published_config
from lmkit.cli.main import main
from lmkit.results.published import CORPORA
from lmkit.runs.array_files import final_spectrum, write_spectrum
from lmkit.runs.atomic import replace_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import identity
from lmkit.runs.names import UNPLACED, RunNames, family_of, head_name
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result

# Processes that a shell starts in the background ignore SIGINT, and so would all that tests start.
for ignored, default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, default)

# libyaml takes a tenth of the time. Hydra's loader derives from this class; tests of mistakes in a
# configuration read it as users do, by `PYTHONS_LOADER`.
PYTHONS_LOADER = yaml.SafeLoader
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

REPOSITORY = Path(__file__).resolve().parent.parent
KEPT = REPOSITORY / "docs/study/first/runs"  # finished runs, for tests to read

# of each kind: its name, its place, and a transform's section
MIXTURES = {"none": ("", 0), "softmaxes": ("MoS", 2)}
TRANSFORMS = {
    "identity": ("", 0, {"_target_": "lmkit.heads.transforms.Identity"}),
    "gss": (
        "GSS",
        2,
        {"_target_": "lmkit.heads.transforms.GeneralizedSigSoftmax", "c": -1.5, "k": 2.5},
    ),
    "outside": ("Cube", UNPLACED, {"_target_": "heads.Cube", "start": 0.01}),
}
# of each trigger: its name, and how the names of experiments with it end; ASGD finetunes
TRIGGERS = {"et": ("ET 200", ""), "nt": ("NT 5", "_nt"), "asgd": ("ASGD", "_nt")}


def spectrum_measures(contexts: int, words: int, rank: int | None) -> dict[str, object]:
    """As a result holds them."""
    effective = {"0.001": 52, "0.0001": 201, "1e-05": 306}
    found = {"num_contexts": contexts, "num_columns": words, "resolution": 5e-8}
    found |= {"press_tolerance": 1e-5, "press_rank": rank, "effective_rank": effective}
    return found | {"stable_rank": 1.5, "entropy_rank": 12.0, "unresolved": {}}


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real corpora: LMKIT_DATA, else ../shared/data beside the repository."""
    root = Path(os.environ.get("LMKIT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root} (set LMKIT_DATA)")
    return root.resolve()


@pytest.fixture(scope="session", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Subwords and contexts of fixed trunks are kept away from the user's own."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in ("data.subwords", "fixed_trunk.cache"):
            folder = tmp_path_factory.mktemp(module)
            monkeypatch.setattr(f"lmkit.{module}.cache_folder", lambda folder=folder: folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Nothing waits for the disk: what a power loss may leave, tests/faults finds out."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        yield


def write_empty_figures(trained: Any, *_: object) -> None:
    """In the place of a run's figures, whose drawing takes half of a tiny run's time."""
    has_curve = any(True for _ in trained.model.head.transform.parameters())
    for name in ("curves", "spectrum", *["transform"] * has_curve):
        path = trained.run.folder.path / f"{name}.svg"
        replace_text(path, "", trained.run.check_lock)


@pytest.fixture(scope="session", autouse=True)
def draw() -> Iterator[Callable[..., None]]:
    """Runs that tests train have empty figures, but for `toy_run`. Yields what draws others."""
    from lmkit.experiment import conclusion

    with pytest.MonkeyPatch.context() as monkeypatch:
        original = conclusion._draw
        monkeypatch.setattr(conclusion, "_draw", write_empty_figures)
        yield original


def leave_undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that commands write are empty."""
    for module in ("presentation.figures", "report.page"):
        monkeypatch.setattr(f"lmkit.{module}.to_svg", lambda *_: '<svg width="72pt"></svg>')
    monkeypatch.setattr("lmkit.report.page.to_pdf", lambda _: b"")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what stands beside figures."""
    leave_undrawn(monkeypatch)


@pytest.fixture
def lmkit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs `lmkit ARGUMENTS` in this process; returns what it prints."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["lmkit", *arguments])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(lmkit: Callable[..., object]) -> Callable[..., str]:
    """Runs a command that must fail; returns its one line."""

    def run(*arguments: str) -> str:
        with redirect_stderr(StringIO()) as stderr, pytest.raises(SystemExit) as exit_:
            lmkit(*arguments)
        status = exit_.value.code  # or the line that Python then prints
        assert status, "exit status 0"
        message = status if isinstance(status, str) else stderr.getvalue().removesuffix("\n")
        assert message.startswith("error: ")
        assert "\n" not in message
        return message.removeprefix("error: ")

    return run


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory, draw: Callable[..., None]):
    """The folder of a finished run of four epochs on the toy language: MoS with trained slopes.

    Its figures are drawn.
    """
    from lmkit.experiment import conclusion
    from tests.tiny import SMALL, trained

    overrides = (
        *(*SMALL, "callbacks.spectrum=null", "callbacks.checkpoints.every_minutes=0.002"),
        *("data.num_words=50", "data.train_tokens=6000", "data.valid_tokens=400"),
        *("data.test_tokens=300", "head/mixture=softmaxes", "head.mixture.num_experts=2"),
        *("head/transform=plif", "head.transform.knots=100", "optimizer.lr=3"),
        *("switch_epoch=2", "max_epochs=4"),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(conclusion, "_draw", draw)
        return trained(tmp_path_factory.mktemp("runs"), *overrides)


@pytest.fixture
def toy_copy(toy_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of `toy_run`, to be written to."""
    return RunFolder(shutil.copytree(toy_run.path, tmp_path / toy_run.path.name))


@pytest.fixture(scope="session")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Softmax run and one of MoS + PLIF, for all tests: not to be written to."""
    from tests.tiny import SMALL, trained

    path = tmp_path_factory.mktemp("runs")
    options = (*SMALL, "callbacks.spectrum=null", "max_epochs=2")
    mos = ("name=mos", "head/mixture=softmaxes", "head.mixture.num_experts=3")
    trained(path, *options)
    trained(path, *options, *mos, "head/transform=plif", "head.transform.knots=100")
    return path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pretrained models, text.txt, and the splits of a corpus: not to be written to."""
    from tests.pretrained_models import TEXT, save_models

    folder = tmp_path_factory.mktemp("pretrained")
    save_models(folder)
    (folder / "text.txt").write_text(TEXT, "utf-8")
    text = TEXT.strip() + "\n"
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(text, "utf-8")
        text = text[: len(text) // 2] + "\n"
    return folder


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Writes a finished run into a folder of runs; what is not said is as published on PTB."""

    def make(
        root: Path,
        seed: int = 1,
        ppl: float = 57.0,
        rank: int | None = 402,
        mixture: str = "none",
        transform: str = "identity",
        trigger: str = "et",
        contexts: int = 10000,
        sizes: tuple[int, int] = (10000, 82429),
        options: dict[str, object] | None = None,
        name: str = "penn_small",
        train_tokens: int | None = None,
        trunk: str = "AWD-LSTM",
        valid: float | None = None,
    ) -> Path:
        its_mixture, its_transform = MIXTURES[mixture], TRANSFORMS[transform]
        trigger_name, suffix = TRIGGERS[trigger]
        published = "penn_mos" if mixture == "softmaxes" else "penn_softmax"
        config = deepcopy(published_config(f"{published}{suffix}"))
        if transform != "identity":
            config["head"]["transform"] = dict(its_transform[2])
        config["data"] = {"name": "penn", "folder": "penn", "train_tokens": train_tokens}
        for option, value in (options or {}).items():
            section = config
            *path, key = option.split(".")
            for part in path:
                section = section[part]
            section[key] = value
        config |= {"name": name, "seed": seed, "threads": 1, "callbacks": {}}
        is_penn = sizes[0] == 10000 and train_tokens is None
        sha256 = CORPORA["penn"].sha256 if is_penn else f"data of {sizes[0]} words {train_tokens}"
        its_identity = identity(config, sha256, "cpu")
        its_head = head_name([its_mixture[0], its_transform[0]])
        place = (0, its_mixture[1], its_transform[1])
        corpus = ("Penn Treebank", "PTB")
        names = RunNames(its_head, family_of(its_head), place, trunk, trigger_name, *corpus)
        folder = RunFolder.of(root, name, its_identity)
        folder.prepare(yaml.safe_dump(config), its_identity, names)
        measures = spectrum_measures(contexts, sizes[0], rank)
        write_spectrum(final_spectrum(folder), np.geomspace(100.0, 1e-7, 400), measures)
        lines = ["step,epoch,train/ppl,valid/ppl,valid/ppl_raw,averaging,test/ppl"]
        for epoch in (1, 2, 3):
            lines.append(f"{10 * epoch},{epoch},{ppl / epoch},{ppl + 2},{ppl + 3},0.0,")
        lines.append(f"31,3,,,,,{ppl}")
        folder.metrics.write_text("\n".join(lines) + "\n")
        metrics = {"train_ppl": ppl - 20, "valid_ppl": valid or ppl + 2, "test_ppl": ppl}
        metrics |= {"test_tokens": sizes[1], "best_epoch": 2, "switched_after": 1}
        metrics["test_spectrum"] = measures
        parameters = 21504560 if mixture == "softmaxes" else 24221600
        cost = {"seconds_per_epoch": 55.0 + seed, "parameters": parameters}
        provenance = {"git": {"commit": "abc", "dirty": False}, "threads": 1}
        spent = Spent(config["max_epochs"], config["patience"], 3, "patience")
        result = Result(SCHEMA_VERSION, name, its_identity.digest, metrics, cost, provenance, spent)
        publish_result(folder.result, result)
        return folder.path

    return make
