"""Beam search against a plain loop over hypotheses."""

from dataclasses import replace

import pytest
import torch

from lmkit.dialogue.beam import BeamSearch
from lmkit.dialogue.corpus import EOS_ID, UNK_ID
from tests.dialogue.conftest import MIXTURES, data_module, small_model

NUM_WORDS = 5  # <eos>, <unk> and three others
MAX_WORDS = 4


@pytest.fixture(scope="module")
def batch(folder):
    pairs = data_module(folder).pairs("train")
    found = pairs.batch([2, 0, 5])
    return replace(found, context_SB=found.context_SB % NUM_WORDS)


@torch.no_grad()
def next_log_probs(model, batch, item: int, words: tuple[int, ...]) -> list[float]:
    """log P of the word after `words`, from the whole prefix and the context without padding."""
    length = batch.context_lengths_B[[item]]
    context, responder = (x[:length, [item]] for x in (batch.context_SB, batch.responder_SB))
    memory, state = model.trunk.encode(context, responder, length)
    inputs = torch.tensor([EOS_ID, *words]).unsqueeze(1)
    hidden, _ = model.trunk.decode(inputs, memory, state)
    return model.head.log_probs(hidden)[-1].tolist()


def plain_beam(model, batch, item: int, size: int) -> list[tuple[int, ...]]:
    """The same search as a loop over hypotheses (words, score, whether it has ended)."""
    beam = [((), 0.0, False)]
    for _ in range(MAX_WORDS):
        longer = [hypothesis for hypothesis in beam if hypothesis[2]]
        for words, score, ended in beam:
            if not ended:
                log_probs = next_log_probs(model, batch, item, words)
                longer.append((words, score + log_probs[EOS_ID], True))
                longer += [
                    ((*words, word), score + log_probs[word], False)
                    for word in range(NUM_WORDS)
                    if word not in (EOS_ID, UNK_ID)
                ]
        beam = sorted(longer, key=lambda hypothesis: -hypothesis[1])[:size]
    return [words for words, _, _ in beam]


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("size", [1, 3, 150])  # of 121 responses in all: the last drops none
def test_a_beam_is_the_plain_loop(batch, mixture, size):
    model = small_model(mixture, num_words=NUM_WORDS)
    found = BeamSearch(size, MAX_WORDS, min(size, 20)).search(model, batch)
    assert found == [plain_beam(model, batch, item, size)[:20] for item in range(3)]


def test_it_stops_when_the_best_have_ended(batch):
    model = small_model(num_words=NUM_WORDS)
    with torch.no_grad():
        model.head.decoder_bias[EOS_ID] = 50.0
    calls = []
    model.trunk.decoder.register_forward_hook(lambda *_: calls.append(1))
    found = BeamSearch(4, 30, 1).search(model, batch)
    assert found == [[()]] * 3
    assert len(calls) == 1


def test_few_responses_are_all_there_are(batch):
    model = small_model(num_words=NUM_WORDS)
    found = BeamSearch(9, 1, 9).search(model, batch)
    assert [set(each) for each in found] == [{(), (2,), (3,), (4,)}] * 3


def test_a_trained_models_mode_is_left_as_it_was(batch):
    model = small_model(num_words=NUM_WORDS).train()
    BeamSearch(2, 3, 1).search(model, batch)
    assert model.training
