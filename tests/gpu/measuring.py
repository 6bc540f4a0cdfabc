"""What bench.py and spectrum.py share: models of published experiments, and time on a device.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmarks")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from lmkit.cli.entry import compose, plain_config  # noqa: E402
from lmkit.experiment.objects import make_model  # noqa: E402
from lmkit.training.callbacks.cuda_graphs import RecordedStep, cuda_recorder  # noqa: E402
from lmkit.training.language_model import LanguageModel  # noqa: E402

NUM_WORDS = {"penn": 10_000, "wikitext-2": 33_278}
TINY = ["trunk.emb_dim=12", "trunk.hidden_dim=16", "trunk.out_dim=12"]
TINY += ["windows.batch_size=4", "windows.bptt=8"]
TINY_WORDS = 60


def configuration(experiment: str, tiny: bool, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The composed configuration of an experiment, at its published or at tiny sizes."""
    options = [f"experiment={experiment}", "logger=csv", *(TINY if tiny else []), *overrides]
    return plain_config(compose("train", options))


def words_of(config: dict[str, Any], tiny: bool) -> int:
    """V."""
    return TINY_WORDS if tiny else NUM_WORDS[config["data"]["name"]]


def made(config: dict[str, Any], num_words: int, device: str) -> LanguageModel:
    """The untrained model, of which words of Zipf's law are taken to be the text."""
    torch.manual_seed(0)
    counts_V = (1e6 / torch.arange(1, num_words + 1)).long()
    model = make_model(config, counts_V).to(device)
    assert isinstance(model, LanguageModel)
    return model


def zipf_words(num_words: int, rows: int, columns: int) -> Tensor:
    """Word indices (rows, columns) drawn by Zipf's law."""
    weights = 1 / torch.arange(1.0, num_words + 1)
    drawn = torch.multinomial(weights, rows * columns, replacement=True)
    return drawn.view(rows, columns)


class Step:
    """A training step of lmkit, as its LightningModule does it, without Lightning.

    Args:
        way: "eager", or "graphs": forward and backward as a CUDA graph.
    """

    def __init__(
        self, config: dict[str, Any], num_words: int, device: str, precision: str, way: str
    ) -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        self.device, self.bf16 = device, precision == "bf16-mixed"
        self.model = made(config, num_words, device).train()
        self.optimizer = self.model.configure_optimizers()
        self.clip = config["trainer"]["gradient_clip_val"]
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        batch, length = config["windows"]["batch_size"], config["windows"]["bptt"]
        words = zipf_words(num_words, length + 1, batch).to(device)
        self.inputs_TB, self.targets_TB = words[:-1].clone(), words[1:].clone()
        self.state = [x for layer in self.model.trunk.initial_state(batch) for x in layer]
        self.tokens = batch * length
        self.work: Callable[..., tuple[Tensor, ...]] = self.model.step
        if way == "graphs":
            self.work = RecordedStep(self.model.step, self.parameters, cuda_recorder())

    def __call__(self) -> None:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            loss, _, _, *state = self.work(self.inputs_TB, self.targets_TB, *self.state)
        self.state = [x.clone() for x in state] if isinstance(self.work, RecordedStep) else state
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()


def synchronize(device: str) -> None:
    """Waits until the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_each(work: Callable[[], object], device: str, warmup: int, steps: int) -> float:
    """Seconds a call, of `steps` calls one after the other with nothing waited for in between."""
    for _ in range(warmup):
        work()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(steps):
        work()
    synchronize(device)
    return (time.perf_counter() - started) / steps


@contextmanager
def peak_mb(device: str) -> Iterator[list[float]]:
    """The allocator's peak within, above what was there before, MiB; 0 on a CPU."""
    found: list[float] = []
    before = 0
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    yield found
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    found.append(max(0, peak - before) / 2**20)


def waits_of(work: Callable[[], object], device: str) -> list[str]:
    """Where the host waits for the device within a call, as PyTorch notices it."""
    if device != "cuda":
        return []
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [f"{w.filename}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]


def largest_kernels(work: Callable[[], object], device: str, steps: int) -> dict[str, Any]:
    """The ten kernels that take the most time, and the launches a call."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(steps):
            work()
        synchronize(device)
    rows = profile.key_averages()

    def microseconds(row: Any) -> float:
        total = row.self_device_time_total if device == "cuda" else row.self_cpu_time_total
        return float(total) / steps

    if device == "cuda":
        kernels = [row for row in rows if row.device_type == torch.autograd.DeviceType.CUDA]
    else:
        kernels = list(rows)
    kernels.sort(key=microseconds, reverse=True)
    launches = sum(row.count for row in rows if "Launch" in row.key) / steps
    return {
        "launches": launches,
        "kernels": [[row.key[:120], row.count / steps, microseconds(row)] for row in kernels[:10]],
        "kernels_us": sum(map(microseconds, kernels)),
    }
