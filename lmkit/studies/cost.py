"""Time and memory of a training step of each head, at growing M, K and numbers of units or knots.

Ganea et al. 2019 say that a mixture of softmaxes is 2 to 6.4 times slower than softmax and needs
N x M x K numbers, as a monotone network of K units does, and that PLIF costs what softmax does.
Each head is measured as those implementations are, by the whole of log P ("plain"), and in chunks.
Time is that of the CPU, which does not depend on what else runs on the machine.

Shapes: N contexts, M = V words, E embedding, K components, units or knots.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from statistics import median

import torch

from lmkit.errors.user_error import require_count, require_list, require_positive
from lmkit.heads.head import Head
from lmkit.studies.cost_report import claims, figures
from lmkit.studies.heads import HeadSizes, build, require_heads, split
from lmkit.studies.live_bytes import LiveBytes
from lmkit.studies.record import Findings, Table
from lmkit.studies.work import Work

SECTION = "cost"
LOSSES = ("chunked", "plain")
MIB = 2**20
# what grows with K: components of a mixture, units of the monotone network, knots of PLIF
GROWING = {"softmaxes+identity": "experts", "none+monotone_mlp": "units", "none+plif": "knots"}


@dataclass(frozen=True)
class Options:
    """See conf/synthetic.yaml."""

    heads: tuple[str, ...] | str
    words: list[int]
    counts: list[int]
    counts_words: int
    num_contexts: int
    emb_dim: int
    num_experts: int
    knots: int
    units: int
    chunk_mb: float
    plain_mb: float
    repeats: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", require_heads(f"{SECTION}.heads", self.heads))
        for option in ("words", "counts"):
            require_list(f"{SECTION}.{option}", getattr(self, option))
            for value in getattr(self, option):
                require_count(f"{SECTION}.{option}", value, 2)
        for option in ("counts_words", "num_contexts", "emb_dim", "repeats"):
            require_count(f"{SECTION}.{option}", getattr(self, option))
        for option in ("chunk_mb", "plain_mb"):
            require_positive(f"{SECTION}.{option}", getattr(self, option))
        self.sizes.check(SECTION)

    @property
    def sizes(self) -> HeadSizes:
        return HeadSizes(self.num_experts, self.knots, self.units)


def run(options: Options, seed: int, work: Work) -> Findings:
    """Measures every head over M, and those with a K of their own over K."""
    over_words = list(itertools.product(options.words, options.heads, LOSSES))
    over_counts = list(itertools.product(options.counts, GROWING, LOSSES))
    work.plan(len(over_words) + len(over_counts))
    records = []
    for words, head, loss in over_words:
        measured = work.do(
            f"{head}, {loss}, M={words}",
            lambda h=head, w=words, s=loss: _measure(options, h, w, options.sizes, s, seed),
        )
        names = {"axis": "words", "head": head, "loss": loss, "words": words, "count": None}
        records.append(names | measured)
    for count, head, loss in over_counts:
        sizes = _with_count(options, head, count)
        measured = work.do(
            f"{head}, {loss}, K={count}",
            lambda h=head, z=sizes, s=loss: _measure(options, h, options.counts_words, z, s, seed),
        )
        names = {"axis": "count", "head": head, "loss": loss, "words": options.counts_words}
        records.append(names | {"count": count} | measured)
    return Findings(
        {"costs": Table.of(records)}, claims(records, options), figures(records, options)
    )


def _with_count(options: Options, head: str, count: int) -> HeadSizes:
    experts, knots, units = options.num_experts, options.knots, options.units
    kind = GROWING[head]
    return HeadSizes(
        count if kind == "experts" else experts,
        count if kind == "knots" else knots,
        count if kind == "units" else units,
    )


def _measure(
    options: Options, head: str, words: int, sizes: HeadSizes, loss: str, seed: int
) -> dict[str, float | None]:
    """Median CPU seconds and peak MiB of a loss with its gradients; None where it needs much."""
    if loss == "plain" and plain_mib(options, head, words, sizes) > options.plain_mb:
        return {"seconds": None, "peak_mib": None}
    torch.manual_seed(seed)
    made = build(head, options.emb_dim, words, sizes, options.emb_dim, options.chunk_mb)
    made.loss = loss
    hidden = torch.randn(1, options.num_contexts, made.mixture.in_dim, requires_grad=True)
    targets = torch.randint(words, (1, options.num_contexts))
    with LiveBytes() as live:
        _step(made, hidden, targets)
    seconds = []
    for _ in range(options.repeats):
        start = time.process_time()
        _step(made, hidden, targets)
        seconds.append(time.process_time() - start)
    return {"seconds": median(seconds), "peak_mib": live.peak / MIB}


def plain_mib(options: Options, head: str, words: int, sizes: HeadSizes) -> float:
    """About what the plain loss keeps, MiB: some tensors (N, K, M), and a few for each unit."""
    mixture, transform = split(head)
    components = sizes.num_experts if mixture == "softmaxes" else 1
    kept = 6 + (3 * sizes.units if transform == "monotone_mlp" else 0)
    return 4 * options.num_contexts * words * components * kept / MIB


def _step(head: Head, hidden: torch.Tensor, targets: torch.Tensor) -> None:
    head.zero_grad()
    hidden.grad = None
    head.nll(hidden, targets).backward()
