"""Shuffled contexts: each once an epoch, in an order that seed and epoch decide."""

from __future__ import annotations

import torch

from lmkit.data.windows import Columns, TrainWindows, columns
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


def test_goes_on_where_it_stopped():
    whole = ShuffledContexts(stream(), 10, seed=3)
    expected = [batch.targets_TB.tolist() for batch in whole.batches(2, 0)]
    resumed = ShuffledContexts(stream(), 10, seed=3)
    resumed.load_state_dict({"epoch": 2, "windows_done": 1})
    assert [batch.targets_TB.tolist() for batch in resumed] == expected[1:]
    other = ShuffledContexts(stream(), 10, seed=4)
    assert [batch.targets_TB.tolist() for batch in other.batches(2, 0)] != expected


def test_the_last_batch_ends_the_epoch():
    *_, last = ShuffledContexts(stream(), 10, seed=3).batches(1, 0)
    assert (last.is_last, last.epoch_share, last.num_targets, last.index) == (True, 1.0, 3, 3)


def test_windows_over_contexts_are_cut_as_over_their_words():
    tokens = torch.arange(400)
    words = columns(tokens.numpy(), 4)
    contexts = Columns(words.inputs_SB.unsqueeze(2).float(), words.targets_SB)
    pairs = zip(
        TrainWindows(words, 20, 5, seed=1).batches(1, 0),
        TrainWindows(contexts, 20, 5, seed=1).batches(1, 0),
        strict=True,
    )
    for of_words, of_contexts in pairs:
        assert torch.equal(of_words.targets_TB, of_contexts.targets_TB)
        assert torch.equal(of_words.inputs_TB.float(), of_contexts.inputs_TB[..., 0])
