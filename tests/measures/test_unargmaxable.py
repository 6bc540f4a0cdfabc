"""Words that no context makes the likeliest, in decoders whose answer is known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lmkit.measures import unargmaxable
from lmkit.measures.unargmaxable import _can_win, unargmaxable_words

SQUARE = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])


def excluded(weight_VE, bias_V=None, predicted=()):
    bias_V = torch.zeros(len(weight_VE)) if bias_V is None else bias_V
    known_V = torch.zeros(len(weight_VE), dtype=torch.bool)
    known_V[list(predicted)] = True
    return unargmaxable_words(weight_VE, bias_V, known_V)


def test_a_word_within_the_convex_hull_of_others_is_never_the_likeliest():
    inside = torch.tensor([[0.2, -0.3], [0, 0], [0.99, 0.99]])
    assert excluded(torch.cat([inside, SQUARE])) == [0, 1, 2]


def test_a_word_that_the_first_words_do_not_exclude_is_compared_with_the_others():
    points = torch.cat([torch.zeros(1, 2), SQUARE]).numpy()
    assert not _can_win(np.column_stack([points, np.zeros(5)]), 0, set())


def test_a_bias_above_the_hull_frees_a_word_and_a_low_one_excludes_a_corner():
    weight = torch.cat([torch.zeros(1, 2), SQUARE])
    assert excluded(weight, torch.tensor([0.1, 0, 0, 0, 0])) == []
    # the middle of an edge, half-way between biases 0 and 1: a bias of 0.5 is not above it
    edge = torch.cat([torch.tensor([[1.0, 0]]), SQUARE])
    assert excluded(edge, torch.tensor([0.49, 0, 1, 0, 0])) == [0]
    assert excluded(edge, torch.tensor([0.51, 0, 1, 0, 0])) == []


def test_equal_words_exclude_each_other():
    """Neither is ever likelier than the other, though a product may round the two differently."""
    assert excluded(torch.cat([SQUARE, SQUARE[:1]])) == [0, 4]
    for seed in range(8):
        weight = torch.randn(386, 30, generator=torch.Generator().manual_seed(seed))
        weight[[200, 385]] = weight[3].clone()
        assert {3, 200, 385} <= set(excluded(weight, torch.zeros(386)))


def test_of_equal_words_none_is_predicted():
    log_p_nV = torch.tensor([[0.1, 0.4, 0.4, 0.1], [0.4, 0.2, 0.2, 0.2]]).log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unargmaxable, "log_prob_blocks", lambda *_: [(log_p_nV, None)])
        head = SimpleNamespace(decoder_bias=torch.zeros(4))
        found_V = unargmaxable.predicted_words(SimpleNamespace(head=head), [], 2)
    assert found_V.tolist() == [True, False, False, False]


def test_many_words_on_a_sphere_and_within():
    """All points on a sphere are corners; those well within the hull of many are not."""
    generator = torch.Generator().manual_seed(0)
    sphere = torch.nn.functional.normalize(torch.randn(300, 4, generator=generator), dim=1)
    within = 0.3 * sphere[:40]
    assert excluded(torch.cat([sphere, within])) == list(range(300, 340))


def test_what_is_predicted_is_not_looked_at():
    weight = torch.cat([torch.tensor([[0.1, 0], [0.2, 0]]), SQUARE])
    assert excluded(weight, predicted=[0]) == [1]


@pytest.mark.parametrize("predicted", [[], [1], [0, 1, 2, 3]])
def test_progress_ends_with_all_words_though_no_linear_program_decides_any(predicted):
    known_V = torch.zeros(4, dtype=torch.bool)
    known_V[predicted] = True
    told = []
    assert unargmaxable_words(SQUARE, torch.zeros(4), known_V, told.append) == []
    assert told[-1] == 4


@pytest.mark.parametrize("seed", range(3))
def test_no_mixture_of_softmaxes_frees_a_word(seed):
    """p_i is at most the weighted mean of the p_j of a hull in each component, so in their mix."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(12, generator=generator, dtype=torch.float64)
    words = excluded(weight, bias)
    assert words
    contexts = 3 * torch.randn(20_000, 3, 2, generator=generator, dtype=torch.float64)
    priors = torch.rand(20_000, 3, 1, generator=generator, dtype=torch.float64)
    mixed = (priors * torch.softmax(contexts @ weight.T + bias, dim=-1)).sum(1)
    assert not set(words) & set(mixed.argmax(1).tolist())


def test_a_word_between_two_others_in_one_dimension_is_never_the_likeliest():
    assert excluded(torch.tensor([[-1.0], [0.0], [1.0]]), torch.full((3,), 4.0)) == [1]
