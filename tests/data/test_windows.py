import numpy as np
import pytest
import torch

from lmkit.data.corpus import TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.windows import EvalWindows, TrainWindows, Window, columns, sample_lengths
from lmkit.errors.user_error import UserError


def train_batches(num_steps: int, batch_size: int = 3, seed: int = 7) -> TrainWindows:
    return TrainWindows(columns(np.arange(num_steps * batch_size), batch_size), 70, 40, seed)


def positions(window: Window) -> tuple:
    cursor = (window.epoch, window.index, window.sampled_length, window.is_last)
    return (*cursor, window.inputs_TB.tolist(), window.targets_TB.tolist())


def trained_epoch(windows: TrainWindows) -> list[Window]:
    """Goes through one epoch and commits each window."""
    seen = []
    for window in windows:
        seen.append(window)
        windows.commit(window)
    return seen


def test_columns_are_contiguous_pieces_of_the_stream_without_the_remainder():
    inputs_SB, targets_SB = columns(np.arange(14), 4)
    assert inputs_SB.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10]]
    assert targets_SB.tolist() == [[1, 4, 7, 10], [2, 5, 8, 11]]
    assert inputs_SB.dtype == targets_SB.dtype == torch.int64
    assert inputs_SB.is_contiguous()
    assert inputs_SB[1].data_ptr() == targets_SB[0].data_ptr()  # the tokens lie there once


def test_columns_refuses_a_text_too_short_for_the_batch():
    options = r"windows\.batch_size \(of valid: windows\.valid_batch_size, "
    with pytest.raises(UserError, match=rf"7 tokens is too short for 4 columns.*{options}"):
        columns(np.arange(7), 4)
    splits = TextSplits(("<eos>",), *(np.zeros(length, np.int64) for length in (40, 3, 40)))
    with pytest.raises(UserError, match="the valid text of 3 tokens is too short for 10 columns"):
        splits.columns("valid", 10)


def authors_loop(
    num_steps: int, args_bptt: int, max_delta: int, random: np.random.RandomState
) -> list[int]:
    """The loop of awd-lstm-lm's main.py with mos's upper bound, drawing in its order."""
    lengths = []
    i = 0
    while i < num_steps - 1 - 1:
        bptt = args_bptt if random.random_sample() < 0.95 else args_bptt / 2.0
        seq_len = max(5, int(random.normal(bptt, 5)))
        seq_len = min(seq_len, args_bptt + max_delta)
        lengths.append(seq_len)
        i += seq_len
    return lengths


@pytest.mark.parametrize(
    "sizes", [(3, 70, 40), (4, 70, 40), (71, 70, 40), (5000, 70, 3), (900, 8, 0)]
)
@pytest.mark.parametrize(("seed", "epoch"), [(11, 3), (3, 11), (11, 4)])
def test_lengths_equal_the_authors_loop_on_a_stream_of_seed_and_epoch(sizes, seed, epoch):
    random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([seed, epoch])))
    assert sample_lengths(*sizes, seed, epoch) == authors_loop(*sizes, random)


def test_an_epoch_covers_every_target_once_in_order_but_for_a_single_last_one():
    left_out_counts = set()
    for num_steps in range(60, 160):
        windows = train_batches(num_steps, batch_size=2)
        epoch = list(windows)
        inputs_SB = torch.cat([window.inputs_TB for window in epoch])
        targets_SB = torch.cat([window.targets_TB for window in epoch])
        left_out = num_steps - 1 - len(targets_SB)
        left_out_counts.add(left_out)
        assert torch.equal(targets_SB, windows.columns.targets_SB[: num_steps - 1 - left_out])
        assert torch.equal(inputs_SB, windows.columns.inputs_SB[: num_steps - 1 - left_out])
        for window in epoch[:-1]:
            assert window.sampled_length == len(window.inputs_TB)
        # the shorter last window keeps its sampled length
        assert [w.sampled_length for w in epoch] == sample_lengths(num_steps, 70, 40, 7, 1)
        assert [window.index for window in epoch] == list(range(len(epoch)))
        assert [window.is_last for window in epoch] == [False] * (len(epoch) - 1) + [True]
        assert windows.num_batches(1) == len(epoch)
    assert left_out_counts == {0, 1}


