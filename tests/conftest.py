"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real corpora: LMKIT_DATA, else ../shared/data beside the repository."""
    root = Path(os.environ.get("LMKIT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root} (set LMKIT_DATA)")
    return root.resolve()


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory):
    """The folder of a finished run of four epochs on the toy language: MoS with trained slopes."""
    from lmkit.cli.entry import compose, plain_config
    from lmkit.training.run import run

    overrides = [
        "threads=1",
        "logger.mode=disabled",
        "callbacks.progress_bar=false",
        "callbacks.spectrum.every=0",
        "callbacks.checkpoint_minutes=0.002",
        "data.num_words=50",
        "data.train_tokens=6000",
        "data.valid_tokens=400",
        "data.test_tokens=300",
        "trunk.emb_dim=8",
        "trunk.out_dim=8",
        "trunk.hidden_dim=12",
        "head/mixture=softmaxes",
        "head.mixture.num_experts=2",
        "head/transform=plif",
        "head.transform.knots=100",
        "optimizer.lr=3",
        "switch_epoch=2",
        "max_epochs=4",
        f"runs_dir={tmp_path_factory.mktemp('runs')}",
    ]
    return run(plain_config(compose("train", overrides)))


@pytest.fixture
def largest_numel() -> Callable[[Callable[[], object]], int]:
    """Elements of the largest tensor that any operation of a call returns."""

    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for x in out if isinstance(out, tuple | list) else [out]:
                if isinstance(x, Tensor) and not x.is_sparse:
                    self.numel = max(self.numel, x.numel())
            return out

    def watch(call: Callable[[], object]) -> int:
        with Largest() as largest:
            call()
        return largest.numel

    return watch
