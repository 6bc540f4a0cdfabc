"""The nearest softmax against plain minimisation of the formula from many starts."""

import pytest
import torch
from scipy.optimize import minimize

from lmkit.errors.user_error import UserError
from lmkit.spectra.nearest_softmax import (
    BLOCK_ROWS,
    divergence_and_gradients,
    nearest_contexts,
    nearest_softmax,
    working_bytes,
)
from tests.live_bytes import LiveBytes

GENERATOR = torch.Generator()


def random(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR.manual_seed(seed), dtype=torch.float64)


def plain_divergence(log_p_NV, contexts_ND, weight_VD, bias_V):
    log_q_NV = torch.log_softmax(contexts_ND @ weight_VD.T + bias_V, dim=1)
    return (log_p_NV.exp() * (log_p_NV - log_q_NV)).sum(1).mean()


def parameters(num_rows, num_words, dim, seed=5):
    shapes = ((num_rows, dim), (num_words, dim), (num_words,))
    return [random(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


def test_the_divergence_and_its_gradients_are_those_of_autograd():
    num_rows = BLOCK_ROWS + 7
    log_p = torch.log_softmax(2 * random(num_rows, 11), dim=1)
    given = parameters(num_rows, 11, 3)
    found, gradients = divergence_and_gradients(log_p, *given)
    expected = plain_divergence(log_p, *(each.requires_grad_() for each in given))
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    for gradient, plain in zip(gradients, torch.autograd.grad(expected, given), strict=True):
        torch.testing.assert_close(gradient, plain, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("dim", [1, 2])
def test_it_is_as_near_as_the_best_of_many_plain_minimisations(dim):
    num_rows, num_words = 9, 6
    log_p = torch.log_softmax(1.5 * random(num_rows, num_words), dim=1)
    shapes = [(num_rows, dim), (num_words, dim), (num_words,)]
    sizes = [torch.Size(shape).numel() for shape in shapes]

    def of(flat):
        parts = torch.from_numpy(flat).requires_grad_()
        pieces = [p.reshape(s) for p, s in zip(parts.split(sizes), shapes, strict=True)]
        value = plain_divergence(log_p, *pieces)
        (gradient,) = torch.autograd.grad(value, parts)
        return float(value), gradient.numpy()

    starts = [random(sum(sizes), seed=seed).numpy() for seed in range(20)]
    best = min(minimize(of, start, jac=True, method="L-BFGS-B").fun for start in starts)
    found = nearest_softmax(log_p, torch.zeros(num_rows, dtype=torch.long), dim, 2000)
    assert best > 0.01
    assert found.divergence <= 1.02 * best


def test_contexts_alone_are_as_near_as_plain_minimisation_row_by_row():
    """Convex, so that one start is enough."""
    log_p = torch.log_softmax(1.5 * random(40, 9), dim=1)
    _, weight, bias = parameters(40, 9, 3, seed=8)

    def least(log_p_1V):
        def of(context):
            part = torch.from_numpy(context).requires_grad_()
            value = plain_divergence(log_p_1V, part.unsqueeze(0), weight, bias)
            (gradient,) = torch.autograd.grad(value, part)
            return float(value), gradient.numpy()

        return minimize(of, [0.0] * 3, jac=True, method="BFGS").fun

    expected = sum(least(row.unsqueeze(0)) for row in log_p) / 40
    done = []
    found, iterations = nearest_contexts(log_p, weight, bias, 300, done.append)
    assert expected <= found <= 1.003 * expected
    assert done == list(range(10, iterations + 1, 10))


def test_a_decoder_found_on_other_contexts_of_a_softmax_is_its_own():
    contexts, weight, bias = parameters(400, 50, 6)
    log_p = torch.log_softmax(contexts @ weight.T + bias, dim=1)
    found = nearest_softmax(log_p[:300], torch.zeros(300, dtype=torch.long), 6, 100)
    assert nearest_contexts(log_p[300:], found.weight_VD, found.bias_V, 100)[0] < 1e-6
    assert nearest_contexts(log_p[300:], random(50, 6), found.bias_V, 100)[0] > 0.1


def test_a_rank_that_no_softmax_of_the_dimension_has_may_be_all_but_unused():
    """z + 0.02 z^3 has a rank far above that of z, and a softmax is near."""
    contexts, weight, bias = parameters(400, 60, 4)
    logits = contexts @ weight.T / 2 + bias
    log_p = torch.log_softmax(logits + 0.02 * logits**3, dim=1)
    assert torch.linalg.matrix_rank(log_p) > 20
    done = []
    found = nearest_softmax(log_p, torch.zeros(400, dtype=torch.long), 4, 300, done.append)
    assert 0 < found.divergence < 0.02
    assert done == list(range(10, found.iterations + 1, 10))
    few = nearest_softmax(log_p, torch.zeros(400, dtype=torch.long), 4, 13, done.append)
    assert done[-2:] == [10, 13]
    assert few.iterations == 13
    assert few.divergence > found.divergence


def test_the_words_that_follow_are_scored_by_both():
    log_p, targets = torch.log_softmax(random(30, 12), 1), torch.arange(30) % 12
    found = nearest_softmax(log_p, targets, dim=2, iterations=30)
    own = -log_p.gather(1, targets.unsqueeze(1)).mean()
    assert found.own_nll == pytest.approx(float(own)) != pytest.approx(found.nll, rel=1e-3)


def test_an_entry_that_is_not_finite_is_named():
    log_p = torch.log_softmax(random(40, 17), dim=1)
    log_p[9, 4] = -torch.inf
    with pytest.raises(UserError, match=r"value -inf in row 9 \(context\), column 4 \(word\)"):
        nearest_softmax(log_p, torch.zeros(40, dtype=torch.long), 3, 10)


def test_it_takes_no_more_memory_than_is_said():
    log_p = torch.log_softmax(random(600, 500).float(), dim=1)
    with LiveBytes() as live:
        nearest_softmax(log_p, torch.zeros(600, dtype=torch.long), 4, 30)
    said = working_bytes(600, 500, 4)
    assert said / 2 < live.peak <= said


def test_random_numbers_of_others_are_left_as_they_were():
    log_p = torch.log_softmax(random(40, 17), dim=1)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    nearest_softmax(log_p, torch.zeros(40, dtype=torch.long), 3, 10)
    assert torch.equal(torch.rand(3), expected)
