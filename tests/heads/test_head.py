"""The head's contract: log P is a distribution, agrees with a plain formula, and `nll` with it.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import make_transform
from lmkit.heads.direct_output import DirectOutputConnection
from lmkit.heads.head import Head
from lmkit.heads.mixtape import Mixtape, MixtapeLatents
from lmkit.heads.mixtures import (
    HiddenLayer,
    Mixture,
    MixtureOfContexts,
    MixtureOfSoftmaxes,
    MixtureOutput,
    SingleContext,
)
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    Identity,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
    SoftCap,
)
from lmkit.runs.names import name_of, place_of
from tests.heads.conftest import E, assert_formula, assert_logit_range, make_batch, make_head
from tests.language_models import head_parts

T, B = 5, 4


def made(mixture: Mixture, transform: nn.Module, num_words: int, **options: object) -> Head:
    return Head(head_parts(mixture, transform, num_words, **options))


def plain_log_probs(head: Head, hidden_TBD: Tensor) -> Tensor:
    """log sum_k prior_k softmax(f(W g_k + b)), context by context; f alone is the head's own."""
    rows = []
    for hidden_D in hidden_TBD.double().reshape(-1, hidden_TBD.shape[-1]):
        if isinstance(head.mixture, HiddenLayer):
            w, b, a, d = (p.double() for p in head.mixture.parameters())
            prior, contexts = torch.ones(1), (a @ torch.tanh(w @ hidden_D + b) + d).unsqueeze(0)
        elif isinstance(head.mixture, SingleContext):
            prior, contexts = torch.ones(1, dtype=torch.float64), hidden_D.unsqueeze(0)
        elif isinstance(head.mixture, DirectOutputConnection):
            parts = hidden_D[:E], hidden_D[E:]
            prior = torch.softmax(head.mixture.prior.weight.double() @ parts[1], 0)
            pairs = zip(head.mixture.latents, parts, strict=True)
            of_each = [
                (w.weight.double() @ x + w.bias.double()).tanh().view(-1, E) for w, x in pairs
            ]
            contexts = torch.cat(of_each)
        else:
            prior = torch.softmax(head.mixture.prior.weight.double() @ hidden_D, 0)
            latent = head.mixture.latent
            contexts = torch.tanh(latent.weight.double() @ hidden_D + latent.bias.double())
            contexts = contexts.view(len(prior), -1)
        if isinstance(head.mixture, MixtureOfContexts):
            prior, contexts = torch.ones(1), (prior.unsqueeze(1) * contexts).sum(0, keepdim=True)
        p_V = 0.0
        for weight, context_E in zip(prior, contexts, strict=True):
            logits = head.decoder_weight.double() @ context_E + head.decoder_bias.double()
            scores = head.transform(logits).exp()
            p_V = p_V + weight * scores / scores.sum()
        rows.append(p_V.log())
    return torch.stack(rows).detach()


def test_log_probs_are_the_formula_and_sum_to_one(mixture_kind, transform_kind):
    head = make_head(mixture_kind, transform_kind, num_words=203)
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = plain_log_probs(head, hidden_TBD)
    exact = head.log_probs(hidden_TBD)
    assert exact.shape == (T * B, 203)
    torch.testing.assert_close(exact, expected, rtol=1e-11, atol=1e-11)
    nll_TB = head.token_nll(hidden_TBD, targets_TB)
    assert not nll_TB.requires_grad
    picked_TB = -exact.detach().gather(1, targets_TB.view(-1, 1)).view(T, B)
    torch.testing.assert_close(nll_TB, picked_TB, rtol=1e-12, atol=1e-12)
    has_factors = mixture_kind not in ("softmaxes", "doc") and transform_kind == "identity"
    assert head.has_factors is has_factors
    # bias and normaliser are the 2 (Yang et al. 2018, section 2); all else breaks the bound
    rank = torch.linalg.matrix_rank(exact.detach(), rtol=1e-10)
    assert rank == (E + 2 if has_factors else T * B)
    found = head.float().log_probs(hidden_TBD.float())
    assert (found.exp().sum(1) - 1).abs().max() < 1e-5
    rounding = 8 * torch.finfo(torch.float32).eps * float(expected.abs().max())  # cubes reach 600
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=max(1e-5, rounding))


