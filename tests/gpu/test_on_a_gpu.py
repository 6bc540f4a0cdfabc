"""A device against the CPU: every head on every trunk, one step; a run killed and resumed.

The CPU takes the device's place for a few cases where there is no GPU, so that these tests are
known to run before a GPU is there.

Shapes: T window length, B batch.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmkit.cli.entry import CONFIGS
from lmkit.data.windows import Columns, EvalWindows
from lmkit.experiment.objects import make_model
from lmkit.measures.model_spectra import model_spectrum
from tests import tiny
from tests.faults.comparison import assert_same_run, runs_in
from tests.language_models import log_prob_matrix
from tests.tiny import composed
from tests.waiting import wait_for

T, B, NUM_WORDS = 9, 3, 50
TRUNKS = ("awd_lstm", "transformer")
SIZES = ["trunk.emb_dim=12", "trunk.hidden_dim=16", "trunk.out_dim=12", "trunk.num_layers=3"]
WITHOUT = ("embed", "input", "hidden", "output", "weight")  # masks differ between devices
SIZES += [f"trunk.{name}_dropout=0" for name in WITHOUT]
SMALL = {"transformer": ["trunk.num_heads=2", "trunk.memory=8", "trunk.ffn_dim=16"]}
WITH_A_GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
)
ON_A_GPU = pytest.param("cuda", marks=WITH_A_GPU)


def heads() -> dict[str, list[str]]:
    """Every head that `conf/head` knows: each mixture with each transform, and every other."""

    def names(folder: str) -> list[str]:
        return sorted(path.stem for path in (CONFIGS / "head" / folder).glob("*.yaml"))

    found = {
        f"{mixture}+{transform}": [f"head/mixture={mixture}", f"head/transform={transform}"]
        for mixture in names("mixture")
        for transform in names("transform")
    }
    for head in names("")[1:]:  # the first is the default
        for transform in ("identity", "gss", "plif", "monotone_mlp"):
            found[f"{head}+{transform}"] = [f"head={head}", f"head/transform={transform}"]
    low_rank = ["head.decoder_rank=8", "head.tie_weights=false", "head/mixture=softmaxes"]
    return found | {"decoder of rank 8, softmaxes": low_rank}


ALL = [(head, trunk) for trunk in TRUNKS for head in heads()]
FEW = [
    ("softmaxes+plif", "awd_lstm"),
    ("mixtape+gss", "awd_lstm"),
    ("none+identity", "transformer"),
]
FEW += [("contexts+monotone_mlp", "awd_lstm")]
CASES = [pytest.param("cuda", *case, marks=WITH_A_GPU) for case in ALL]
CASES += [("cpu", *case) for case in FEW]


def config_of(head: str, trunk: str) -> dict[str, Any]:
    config = composed(*SIZES, f"trunk={trunk}", *SMALL.get(trunk, []), *heads()[head])
    for section in (config["head"], config["head"]["mixture"]):
        if "latent_dropout" in section:
            section["latent_dropout"] = 0.0
    config["head"]["chunk_mb"] = 0.01  # several chunks
    if "knots" in config["head"]["transform"]:
        config["head"]["transform"]["knots"] = 4  # more would make slopes of rounding errors
    return config


@contextmanager
def no_wait(device: str) -> Iterator[None]:
    """Where the host waits for a GPU is an error."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def step(model: Any, device: str, dtype: torch.dtype, bf16: bool) -> dict[str, torch.Tensor]:
    """Loss, context vectors and the gradient of each parameter, on the CPU in float64."""
    model = deepcopy(model).to(device, dtype).train()
    words = torch.randint(NUM_WORDS, (T + 1, B), generator=torch.Generator().manual_seed(7))
    words = words.to(device)
    state = [x for layer in model.trunk.initial_state(B) for x in layer]
    for around in (nullcontext(), no_wait(device)):  # the second goes on from the first's state
        with around:
            with torch.autocast(device, torch.bfloat16, enabled=bf16):
                loss, _, hidden, *state = model.step(words[:-1], words[1:], *state)
            model.zero_grad()
            loss.backward()
    found = {"loss": loss.detach(), "hidden": hidden}
    found |= {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert all(x.device.type == device for x in found.values())
    return {name: x.double().cpu() for name, x in found.items()}


def deviation(found: torch.Tensor, expected: torch.Tensor, least: float = 1e-12) -> float:
    """Relative to what is expected, or to `least` where that is more."""
    return float((found - expected).norm() / expected.norm().clamp_min(least))


def whole(found: dict[str, torch.Tensor]) -> torch.Tensor:
    """All gradients side by side."""
    return torch.cat([x.flatten() for name, x in found.items() if name not in ("loss", "hidden")])


@pytest.mark.parametrize(("device", "head", "trunk"), CASES)
def test_a_step_is_the_cpus(device, head, trunk):
    torch.manual_seed(3)
    counts_V = torch.arange(NUM_WORDS, 0, -1)
    model = make_model(config_of(head, trunk), counts_V)
    expected = step(model, "cpu", torch.float64, bf16=False)
    found = step(model, device, torch.float64, bf16=False)
    assert found.keys() == expected.keys()
    assert expected["loss"] > 1
    least = 1e-3 * float(whole(expected).norm())  # some gradients are zero but for rounding
    for name, value in found.items():
        assert deviation(value, expected[name], least) < 1e-9, name
    rough = step(model, device, torch.float32, bf16=True)
    assert deviation(rough["loss"], expected["loss"]) < 0.01
    assert deviation(rough["hidden"], expected["hidden"]) < 0.05
    assert deviation(whole(rough), whole(expected)) < 0.05


@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_singular_values_are_numpys(device):
    torch.manual_seed(3)
    model = make_model(config_of("softmaxes+gss", "awd_lstm"), torch.ones(NUM_WORDS)).to(device)
    windows = EvalWindows(Columns(*torch.randint(NUM_WORDS, (2, 40, 2))), 70)
    for contexts in (30, 45, 80):  # the Gram matrix of contexts, and twice of words
        rows_NV = log_prob_matrix(model, windows)[:contexts].double().cpu().numpy()
        expected = np.linalg.svd(rows_NV, compute_uv=False)
        found = model_spectrum(model, windows, contexts).singular_values.cpu().numpy()
        assert np.abs(found - expected).max() < (1e-7 if device == "cpu" else 1e-6) * expected[0]


@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_small_gradients_stay_under_autocast(device):
    # what float16 would round to zero reaches the weights of an LSTM in bfloat16
    torch.manual_seed(3)
    model = make_model(config_of("none+identity", "awd_lstm"), torch.ones(NUM_WORDS)).to(device)
    words = torch.randint(NUM_WORDS, (T, B)).to(device)
    with torch.autocast(device, torch.bfloat16):
        output = model.trunk(words, model.trunk.initial_state(B))
    if device == "cuda":
        assert output.raw_TBD.dtype == torch.bfloat16
        assert all(x.dtype == torch.float32 for layer in output.state for x in layer)
    (1e-8 * output.raw_TBD.float()).sum().backward()
    layer = model.trunk.layers[-1]
    assert 0 < layer.weight_ih.grad.abs().max() < 1e-5
    assert (layer.weight_ih.grad != 0).all()


RUN = [*tiny.SMALL, "callbacks.spectrum=null", "data.num_words=60", "windows.batch_size=4"]
RUN += ["head/mixture=softmaxes", "head/transform=plif", "head.transform.knots=100"]
RUN += ["switch_epoch=2", "max_epochs=5", "optimizer.lr=5", "trainer.deterministic=true"]
RUN += ["callbacks.checkpoints.every_minutes=0.002"]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_a_run_killed_and_resumed_has_equal_bits(device, tmp_path):
    accelerator = {"cuda": "gpu", "cpu": "cpu"}[device]
    options = [*RUN, f"trainer.accelerator={accelerator}"]
    through, killed = tmp_path / "through", tmp_path / "killed"
    finish(options, through)
    kill_after(options, killed, epochs=2)
    finish(options, killed)
    (expected,), (found,) = map(runs_in, (through, killed))
    assert_same_run(expected, found)


def command(options: list[str], runs_dir: Path) -> list[str]:
    python = [sys.executable, "-W", "ignore", "-m"]
    return [*python, "lmkit", "train", *options, f"runs_dir={runs_dir}"]


def finish(options: list[str], runs_dir: Path) -> None:
    done = subprocess.run(command(options, runs_dir), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def kill_after(options: list[str], runs_dir: Path, epochs: int) -> None:
    """Kills a run within the epoch after those."""
    run = subprocess.Popen(command(options, runs_dir), stdout=subprocess.DEVNULL)
    wait_for(lambda: run.poll() is not None or epochs_in(runs_dir) >= epochs)
    assert run.poll() is None, "the run ended before it was killed"
    run.kill()
    run.wait()


def epochs_in(runs_dir: Path) -> int:
    """Epochs whose row is written."""
    logs = list(runs_dir.glob("*/train.log"))
    return logs[0].read_text().count("tokens/s") if logs else 0
