"""What bench_step.py measures: sizes, heads, and one training step of each implementation.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from plain_model import PlainModel, train_step
from torch import Tensor, nn

from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import GeneralizedSigSoftmax, Identity, PiecewiseLinear, SigSoftmax
from lmkit.training.callbacks.cuda_graphs import RecordedStep, cuda_recorder
from lmkit.training.objective import RegularizedNLL
from lmkit.training.optimizer import make_optimizer
from lmkit.trunk.awd_lstm import AWDLSTM

AR, TAR, CLIP, LR, DECAY = 2.0, 1.0, 0.25, 20.0, 1.2e-6
KINDS = {"softmax": "identity", "ss": "sigsoftmax", "gss": "gss", "lms_plif": "plif"}
WITHOUT_PLAIN = ("mixtape",)  # heads that have no plain counterpart
HEADS = (*KINDS, "mos", *WITHOUT_PLAIN)


class Case(NamedTuple):
    """Sizes and dropouts of one model; `num_experts` 0 means no mixture."""

    num_words: int
    emb_dim: int
    hidden_dim: int
    out_dim: int
    window: int
    batch: int
    num_experts: int
    knots: int
    input_dropout: float
    hidden_dropout: float
    gate_dim: int = 0  # of Mixtape, as are the words with gates of their own
    own_words: int = 0

    @property
    def tokens(self) -> int:
        return self.window * self.batch

    @property
    def layer_dims(self) -> list[tuple[int, int]]:
        dims = [self.emb_dim, self.hidden_dim, self.hidden_dim, self.out_dim]
        return list(pairwise(dims))

    @property
    def step_flop(self) -> int:
        """Of the matrix products: one forward and two backward, two operations an entry."""
        weights = sum(4 * out * (given + out) for given, out in self.layer_dims)
        if self.gate_dim:
            gates = self.num_experts - 1
            weights += self.out_dim * (self.num_experts * self.emb_dim + gates * self.gate_dim)
            weights += self.out_dim * gates + gates * self.gate_dim * (self.own_words + 1)
            weights += (self.num_words + self.num_experts * self.own_words) * self.emb_dim
            return 3 * 2 * self.tokens * weights
        weights += self.num_experts * self.out_dim * (1 + self.emb_dim)
        weights += max(1, self.num_experts) * self.emb_dim * self.num_words
        return 3 * 2 * self.tokens * weights


def case_of(size: str, head: str) -> Case:
    """`penn`: as published. `small`: a laptop's. `tiny`: for the harness's own test."""
    if head == "mixtape":
        case = case_of(size, "mos")
        own_words, gate_dim = case.num_words // 10, 100 if size == "penn" else 20
        return case._replace(num_experts=4, gate_dim=gate_dim, own_words=own_words)
    mos = head == "mos"
    if size == "penn" and mos:
        return Case(10_000, 280, 960, 620, 70, 12, 15, 0, 0.4, 0.225)
    if size == "penn":
        return Case(10_000, 400, 1150, 400, 70, 20, 0, 100_000, 0.4, 0.3)
    if size == "small":
        return Case(10_000, 100, 200, 100, 70, 20, 5 * mos, 10_000, 0.2, 0.1)
    return Case(50, 8, 12, 8, 5, 3, 3 * mos, 20, 0.2, 0.1)


def windows(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets (T, B) with the frequencies of Zipf's law."""
    weights = 1 / torch.arange(1.0, case.num_words + 1)
    words = torch.multinomial(weights, case.tokens + case.batch, replacement=True)
    words = words.view(case.window + 1, case.batch).to(device)
    return words[:-1].contiguous(), words[1:].contiguous()


def plain_model(case: Case, head: str) -> PlainModel:
    return PlainModel(
        case.num_words,
        case.emb_dim,
        case.hidden_dim,
        case.out_dim,
        3,
        0.1,
        case.input_dropout,
        case.hidden_dropout,
        0.4,
        0.5,
        KINDS.get(head, "identity"),
        case.num_experts,
        0.29,
        case.knots,
    )


def plain_step(case: Case, head: str, device: str, precision: str) -> Callable[[], None]:
    """A step of the plain implementation; it takes float32 alone."""
    assert precision == "32-true"
    model = plain_model(case, head).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, weight_decay=DECAY)
    words_TB, targets_TB = windows(case, device)
    state = model.initial_state(case.batch)

    def step() -> None:
        nonlocal state
        state = train_step(model, optimizer, words_TB, targets_TB, state, AR, TAR, CLIP)

    return step


class _Model(nn.Module):
    def __init__(self, case: Case, head: str) -> None:
        super().__init__()
        self.trunk = AWDLSTM(
            num_words=case.num_words,
            emb_dim=case.emb_dim,
            hidden_dim=case.hidden_dim,
            out_dim=case.out_dim,
            num_layers=3,
            embed_dropout=0.1,
            input_dropout=case.input_dropout,
            hidden_dropout=case.hidden_dropout,
            output_dropout=0.4,
            weight_dropout=0.5,
        )
        transforms = {
            "ss": SigSoftmax,
            "gss": lambda: GeneralizedSigSoftmax(c=-1.5, k=2.5),
            "lms_plif": lambda: PiecewiseLinear(case.knots, 20.0, frozen=False),
        }
        parts = HeadParts(
            mixture=SingleContext(case.out_dim),
            transform=transforms.get(head, Identity)(),
            word_counts_V=torch.zeros(case.num_words),
            embedding_weight=self.trunk.embedding_weight,
        )
        self.head = _head(case, parts)


def _head(case: Case, parts: HeadParts) -> Head:
    sizes = {"in_dim": case.out_dim, "emb_dim": case.emb_dim, "num_experts": case.num_experts}
    sizes["latent_dropout"] = 0.29
    if case.gate_dim:
        own_share = case.own_words / case.num_words
        return Mixtape(parts, **sizes, gate_dim=case.gate_dim, own_share=own_share)
    if case.num_experts:
        parts = replace(parts, mixture=MixtureOfSoftmaxes(**sizes))
    return Head(parts)


def lmkit_step(
    case: Case, head: str, device: str, precision: str, graphs: bool = False
) -> Callable[[], None]:
    """A step of lmkit: what its LightningModule does in a window, without Lightning.

    With `graphs`, forward and backward as a CUDA graph (`callbacks=[default,cuda_graphs]`).
    """
    model = _Model(case, head).to(device)
    objective = RegularizedNLL(AR, TAR)
    sgd = partial(torch.optim.SGD, lr=LR, weight_decay=DECAY, fused=True)
    optimizer = make_optimizer(sgd, model.head, model.named_parameters(), LR)
    words_TB, targets_TB = windows(case, device)
    state = [x for layer in model.trunk.initial_state(case.batch) for x in layer]

    def work(words_TB: Tensor, targets_TB: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output = model.trunk(words_TB, list(zip(state[::2], state[1::2], strict=True)))
        nll = model.head.nll(output.dropped_TBD, targets_TB)
        loss = objective(nll, output.dropped_TBD, output.raw_TBD)
        return loss, *(x.detach() for layer in output.state for x in layer)

    if graphs:
        work = RecordedStep(work, list(model.parameters()), cuda_recorder())

    def step() -> None:
        nonlocal state
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss, *state = work(words_TB, targets_TB, *state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return step


STEPS = {"plain": plain_step, "lmkit": lmkit_step, "graphs": partial(lmkit_step, graphs=True)}