@pytest.mark.parametrize("transform", [Identity(), SigSoftmax(), GeneralizedSigSoftmax(1.0, 5.0)])
@pytest.mark.parametrize("size", [80.0, 1e4])
def test_extreme_logits_leave_log_probs_finite(transform, size):
    """All in log space: log(softmax(x)) would be -inf here."""
    head = made(SingleContext(1), transform, 3)
    with torch.no_grad():
        head.decoder_weight.copy_(torch.tensor([[-1.0], [0.0], [1.0]]))
    hidden_TBD = torch.tensor([[[size]], [[-size]]])
    assert head.log_probs(hidden_TBD).isfinite().all()
    assert (head.log_probs(hidden_TBD).exp().sum(1) - 1).abs().max() < 1e-5
    hidden_TBD.requires_grad_()
    nll = head.nll(hidden_TBD, torch.tensor([[0], [2]]))
    nll.backward()
    assert nll.isfinite()
    assert hidden_TBD.grad.isfinite().all()
    assert head.decoder_weight.grad.isfinite().all()


@pytest.mark.parametrize("num_words", [2, 5])
def test_equal_logits_of_any_size_are_equally_likely(num_words):
    """log V by symmetry; a normaliser of 1e8 + log V in float32 would swallow log V."""
    head = made(SingleContext(1), Identity(), num_words)
    nn.init.constant_(head.decoder_bias, 1e8)
    nll = head.nll(torch.zeros(T, B, 1), torch.zeros(T, B, dtype=torch.long))
    assert nll.item() == pytest.approx(math.log(num_words), rel=1e-6)


def test_logit_range_is_that_of_all_logits(pair):
    head = make_head(*pair, rows=3)
    hidden_TBD, _ = make_batch(head, T, B)
    logits = head.mixture(hidden_TBD).context_NKE @ head.decoder_weight.T + head.decoder_bias
    assert_logit_range(head, hidden_TBD, logits)


