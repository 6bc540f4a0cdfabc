"""What a run says of its memory and its time."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lmkit.experiment.conclusion import _cost
from lmkit.training.callbacks import cost
from lmkit.training.callbacks.cost import Cost, peak_memory_mib


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own account")
def test_peak_memory_is_the_kernels_own_number_in_mib():
    status = Path("/proc/self/status").read_text()
    kib = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # proc(5): "kB" are 1,024 bytes
    assert peak_memory_mib(torch.device("cpu")) == pytest.approx(kib / 1024, rel=0.05)


def test_an_epoch_that_a_process_trains_in_part_counts_as_a_whole_one(monkeypatch):
    seconds, told = iter([0.0, 6.0]), {}
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    monkeypatch.setattr(cost, "model_of", lambda module: module)
    model = SimpleNamespace(device=torch.device("cpu"), report=told.__setitem__)
    callback = Cost()
    callback.on_train_start(None, model)
    for index in (2, 3):  # of four
        batch = SimpleNamespace(num_targets=30, index=index, is_last=index == 3)
        callback.on_train_batch_end(None, model, None, batch, 0)
    assert (told["seconds_per_epoch"], told["tokens_per_second"]) == (12.0, 10.0)


def test_a_result_has_the_median_of_the_epochs_seconds_and_the_most_of_their_memory():
    spent = [(9.0, 5.0), (1.0, 7.0), (2.0, 6.0)]
    rows = [{"seconds_per_epoch": s, "peak_memory_mib": m} for s, m in spent]
    metrics = SimpleNamespace(read=lambda: [{"train/nll": 3.0}, *rows])
    model = torch.nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    found = _cost(SimpleNamespace(run=SimpleNamespace(metrics=metrics), model=model))
    assert found == {"seconds_per_epoch": 2.0, "peak_memory_mib": 7.0, "parameters": 6}
