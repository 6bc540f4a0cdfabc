"""A Transformer on sequences that repeat one symbol, with any head: SpamLang.

Godey and Artzi 2026 (arXiv 2603.10145): a sequence is one symbol, drawn uniformly from V, said
again and again. Any width above 1 has weights that predict it without error.

In such a sequence all values that attention averages are equal, so that attention, whatever its
weights, is the linear map of one value. So a causal Transformer with rotary positions, or with
none, has the same output at every position, and one position has the loss of the whole sequence.
The model here computes that one position:

    x = embedding[symbol];  per layer x += O V norm(x), then x += SwiGLU(norm(x));  h = norm(x)

The language is the paper's. Sizes and training are not known from it here and are lmkit's choice:
pre-norm layers with RMSNorm, a hidden width of 4 d, Adam with a warm-up and a half cosine.

Shapes: B sequences, D = d width, E embedding (= D), V symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import (
    UserError,
    require_choice,
    require_count,
    require_flag,
    require_positive,
)
from lmkit.heads.chunks import chunk_rows
from lmkit.heads.head import Head
from lmkit.measures.gradient_share import logit_gradients
from lmkit.spectra.bottleneck import GradientShares, orthonormal_basis
from lmkit.studies.cost import MIB, LiveBytes
from lmkit.studies.heads import FreeHead
from lmkit.studies.study import Row

BLOCK_MB = 32  # of the log P, or of the logits' gradients, that are looked at together
SHARE_CONTEXTS = 64  # whose gradients are measured
WARM_UP = 0.05  # of the steps, in which the learning rate rises to `lr`
FINAL_LR = 0.01  # the part of `lr` at which the half cosine ends
GROWTH = 4  # hidden width of a layer over d


class Layer(nn.Module):
    """A pre-norm Transformer layer at any position of a sequence of equal symbols."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.before_attention, self.before_swiglu = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.value, self.output = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(dim, GROWTH * dim, bias=False) for _ in range(2))
        self.down = nn.Linear(GROWTH * dim, dim, bias=False)

    def forward(self, x_1BD: Tensor) -> Tensor:
        x_1BD = x_1BD + self.output(self.value(self.before_attention(x_1BD)))
        normed = self.before_swiglu(x_1BD)
        hidden: Tensor = x_1BD + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return hidden