def test_resumed_mid_epoch_with_a_window_read_ahead_gives_exactly_the_remaining():
    undisturbed = train_batches(1000)
    expected = [positions(w) for _ in range(3) for w in trained_epoch(undisturbed)]
    first_epoch_size = undisturbed.num_batches(1)
    for num_trained in range(2 * first_epoch_size):
        windows = train_batches(1000)
        trained = []
        while len(trained) < num_trained:
            reading = iter(windows)
            ahead = next(reading)
            while ahead is not None and len(trained) < num_trained:
                current, ahead = ahead, next(reading, None)
                trained.append(positions(current))
                windows.commit(current)
        resumed = train_batches(1000)
        resumed.load_state_dict(windows.state_dict())
        while resumed.state_dict()["epoch"] < 3 or len(trained) < len(expected):
            trained += [positions(window) for window in trained_epoch(resumed)]
        assert trained == expected


def test_a_window_is_committed_once():
    windows = train_batches(1000)
    first = next(iter(windows))
    windows.commit(first)
    with pytest.raises(AssertionError, match="committed out of order"):
        windows.commit(first)


@pytest.mark.parametrize(
    ("option", "arguments"),
    [("windows.bptt", (4, 40, 1)), ("windows.max_length_delta", (70, -1, 1))],
)
def test_bad_options_are_named(option, arguments):
    with pytest.raises(UserError, match=f"^{option} must be a whole number"):
        TrainWindows(columns(np.arange(100), 2), *arguments)


def test_training_text_too_short_is_refused():
    with pytest.raises(UserError, match=r"columns of 2 tokens.*windows\.batch_size"):
        train_batches(2)
    assert train_batches(3).num_batches(1) == 1


@pytest.mark.parametrize(("num_steps", "length"), [(2, 1), (2, 70), (71, 70), (72, 70), (141, 35)])
def test_evaluation_covers_every_target_once(num_steps, length):
    inputs_SB, targets_SB = whole = columns(np.arange(num_steps * 3), 3)
    windows = EvalWindows(whole, length)
    for _ in range(2):
        seen = list(windows)
        assert len(seen) == len(windows)
        assert torch.equal(torch.cat([w.targets_TB for w in seen]), targets_SB)
        assert torch.equal(torch.cat([w.inputs_TB for w in seen]), inputs_SB)
        assert all(len(window.inputs_TB) == length for window in seen[:-1])
        assert sum(w.targets_TB.numel() for w in seen) == windows.num_targets


def splits(train: int = 4000, valid: int = 500, test: int = 300) -> TextSplits:
    words = tuple(f"w{index}" for index in range(50))
    streams = (np.arange(size, dtype=np.int64) % 50 for size in (train, valid, test))
    return TextSplits(words, *streams)


def data_module(seed: int = 3) -> WindowsDataModule:
    return WindowsDataModule(corpus=splits(), batch_size=5, bptt=20, max_length_delta=10, seed=seed)


def test_splits_have_their_own_batch_sizes():
    module = data_module()
    assert module.train_dataloader().columns.targets_SB.shape == (799, 5)
    assert module.val_dataloader().columns.targets_SB.shape == (49, 10)
    assert module.eval_batches("test").columns.targets_SB.shape == (299, 1)
    assert module.eval_batches("train").columns.targets_SB.shape == (399, 10)


def test_seed_decides_the_windows():
    first, again, other = (
        [window.sampled_length for window in data_module(seed).train_batches] for seed in (3, 3, 4)
    )
    assert first == again != other


@pytest.mark.parametrize(
    "option", ["batch_size", "valid_batch_size", "test_batch_size", "eval_length"]
)
def test_bad_options_of_the_module_are_named(option):
    with pytest.raises(UserError, match=rf"^windows\.{option} must be"):
        WindowsDataModule(**{"corpus": splits(), "batch_size": 5, option: 0})


def test_an_unknown_split_is_refused():
    with pytest.raises(UserError, match=r"^split must be one of train, valid, test"):
        data_module().eval_batches("dev")
