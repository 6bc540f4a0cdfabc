"""Shuffled contexts: each once an epoch, in an order that seed and epoch decide."""

import torch

from lmkit.data.windows import Columns
from lmkit.fixed_trunk.batches import ShuffledContexts

STEPS, COLUMNS, D = 11, 3, 2


def stream() -> Columns:
    """The context of target t is (t, -t)."""
    targets_SC = torch.arange(STEPS * COLUMNS).view(STEPS, COLUMNS)
    return Columns(torch.stack([targets_SC, -targets_SC], dim=2).float(), targets_SC)


def test_every_context_once_an_epoch_with_its_target():
    batches = ShuffledContexts(stream(), 10, seed=3)
    epochs = []
    for epoch in (1, 2):
        seen = []
        for batch in batches.batches(epoch, 0):
            assert batch.inputs_TB.shape == (1, batch.num_targets, D)
            assert torch.equal(batch.inputs_TB[0, :, 0], batch.targets_TB[0].float())
            assert torch.equal(batch.inputs_TB[0, :, 1], -batch.targets_TB[0].float())
            seen += batch.targets_TB[0].tolist()
        assert sorted(seen) == list(range(STEPS * COLUMNS))
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])
    assert (batch.is_last, batch.epoch_share, batch.num_targets, batch.index) == (True, 1.0, 3, 3)


def test_goes_on_where_it_stopped():
    whole = ShuffledContexts(stream(), 10, seed=3)
    expected = [batch.targets_TB.tolist() for batch in whole.batches(2, 0)]
    resumed = ShuffledContexts(stream(), 10, seed=3)
    resumed.load_state_dict({"epoch": 2, "windows_done": 1})
    assert [batch.targets_TB.tolist() for batch in resumed] == expected[1:]
    other = ShuffledContexts(stream(), 10, seed=4)
    assert [batch.targets_TB.tolist() for batch in other.batches(2, 0)] != expected
