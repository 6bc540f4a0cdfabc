"""The head: context vectors to distributions over words, one contract for every kind.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.

A head is a *mixture* composed with a *transform*, over one decoder (weight V x E, bias V):

    log P = logsumexp_K(log_prior + log_softmax_V(transform(context W' + b)))

The decoder may be of limited rank r: W = A B, with A (V x r) and B (r x E). The logits W h of a
context h are the products A (B h): the chunked loss, the transforms and the spectra see a decoder A
over contexts of size r. So for K = 1 without a transform, log P has rank at most r + 2, and a
smaller r costs less. R stands for r in suffixes.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.heads.chunks import TargetLogProbs, affine, chunk_rows, chunked_mean
from lmkit.heads.mixtures import Mixture, MixtureOutput, SingleContext
from lmkit.heads.transforms import Identity, Transform, in_loss

# MiB. On a CPU larger chunks gain nothing and overflow its caches; a GPU needs large products.
CHUNK_MB = {"cpu": 16, "cuda": 256}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadParts:
    """The parts of every head, whatever options its class adds.

    Raises: UserError naming the option.
    """

    mixture: Mixture
    transform: nn.Module
    """A pointwise map on logits (..., V), see `lmkit.heads.transforms`."""
    word_counts_V: Tensor
    """How often each word occurs in the training text, int64; its length is the vocabulary's
    size. Zeros do where a checkpoint's weights replace those of the head."""
    embedding_weight: nn.Parameter | None = None
    """The V x E parameter to share as the decoder's weight; None for a separate weight."""
    chunk_mb: float | None = None
    """Memory of one chunk's logits, MiB; None for `CHUNK_MB` of the device. A transform and its
    gradient take as much again, once or twice, and on a GPU, in one block, up to seven times."""

    def __post_init__(self) -> None:
        kind = type(self.mixture)
        given = f"head.mixture._target_={kind.__module__}.{kind.__name__}"
        if not isinstance(self.mixture, Mixture):
            raise UserError(f"{given} must be derived from lmkit.heads.mixtures.Mixture")
        unset = [name for name in Mixture.__annotations__ if not hasattr(self.mixture, name)]
        if unset:
            raise UserError(f"{given} must set {', '.join(unset)}, which it lacks")
        if self.chunk_mb is not None:
            require_positive("head.chunk_mb", self.chunk_mb)
        self._require_shape()

    def _require_shape(self) -> None:
        """Raises UserError unless the transform keeps the shape of logits, at float32 or finer."""
        logits_nV = torch.zeros(3, len(self.word_counts_V), device=self.word_counts_V.device)
        if logits_nV.is_meta:
            return  # a transform of the user's own need not work without values
        name = type(self.transform).__name__
        made = _tried(self.transform, f"head.transform={name}", "logits", logits_nV)
        if not isinstance(made, Tensor):
            raise UserError(f"head.transform={name} makes {type(made).__name__} of logits")
        if made.shape != logits_nV.shape:
            found, shape = tuple(made.shape), tuple(logits_nV.shape)
            raise UserError(f"head.transform={name} makes {found} of logits of shape {shape}")
        is_coarse = made.is_floating_point() and torch.finfo(made.dtype).bits < 32
        if is_coarse or not made.is_floating_point():
            raise UserError(f"head.transform={name} makes {made.dtype} of {logits_nV.dtype} logits")
        if not logits_nV.is_inference() and logits_nV._version:
            raise UserError(f"head.transform={name} changes its input: leave out inplace=true")


def _tried(part: nn.Module, given: str, what: str, inputs: Tensor) -> Any:
    """What a part makes of some inputs; it is then as before, and so are random numbers.

    Raises: UserError when it fails.
    """
    state = copy.deepcopy(part.state_dict())
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            made = part(inputs)
        part.load_state_dict(state)  # without a running mean, say, of these inputs
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{given} fails on {what} of shape {tuple(inputs.shape)}: {reason}"
        ) from error
    return made


def _require_both_formulas(kind: type) -> None:
    """Raises UserError for a head with a formula of its own for the loss or for log P alone."""
    of_loss, of_rows = (
        [name for name in names if getattr(kind, name) is not getattr(Head, name)]
        for names in (("forward", "target_log_probs"), ("log_probs", "mixed"))
    )
    if bool(of_loss) != bool(of_rows):
        lacks = "log_probs too, from which ranks are measured"
        if of_rows:
            lacks = "forward too, by which it is trained"
        raise UserError(
            f"head._target_={kind.__module__}.{kind.__name__} has a formula of its own in "
            f"{[*of_loss, *of_rows][0]}, and needs it in {lacks}"
        )