class Repeater(nn.Module):
    """The model: predicts the symbol that it is given.

    Args:
        kind: of head.
        dim: d, width of the layers and dimension of the word embeddings.
        num_words: V.
        layers: how many; 0 leaves a normalised embedding as the head's input.
        tied: whether the head's decoder weight is the embedding.
    """

    def __init__(
        self, kind: FreeHead, dim: int, num_words: int, *, layers: int, tied: bool
    ) -> None:
        super().__init__()
        self.head: Head = kind.build(dim, num_words, context_dim=dim)
        self.trunk = nn.Sequential(*(Layer(dim) for _ in range(layers)), nn.RMSNorm(dim))
        self.embedding = self.head.decoder_weight
        if not tied:
            self.embedding = nn.Parameter(torch.empty(num_words, dim).uniform_(-0.1, 0.1))

    def hidden(self, symbols_B: Tensor) -> Tensor:
        """The head's input (1, B, D) after any number of repetitions of each symbol."""
        hidden: Tensor = self.trunk(F.embedding(symbols_B.unsqueeze(0), self.embedding))
        return hidden

    def nll(self, symbols_B: Tensor) -> Tensor:
        """Mean negative log-likelihood of a sequence's next symbol, nats."""
        return self.head.nll(self.hidden(symbols_B), symbols_B.unsqueeze(0))


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a `Repeater` is made and trained."""

    layers: int
    tied: bool
    steps: int
    batch: int
    lr: float
    device: str

    def __post_init__(self) -> None:
        require_count("layers", self.layers, 0)
        require_flag("tied", self.tied)
        require_count("steps", self.steps)
        require_count("batch", self.batch)
        require_positive("lr", self.lr)
        require_choice("device", self.device, ("cpu", "cuda"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("device=cuda needs a GPU, and there is none; device=cpu goes anywhere")

    def start(self, kind: FreeHead, dim: int, num_words: int, seed: int) -> CopyTrainer:
        """A new model before its first step."""
        torch.manual_seed(seed)
        model = Repeater(kind, dim, num_words, layers=self.layers, tied=self.tied)
        return CopyTrainer(model.to(self.device), self)


class CopyTrainer:
    """A model in training: Adam, whose learning rate warms up and falls along a half cosine."""

    def __init__(self, model: Repeater, training: Training) -> None:
        self.model, self._steps = model, training.steps
        self._optimizer = torch.optim.Adam(model.parameters(), lr=training.lr, fused=True)
        self._rate = torch.optim.lr_scheduler.LambdaLR(self._optimizer, self._factor)

    def _factor(self, step: int) -> float:
        falling = (1 + math.cos(math.pi * step / self._steps)) / 2
        return min(1.0, (step + 1) / (WARM_UP * self._steps)) * (
            FINAL_LR + (1 - FINAL_LR) * falling
        )

    def step(self, symbols_B: Tensor) -> None:
        """One step on sequences of these symbols."""
        self._optimizer.zero_grad()
        torch.autograd.backward(self.model.nll(symbols_B))
        self._optimizer.step()
        self._rate.step()


def learn(
    kind: FreeHead,
    dim: int,
    num_words: int,
    *,
    training: Training,
    asked: int,
    seed: int,
    after_step: Callable[[], object],
) -> Row:
    """Trains a model on SpamLang and asks it what follows.

    Args:
        asked: symbols that it is asked for: so many that training drew, and so many that it
            did not.
        seed: of the weights, and of the symbols, which are the same for every head and width.
        after_step: called after each step.

    Returns: see `scores`; with `visits`, how often training drew a symbol on average, the shares
        of the gradient's norm that pass the decoder before and after training, and `peak_mib`, the
        memory of the model and its first step.
    """
    draws = torch.Generator().manual_seed(seed)
    shape = (training.steps, training.batch)
    drawn = torch.randint(num_words, shape, generator=draws)
    seen = torch.zeros(num_words, dtype=torch.bool).index_fill_(0, drawn.flatten(), True)
    groups = {
        name: _some(which.nonzero().squeeze(1), asked, draws).to(training.device)
        for name, which in (("seen", seen), ("unseen", ~seen))
    }
    batches = drawn.to(training.device)
    probe = batches[0][:SHARE_CONTEXTS]
    share_start = gradient_share(training.start(kind, dim, num_words, seed).model, probe)
    with LiveBytes() as live:
        trainer = training.start(kind, dim, num_words, seed)
        trainer.step(batches[0])
    after_step()
    for symbols_B in batches[1:]:
        trainer.step(symbols_B)
        after_step()
    return {
        "visits": drawn.numel() / num_words,
        **scores(trainer.model, groups, float(seen.double().mean())),
        "share_start": share_start,
        "share_end": gradient_share(trainer.model, probe),
        "peak_mib": live.peak / MIB,
    }


def _some(symbols: Tensor, count: int, draws: torch.Generator) -> Tensor:
    return symbols[torch.randperm(len(symbols), generator=draws)[:count]]


@torch.no_grad()
def scores(model: Repeater, groups: dict[str, Tensor], seen_share: float) -> Row:
    """Accuracy and nll over all symbols, and the accuracy over those seen and those not.

    Args:
        groups: symbols that are asked for, by "seen" and "unseen"; a group may be empty.
        seen_share: the share of all symbols that training drew.

    Returns: accuracies (shares of symbols that the model predicts after themselves; None for an
        empty group), and the mean nll, nats.
    """
    right: dict[str, float | None] = {}
    accuracy = nll = 0.0
    for (name, symbols), share in zip(groups.items(), (seen_share, 1 - seen_share), strict=True):
        if not len(symbols):
            right[f"accuracy_{name}"] = None
            continue
        hits, losses = [], []
        for part in torch.split(symbols, _block(model.head)):
            hidden = model.hidden(part)
            hits.append(model.head.log_probs(hidden).argmax(1) == part)
            losses.append(model.head.token_nll(hidden, part.unsqueeze(0)).flatten())
        accuracy_of_group = float(torch.cat(hits).double().mean())
        right[f"accuracy_{name}"] = accuracy_of_group
        accuracy += share * accuracy_of_group
        nll += share * float(torch.cat(losses).double().mean())
    return {"accuracy": accuracy, **right, "nll": nll}


@torch.no_grad()
def gradient_share(model: Repeater, symbols_B: Tensor) -> float:
    """Share of the norm of the loss gradient at the logits that passes the decoder."""
    shares = GradientShares(orthonormal_basis(model.head.decoder_weight))
    for part in torch.split(symbols_B, _block(model.head)):
        gradient_NKV = logit_gradients(model.head, model.hidden(part), part.unsqueeze(0))
        shares.add(gradient_NKV.flatten(0, 1))
    return shares.result().total


def _block(head: Head) -> int:
    """Contexts that are looked at together."""
    return chunk_rows(head.mixture.num_components * len(head.decoder_bias), 4, BLOCK_MB)
