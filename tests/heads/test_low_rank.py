"""A decoder of limited rank against W = A B computed whole, in float64.

Shapes: T window length, B batch, D trunk output, E context vector, V vocabulary, r rank.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lmkit.data.windows import Columns, EvalWindows
from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head, nearest_factors
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.transforms import Identity
from lmkit.measures.model_spectra import model_spectrum
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.heads.conftest import (
    MIXTURES,
    TRANSFORMS,
    E,
    V,
    assert_formula,
    assert_near_in_bf16,
    make_batch,
)
from tests.language_models import head_parts, language_model, log_prob_matrix


def low_rank(mixture_kind: str, transform_kind: str) -> Head:
    torch.manual_seed(11)
    made = MIXTURES[mixture_kind](), TRANSFORMS[transform_kind]()
    head = Head(head_parts(*made, V, chunk_mb=0.001), decoder_rank=3).double()
    with torch.no_grad():
        head.decoder_weight.mul_(20)
        nn.init.normal_(head.decoder_bias)
    return head


def plain_log_probs(head: Head, hidden_TBD: torch.Tensor) -> torch.Tensor:
    """The formula, with the weight A B whole."""
    log_prior_NK, context_NKE = head.mixture(hidden_TBD)
    weight_VE = head.decoder_weight @ head.rank_map.weight / head.rank_map.unit
    assert weight_VE.shape == (V, E)
    values_NKV = head.transform(context_NKE @ weight_VE.T + head.decoder_bias)
    return torch.logsumexp(log_prior_NK.unsqueeze(-1) + F.log_softmax(values_NKV, -1), dim=1)


def test_loss_and_every_gradient_are_those_of_the_whole_weight(pair):
    head = low_rank(*pair)
    batch = make_batch(head, 7, 3)
    torch.testing.assert_close(head.log_probs(batch[0]), plain_log_probs(head, batch[0]))
    assert_formula(head, batch, plain_log_probs)


def test_near_in_bfloat16(mixture_kind):
    head = low_rank(mixture_kind, "gss")
    assert_near_in_bf16(head, make_batch(head, 7, 3))


def test_the_weight_has_the_rank_and_starts_as_a_whole_one_seen_in_a_subspace():
    head = Head(head_parts(SingleContext(50), Identity(), 400), decoder_rank=20)
    weight_VE = head.word_weight()
    assert weight_VE.shape == (400, 50)
    assert torch.linalg.matrix_rank(weight_VE) == 20
    rows = head.rank_map.weight / head.rank_map.unit
    torch.testing.assert_close(rows @ rows.T, torch.eye(20), atol=1e-5, rtol=0)
    typical = float(torch.linalg.svdvals(head.decoder_weight.detach()).square().mean().sqrt())
    assert float(head.rank_map.unit) == pytest.approx(typical, rel=1e-4)


def test_the_spectrum_of_log_p_comes_from_the_factors():
    torch.manual_seed(3)
    trunk = AWDLSTM(num_words=V, emb_dim=4, hidden_dim=7, out_dim=9, num_layers=1)
    head = Head(head_parts(SingleContext(9), Identity(), V), decoder_rank=2)
    model = language_model(trunk, head).eval()
    batches = list(EvalWindows(Columns(*torch.randint(V, (2, 11, 2))), 70))
    spectrum = model_spectrum(model, batches, 22)
    assert spectrum.measures.method == "factors"
    rows = log_prob_matrix(model, batches).double()
    expected = torch.linalg.svdvals(rows)
    torch.testing.assert_close(spectrum.singular_values[:4], expected[:4], rtol=1e-4, atol=1e-4)
    assert float(spectrum.singular_values[4:].max()) == 0.0  # at most r + 2


def test_the_nearest_factors_are_those_of_the_largest_singular_values():
    torch.manual_seed(4)
    weight = torch.randn(30, 8, dtype=torch.float64)
    factor, rows = nearest_factors(weight, 5)
    sigma = torch.linalg.svdvals(weight)
    torch.testing.assert_close((weight - factor @ rows).norm(), sigma[5:].norm())
    torch.testing.assert_close(rows @ rows.T, torch.eye(5, dtype=torch.float64))
    few = nearest_factors(weight[:3], 5)
    torch.testing.assert_close(few[0] @ few[1], weight[:3])


def test_what_cannot_be():
    parts_ = head_parts(SingleContext(E), Identity(), V)
    with pytest.raises(UserError, match="must be at most 5"):
        Head(parts_, decoder_rank=6)
    with pytest.raises(UserError, match=r"head\.decoder_rank"):
        Head(parts_, decoder_rank=0)
    weight = nn.Parameter(torch.zeros(V, E))
    with pytest.raises(UserError, match=r"head\.tie_weights=false"):
        Head(head_parts(SingleContext(E), Identity(), V, weight), decoder_rank=2)