def _require_weights(mixture: Mixture, device: torch.device) -> None:
    """Raises UserError unless a mixture of the user's own gives what `MixtureOutput` says."""
    kind = type(mixture)
    if kind.__module__.startswith("lmkit."):
        return
    given = f"head.mixture._target_={kind.__module__}.{kind.__name__}"
    outputs_TBD = torch.linspace(-1, 1, 6 * mixture.in_dim, device=device).view(2, 3, -1)
    made = _tried(mixture, given, "a window", outputs_TBD)
    is_pair = isinstance(made, tuple) and len(made) == 2
    if not is_pair or not all(isinstance(each, Tensor) for each in made):
        raise UserError(f"{given} must return MixtureOutput, but returns {type(made).__name__}")
    found = [tuple(each.shape) for each in made]
    wanted = [(6, mixture.num_components), (6, mixture.num_components, mixture.emb_dim)]
    if found != wanted:
        raise UserError(
            f"{given} makes log priors and contexts of shapes {found[0]} and {found[1]} of six "
            f"outputs of the trunk, not {wanted[0]} and {wanted[1]}"
        )
    sums_N = made[0].float().exp().sum(1)
    if not torch.allclose(sums_N, torch.ones_like(sums_N), atol=1e-2):
        raise UserError(f"{given} gives weights that do not sum to one: are they their logs?")


class RankMap(nn.Module):
    """h -> B h.

    B starts with orthonormal rows. The parameter is u B, with u the root mean square of A's initial
    singular values: a step of SGD on u B then moves W about as far as one on A, or one on W itself,
    would. Otherwise B would learn u^2 times as fast.

    Args:
        factor_VR: the initial A.
        rows_RE: the initial B.
    """

    unit: Tensor  # u; saved with the weights in every checkpoint

    def __init__(self, factor_VR: Tensor, rows_RE: Tensor) -> None:
        super().__init__()
        self.register_buffer("unit", torch.empty(()))
        self.weight = nn.Parameter(torch.empty_like(rows_RE))  # u B
        self.start_as(factor_VR, rows_RE)

    @torch.no_grad()
    def start_as(self, factor_VR: Tensor, rows_RE: Tensor) -> None:
        """Starts from these initial factors; later ones have the same sizes."""
        self.unit.copy_(factor_VR.norm() / factor_VR.shape[1] ** 0.5)
        self.weight.copy_(rows_RE * self.unit)

    def forward(self, context: Tensor) -> Tensor:
        """B h (..., r) of contexts h (..., E)."""
        return F.linear(context, self.weight / self.unit)

    def whole(self, factor_VR: Tensor) -> Tensor:
        """A B (V, E)."""
        return factor_VR @ (self.weight / self.unit)


