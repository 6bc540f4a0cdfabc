import numpy as np
import pytest
import torch

from lmkit.dialogue.batches import Pairs, TrainPairs, sample_batches
from lmkit.errors.user_error import UserError
from tests.dialogue.conftest import TEXTS, corpus, data_module, write


@pytest.fixture(scope="module")
def splits(folder):
    return corpus(folder).load()


def spelt(splits, words) -> str:
    return " ".join(splits.vocabulary[i] for i in words)


def test_a_context_is_the_turns_before_and_says_who_spoke(splits):
    pairs = Pairs(splits.train, turns=2, context_words=50, response_words=None)
    words, own = pairs.context(2)  # A: Fine, and you?
    assert spelt(splits, words) == "hello ! <eos> how are you ? <eos>"
    assert own.tolist() == [False] * 8
    words, own = pairs.context(1)  # B: How are you?
    assert spelt(splits, words) == "hello there . <eos> hello ! <eos>"
    assert own.tolist() == [False] * 4 + [True] * 3
    words, _ = pairs.context(3)  # the second utterance of the second dialogue
    assert spelt(splits, words) == "it rains . <eos>"


def test_long_contexts_keep_their_end_and_long_responses_their_start(splits):
    pairs = Pairs(splits.train, turns=9, context_words=6, response_words=3)
    words, own = pairs.context(2)
    assert spelt(splits, words) == "<eos> how are you ? <eos>"
    assert len(own) == 6
    assert spelt(splits, pairs.response(2)) == "fine , and"
    assert pairs.lengths.tolist() == [3] * 6


def test_a_batch_is_padded_and_says_where(splits):
    pairs = Pairs(splits.train, turns=1, context_words=50, response_words=None)
    batch = pairs.batch([0, 1], 4, 2, 1.0)
    assert spelt(splits, batch.targets_TB[:3, 0]) == "hello ! <eos>"
    assert spelt(splits, batch.targets_TB[:, 1]) == "how are you ? <eos>"
    assert spelt(splits, batch.inputs_TB[:, 1]) == "<eos> how are you ?"
    assert batch.is_word_TB.sum(0).tolist() == [3, 5]
    assert batch.context_lengths_B.tolist() == [4, 3]
    assert batch.responder_SB[:, 1].tolist() == [1, 1, 1, 0]
    assert (batch.num_targets, batch.sampled_length) == (8, 5)
    assert (batch.index, batch.epoch, batch.is_last) == (4, 2, True)


def test_an_epoch_has_every_pair_once_in_batches_of_like_length():
    lengths = np.random.RandomState(0).randint(1, 40, 1003)
    batches = sample_batches(lengths, 8, 5, 1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1003))
    assert {len(batch) for batch in batches} == {8, 3}
    within = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert within < 3  # of 39; drawn without order it would be 32
    again = sample_batches(lengths, 8, 5, 1)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    for other in (sample_batches(lengths, 8, 5, 2), sample_batches(lengths, 8, 6, 1)):
        assert any((a != b).any() for a, b in zip(batches, other, strict=False) if len(a) == len(b))


def test_training_goes_on_after_the_last_batch_committed(splits):
    def fresh() -> TrainPairs:
        return TrainPairs(Pairs(splits.train, 2, 50, 50), batch_size=2, seed=1)

    first, second = fresh(), fresh()
    seen = list(first)
    for batch in seen[:2]:
        first.commit(batch)
    second.load_state_dict(first.state_dict())
    (left,) = list(second)
    assert torch.equal(left.targets_TB, seen[2].targets_TB)
    assert left.is_last
    second.commit(left)
    assert next(iter(second)).epoch == 2


def test_evaluation_has_whole_responses(folder):
    data = data_module(folder, response_words=2)
    windows = data.eval_batches("test")
    batches = list(windows)
    assert len(batches) == len(windows) == 1
    assert windows.num_targets == sum(batch.num_targets for batch in batches) == 4 + 5


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """A folder whose test split has 200 responses of 2 to 41 words, <eos> included."""
    lengths = np.random.RandomState(0).randint(1, 41, 201)
    lines = [("t", "AB"[turn % 2], "hello " * length) for turn, length in enumerate(lengths)]
    return write(tmp_path_factory.mktemp("talk"), TEXTS | {"test": lines})


def test_evaluation_has_every_pair_once_in_batches_of_like_length(talk):
    windows = data_module(talk, eval_batch_size=8).eval_batches("test")
    batches = list(windows)
    lengths = [batch.is_word_TB.sum(0) for batch in batches]
    assert len(batches) == len(windows) == 25
    assert sorted(torch.cat(lengths).tolist()) == sorted(windows.pairs.lengths.tolist())
    assert max(int(own.max() - own.min()) for own in lengths) <= 4  # of 39
    assert [batch.index for batch in batches] == list(range(25))


@pytest.mark.parametrize("first", [3, 5, 8, 13])
def test_the_first_evaluation_batches_are_of_all_lengths_whatever_the_seed(talk, first):
    def longest(**options: int) -> list[int]:
        windows = data_module(talk, eval_batch_size=8, **options).eval_batches("test")
        return [batch.sampled_length for batch in windows]

    found = longest()
    assert found == longest(seed=7, batch_size=5)
    ends = [2, *sorted(found[:first]), 41]
    gaps = np.diff(ends)
    assert gaps.max() <= 2 * 39 / first


@pytest.mark.parametrize("option", ["turns", "context_words", "response_words", "batch_size"])
def test_bad_options_are_named(folder, option):
    with pytest.raises(UserError, match=rf"^windows\.{option} must be a whole number"):
        data_module(folder, **{option: 0})