@pytest.mark.parametrize("transform", [Identity(), nn.Dropout(0.3)])
def test_logit_range_draws_no_random_numbers_and_leaves_the_mode(transform):
    """Else how often is logged would decide what is learnt."""
    head = made(MixtureOfSoftmaxes(6, 5, 3, 0.5), transform, 11).train()
    before = torch.get_rng_state()
    first = head.logit_range(torch.ones(T, B, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert first == head.logit_range(torch.ones(T, B, 6))
    assert all(module.training for module in head.modules())
    head.eval().logit_range(torch.ones(T, B, 6))
    assert not any(module.training for module in head.modules())


@pytest.mark.parametrize("mixture_kind", ["none", "hidden", "contexts"])
def test_factors_reproduce_log_probs(mixture_kind):
    head = make_head(mixture_kind, "identity", rows=3, num_words=31)
    hidden_TBD, _ = make_batch(head, 9, B)
    context_NE, log_z_N = head.factors(hidden_TBD)
    found = context_NE @ head.decoder_weight.T + head.decoder_bias - log_z_N.unsqueeze(1)
    expected = head.log_probs(hidden_TBD)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


class Shifted(Identity):
    """A user's transform derived from the identity is no identity."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits + logits.abs()


class Sharper(Head):
    """A user's logits are no product of contexts with the decoder."""

    def logits(self, context: Tensor) -> Tensor:
        return super().logits(context) ** 2


def test_logits_of_ones_own_have_no_factors():
    head = Sharper(head_parts(SingleContext(6), Identity(), 11))
    assert not head.has_factors
    assert head.word_weight() is None


class Both(Head):
    """A formula of one's own for rows, and for their targets."""

    def log_probs(self, hidden_TBD: Tensor) -> Tensor:
        return super().log_probs(hidden_TBD)

    def target_log_probs(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().target_log_probs(logits, targets)


def test_a_formula_may_be_given_by_the_targets_log_probabilities():
    assert not Both(head_parts(SingleContext(6), Identity(), 11)).has_plain_logits


def test_a_transform_derived_from_the_identity_has_no_factors():
    head = made(SingleContext(6), Shifted(), 11).double()
    assert not head.has_factors
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = head.token_nll(hidden_TBD, targets_TB).mean()
    torch.testing.assert_close(head.nll(hidden_TBD, targets_TB).detach(), expected)


def test_tied_weights_are_one_parameter_with_both_gradients():
    embedding = nn.Parameter(torch.randn(11, 6))
    head = made(SingleContext(6), Identity(), 11, weight=embedding)
    assert head.decoder_weight is embedding
    assert sum(p is embedding for p in head.parameters()) == 1
    tokens_TB = torch.randint(11, (T, B))
    head.nll(embedding[tokens_TB], tokens_TB).backward()
    tied = embedding.grad
    untied = made(SingleContext(6), Identity(), 11)
    with torch.no_grad():
        untied.decoder_weight.copy_(embedding)
    lookup = embedding.detach().clone().requires_grad_()
    untied.nll(lookup[tokens_TB], tokens_TB).backward()
    torch.testing.assert_close(tied, lookup.grad + untied.decoder_weight.grad)


def test_an_untied_decoder_has_the_contexts_size_and_the_embeddings_initialisation():
    torch.manual_seed(0)
    assert made(SingleContext(7), Identity(), 11).decoder_weight.shape == (11, 7)
    head = made(MixtureOfSoftmaxes(7, 50, 3, 0.0), Identity(), 200)
    assert head.decoder_weight.shape == (200, 50)
    assert head.decoder_weight.abs().max() <= 0.1
    assert abs(head.decoder_weight.std() - 0.1 / math.sqrt(3)) < 0.002
    assert not head.decoder_bias.any()


@pytest.mark.parametrize(
    ("mixture", "names"),
    [
        (SingleContext(7), r"tie_weights.*trunk\.out_dim \(7\).*trunk\.emb_dim \(6\)"),
        (MixtureOfSoftmaxes(7, 5, 2, 0.0), r"tie_weights.*head\.mixture\.emb_dim \(5\).*\(6\)"),
        (MixtureOfContexts(7, 5, 2, 0.0), r"tie_weights.*head\.mixture\.emb_dim \(5\).*\(6\)"),
        (MixtapeLatents(7, 5, 2, 3, 0.0), r"tie_weights.*head\.emb_dim \(5\).*\(6\)"),
    ],
)
def test_tying_unequal_sizes_names_both_options(mixture, names):
    with pytest.raises(UserError, match=names):
        made(mixture, Identity(), 11, weight=nn.Parameter(torch.randn(11, 6)))


def test_a_mixture_from_outside_is_one_by_its_class():
    with pytest.raises(UserError, match=r"head\.mixture\._target_=torch.*Linear.*derived from"):
        made(nn.Linear(6, 6), Identity(), 11)


class Doubled(Mixture):
    """A user's mixture: two equal contexts, and a penalty."""

    in_dim = emb_dim = 6
    num_components = 2

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        context_NKE = hidden_TBD.reshape(-1, 1, 6).expand(-1, 2, -1)
        log_prior_NK = torch.full((len(context_NKE), 2), math.log(0.5))
        return MixtureOutput(log_prior_NK, context_NKE)

    def penalty(self, hidden_TBD: Tensor) -> Tensor:
        return hidden_TBD.square().sum()


def test_a_mixture_from_outside_says_what_the_head_asks_for():
    single, doubled = made(SingleContext(6), Identity(), 11), made(Doubled(), Identity(), 11)
    doubled.load_state_dict(single.state_dict())
    hidden_TBD, targets_TB = torch.randn(T, B, 6), torch.randint(11, (T, B))
    torch.testing.assert_close(
        doubled.nll(hidden_TBD, targets_TB), single.nll(hidden_TBD, targets_TB)
    )
    assert doubled.penalty(hidden_TBD) == hidden_TBD.square().sum()
    assert single.penalty(hidden_TBD) == 0
    assert doubled.mixture.layers is None
    assert name_of(doubled.mixture) == "Doubled"


def test_kinds_have_names_and_places_of_their_own():
    slopes = [PiecewiseLinear(4, 1.0, frozen=frozen) for frozen in (False, True)]
    transforms = [Identity(), SigSoftmax(), GeneralizedSigSoftmax(0.0, 3.0), *slopes]
    transforms += [MonotoneMLP(2), SoftCap(5.0)]
    mixtures = [SingleContext, MixtureOfContexts, MixtureOfSoftmaxes, DirectOutputConnection]
    mixtures += [HiddenLayer]
    heads = [Head, Mixtape]
    for kinds in (transforms, mixtures, heads):
        assert [place_of(kind) for kind in kinds] == list(range(len(kinds)))
        assert kinds[0].display_name == ""
    assert [name_of(plif) for plif in slopes] == ["LMS-PLIF", "LMS-PLIF†"]
    assert name_of(type("Trunk", (), {"display_name": "GRU"})()) == "GRU"  # a place is of heads


def test_impossible_settings_name_the_option():
    for chunk_mb in (0, -1, float("nan"), "16"):
        with pytest.raises(UserError, match=r"head\.chunk_mb"):
            made(SingleContext(6), Identity(), 11, chunk_mb=chunk_mb)


class Temperature(nn.Module):
    """A user's transform with a parameter a word."""

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.scale_V = nn.Parameter(torch.linspace(0.5, 2, num_words))

    def forward(self, logits: Tensor) -> Tensor:
        return logits * self.scale_V


def test_a_transform_may_have_a_parameter_a_word():
    section = {"_target_": f"{__name__}.Temperature"}
    transform = make_transform(section, 11)
    assert transform.scale_V.shape == (11,)
    assert make_transform(section | {"num_words": 3}, 11).scale_V.shape == (3,)
    head = made(MixtureOfSoftmaxes(6, 5, 3, 0.0), transform, 11, chunk_mb=1e-3).double()

    def log_probs(head: Head, hidden_TBD: Tensor) -> Tensor:
        log_prior_NK, context_NKE = head.mixture(hidden_TBD)
        scaled_VE = head.decoder_weight * head.transform.scale_V[:, None]
        logits = context_NKE @ scaled_VE.T + head.decoder_bias * head.transform.scale_V
        return torch.logsumexp(log_prior_NK[..., None] + logits.log_softmax(-1), 1)

    assert_formula(head, make_batch(head, T, B), log_probs)
    curve = head.transform_curve(torch.tensor([-1.0, 2.0], dtype=torch.float64))
    assert curve.tolist() == [-1.25, 2.5]  # of the word in the middle


def test_a_head_is_made_where_nothing_is_differentiated():
    with torch.inference_mode():
        assert made(SingleContext(6), Temperature(11), 11).transform.scale_V.shape == (11,)


def test_a_transform_that_fails_on_logits_is_refused_in_one_line():
    expected = r"head\.transform=Temperature fails on logits of shape \(3, 11\): The s"
    with pytest.raises(UserError, match=expected) as error:
        made(SingleContext(6), Temperature(5), 11)
    assert "\n" not in str(error.value)


class Normalised(nn.Module):
    """Of each row; its default dimension is 1, as that of many of torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(1))

    def forward(self, logits: Tensor) -> Tensor:
        assert logits.dim() == 2, "(rows, words), as in the loss"
        self.mean = 0.5 * self.mean + 0.5 * logits.detach().mean()
        return 7 * nn.functional.normalize(logits)


def test_a_transform_may_look_at_a_whole_row():
    transform = Normalised()
    head = made(MixtureOfSoftmaxes(6, 5, 3, 0.0), transform, 11).double()
    assert transform.mean == 1  # of no logits but those of training

    def log_probs(head: Head, hidden_TBD: Tensor) -> Tensor:
        log_prior_NK, context_NKE = head.mixture(hidden_TBD)
        logits = context_NKE @ head.decoder_weight.T + head.decoder_bias
        scores = 7 * logits / logits.norm(dim=-1, keepdim=True)
        return torch.logsumexp(log_prior_NK[..., None] + scores.log_softmax(-1), 1)

    assert_formula(head, make_batch(head, T, B), log_probs)


def test_transformed_logits_are_those_of_the_one_context():
    head = make_head("contexts", "gss")
    hidden_TBD, _ = make_batch(head)
    context_NE = head.mixture(hidden_TBD).context_NKE[:, 0]
    expected = head.transform(context_NE @ head.decoder_weight.T + head.decoder_bias)
    torch.testing.assert_close(head.transformed_logits(hidden_TBD), expected)