class Head(nn.Module):
    """Any mixture with any transform over one decoder, which may share the embedding's weight.

    Args:
        parts: of the head.
        decoder_rank: r of a decoder's weight W = A B; None for an unfactored W. With it,
            `decoder_weight` is A, and `contexts` returns B h.
    """

    display_name, place = "", 0

    def __init__(self, parts: HeadParts, *, decoder_rank: int | None = None) -> None:
        super().__init__()
        _require_both_formulas(type(self))
        mixture, weight, num_words = parts.mixture, parts.embedding_weight, len(parts.word_counts_V)
        if decoder_rank is not None:
            if weight is not None:
                raise UserError(
                    f"head.decoder_rank={decoder_rank} needs head.tie_weights=false: the "
                    f"embedding has full rank"
                )
            require_count("head.decoder_rank", decoder_rank)
            if decoder_rank > mixture.emb_dim:
                raise UserError(
                    f"head.decoder_rank must be at most {mixture.emb_dim}, the size of the "
                    f"contexts, but is {decoder_rank}; null trains the whole weight"
                )
        if weight is not None and weight.shape[1] != mixture.emb_dim:
            of_none = " with head/mixture=none" if isinstance(mixture, SingleContext) else ""
            raise UserError(
                f"head.tie_weights=true needs {mixture.emb_option} ({mixture.emb_dim}) equal to "
                f"trunk.emb_dim ({weight.shape[1]}){of_none}"
            )
        if self._mixes_softmaxes and not parts.word_counts_V.is_meta:
            _require_weights(mixture, parts.word_counts_V.device)
        self.mixture, self.transform = mixture, parts.transform
        self.chunk_mb = parts.chunk_mb
        if weight is None:
            columns = mixture.emb_dim if decoder_rank is None else decoder_rank
            weight = nn.Parameter(torch.empty(num_words, columns).uniform_(-0.1, 0.1))
        self.decoder_weight = weight
        self.decoder_bias = nn.Parameter(torch.zeros(num_words))
        rank_map = None
        if decoder_rank is not None:
            rows_RE = nn.init.orthogonal_(torch.empty(decoder_rank, mixture.emb_dim))
            rank_map = RankMap(weight.detach(), rows_RE)
        self.rank_map = rank_map  # B

    @property
    def _mixes_softmaxes(self) -> bool:
        return type(self).log_probs is Head.log_probs and type(self).mixed is Head.mixed

    @property
    def has_plain_logits(self) -> bool:
        """Whether log P mixes transformed softmaxes of products of `contexts` and the decoder."""
        return self._mixes_softmaxes and type(self).logits is Head.logits

    @property
    def has_factors(self) -> bool:
        """Whether log P = context W' + b - log Z, so that its rank is at most E + 2, or r + 2."""
        is_plain = self.mixture.num_components == 1 and type(self.transform) is Identity
        return is_plain and self.has_plain_logits

    def word_weight(self) -> Tensor | None:
        """W (V, E) of the logits before the transform; None where no single matrix makes them
        all."""
        if not self.has_plain_logits:
            return None
        weight = self.decoder_weight
        return weight if self.rank_map is None else self.rank_map.whole(weight)

    def contexts(self, hidden_TBD: Tensor) -> MixtureOutput:
        """The vectors that the decoder's weight multiplies, and their log prior."""
        output: MixtureOutput = self.mixture(hidden_TBD)
        if self.rank_map is None:
            return output
        return output._replace(context_NKE=self.rank_map(output.context_NKE))

    def penalty(self, hidden_TBD: Tensor) -> Tensor | float:
        """What the mixture adds to the nll in the training loss, in nats."""
        return self.mixture.penalty(hidden_TBD)

    def forward(self, inputs: Sequence[Tensor], targets_n: Tensor) -> Tensor:
        """Negative log-likelihood (n,) of a chunk's targets, nats.

        Args:
            inputs: a chunk's rows of `formula_inputs`.
        """
        log_prior_nK, context_nKE = inputs
        targets = targets_n.repeat_interleave(context_nKE.shape[1])
        log_p = self.target_log_probs(self.logits(context_nKE.flatten(0, 1)), targets)
        return -torch.logsumexp(log_prior_nK + log_p.view_as(log_prior_nK), dim=1)

    def target_log_probs(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each row's target, (rows,), of its logits (rows, V), which it may
        overwrite."""
        values = in_loss(self.transform, logits)
        found: Tensor = TargetLogProbs.apply(values, targets)  # type: ignore[no-untyped-call]
        return found

    def formula_inputs(self, hidden_TBD: Tensor) -> list[Tensor]:
        """What `forward` takes of all contexts, in the parameters' dtype."""
        return [x.to(self.decoder_weight.dtype) for x in self.contexts(hidden_TBD)]

    def formula_weights(self) -> dict[str, Tensor]:
        """What `forward` takes of the head itself, by name: parameters, and what transforms make of
        theirs once."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        for path, module in self.named_modules():
            if isinstance(module, Transform):
                made = module.made_once().items()
                weights |= {f"{path}.{name}": value for name, value in made}
        return weights

    def nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets, a scalar in nats, for training."""
        if not torch.is_grad_enabled():
            return self.token_nll(hidden_TBD, targets_TB).mean()
        inputs, targets_N = self.formula_inputs(hidden_TBD), targets_TB.reshape(-1)
        return chunked_mean(self, self.formula_weights(), inputs, targets_N, self._rows())

    @torch.no_grad()
    def token_nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        """Each target's negative log-likelihood (T, B), nats, without gradient."""
        targets = torch.split(targets_TB.reshape(-1), self._rows())
        chunks = zip(self._input_chunks(hidden_TBD), targets, strict=True)
        weights = self.formula_weights()
        nlls = [functional_call(self, weights, chunk) for chunk in chunks]
        return torch.cat(nlls).view_as(targets_TB)

    def log_probs(self, hidden_TBD: Tensor) -> Tensor:
        """Rows (N, V) of log P, in nats."""
        log_prior_NK, context_NKE = self.contexts(hidden_TBD)
        return self.mixed(log_prior_NK, self.logits(context_NKE.flatten(0, 1)))

    def mixed(self, log_prior_NK: Tensor, logits: Tensor) -> Tensor:
        """Rows (N, V) of log P of each component's logits (N·K, V), in which a transform may look
        at a whole row."""
        log_p = F.log_softmax(self.transform(logits), dim=-1)
        log_p_NKV = log_p.view(*log_prior_NK.shape, -1)
        return torch.logsumexp(log_prior_NK.unsqueeze(-1) + log_p_NKV, dim=1)

    def transformed_logits(self, hidden_TBD: Tensor) -> Tensor:
        """Rows (N, V) of the transformed logits of a head with one context (K = 1)."""
        context_NE = self.contexts(hidden_TBD).context_NKE.squeeze(1)
        values_NV: Tensor = self.transform(self.logits(context_NE))
        return values_NV

    @torch.no_grad()
    def transform_curve(self, logits_n: Tensor) -> Tensor | None:
        """What the transform makes of some values, (n,); the median over words if they differ. None
        where it depends on a context's other logits.
        """
        num_words = len(self.decoder_bias)
        grid_nV = logits_n.unsqueeze(1).expand(-1, num_words).contiguous()
        made_nV = self.transform(grid_nV)
        words_V = torch.arange(num_words, device=logits_n.device)
        rows_V = words_V % len(logits_n)
        mixed_V, alone_V = self.transform(logits_n[rows_V][None])[0], made_nV[rows_V, words_V]
        if not torch.allclose(mixed_V, alone_V, rtol=1e-3, atol=1e-3, equal_nan=True):
            return None
        # sorted, as a GPU has no deterministic `median`
        values_nV: Tensor = made_nV.sort(dim=1).values
        return values_nV[:, (values_nV.shape[1] - 1) // 2]

    @torch.no_grad()
    def factors(self, hidden_TBD: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (N, E) and log normalisers (N,) of a head that `has_factors`."""
        context_NE = self.contexts(hidden_TBD).context_NKE.squeeze(1)
        parts = map(self.logits, torch.split(context_NE, self._rows()))
        return context_NE, torch.cat([torch.logsumexp(logits, dim=1) for logits in parts])

    def logits(self, context: Tensor) -> Tensor:
        """Logits (..., V) of contexts (..., E), before the transform, in the parameters' dtype."""
        return affine(context, self.decoder_weight, self.decoder_bias)

    def _rows(self) -> int:
        """Contexts per chunk."""
        chunk_mb = self.chunk_mb
        if chunk_mb is None:
            chunk_mb = CHUNK_MB.get(self.decoder_weight.device.type, CHUNK_MB["cuda"])
        return chunk_rows(self._row_logits(), self.decoder_weight.element_size(), chunk_mb)

    def _row_logits(self) -> int:
        """How many logits a context has."""
        return self.mixture.num_components * len(self.decoder_bias)

    def _input_chunks(self, hidden_TBD: Tensor) -> Iterator[tuple[Tensor, ...]]:
        parts = (torch.split(x, self._rows()) for x in self.formula_inputs(hidden_TBD))
        return zip(*parts, strict=True)

    @torch.no_grad()
    def logit_range(self, hidden_TBD: Tensor) -> dict[str, Tensor | float]:
        """Smallest, mean and largest logit of (T, B, D) trunk outputs, before and after the
        transform, without dropout, so that logging draws no random numbers, and without waiting
        for the device."""
        training = self.training
        self.eval()
        seen: dict[str, list[Tensor]] = {"logits": [], "transformed_logits": []}
        count = 0
        for logits in self.logit_chunks(hidden_TBD):
            count += logits.numel()
            for name, x in (("logits", logits), ("transformed_logits", self.transform(logits))):
                seen[name].append(torch.stack([*torch.aminmax(x), x.sum()]))
        self.train(training)
        ranges: dict[str, Tensor | float] = {}
        for name, chunks in seen.items():
            low, high, total = torch.stack(chunks).unbind(1)
            ranges[f"{name}_min"] = low.min()
            ranges[f"{name}_mean"] = total.sum() / count
            ranges[f"{name}_max"] = high.max()
        return ranges

    def logit_chunks(self, hidden_TBD: Tensor) -> Iterator[Tensor]:
        """Logits (rows, V) before the transform, of all contexts and components, chunk by chunk."""
        for _, context_nKE in self._input_chunks(hidden_TBD):
            yield self.logits(context_nKE.flatten(0, 1))


def nearest_factors(weight_VE: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A and B of the best approximation of a weight by one of that rank (Eckart and Young 1936).

    B has orthonormal rows. If V is less than the rank, the last rows are 0.
    """
    left, sigma, right = torch.linalg.svd(weight_VE.double(), full_matrices=False)
    factor_VR, rows_RE = left[:, :rank] * sigma[:rank], right[:rank]
    missing = rank - len(rows_RE)
    return (
        F.pad(factor_VR, (0, missing)).to(weight_VE.dtype),
        F.pad(rows_RE, (0, 0, 0, missing)).to(weight_VE.dtype),
    )
