"""Time and memory of a training step of each head, at growing M, K and numbers of units or knots.

Ganea et al. 2019 say that a mixture of softmaxes is 2 to 6.4 times slower than softmax and needs
N x M x K numbers, as a monotone network of K units does, and that PLIF costs what softmax does.
Each head is measured by the whole of log P ("plain"), as their implementations compute it, and in
chunks. Time is that of the CPU, which does not depend on what else runs on the machine.

Shapes: N contexts, M = V words, E embedding, K components, units or knots.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import median
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.heads.head import Head
from lmkit.heads.transforms import MonotoneMLP
from lmkit.studies.drawing import legend_under, line_look, panels
from lmkit.studies.heads import MONOTONE_MLP, MOS, PLIF, SOFTMAX, FreeHead, HeadStudy, sized
from lmkit.studies.study import Claim, Row, Tables, require_counts, where
from lmkit.studies.work import Work

GANEA = "Ganea et al. 2019, slides"
LOSSES = ("chunked", "plain")
MIB = 2**20
SLOWER = (2.0, 6.4)  # MoS compared with softmax, as printed
SAME = 1.5  # "comparable": at most so many times as much
MEASURES = {"seconds": "CPU seconds per step", "peak_mib": "peak memory, MiB"}


@dataclass(kw_only=True)
class HeadCost(HeadStudy):
    """Time and peak memory of one loss with its gradients, over M and over K.

    `heads` are measured at each of `words`, where their K is `num_experts`, `knots` or `units`.
    """

    words: Sequence[int]  # M
    growing_heads: Sequence[FreeHead]  # kinds that are measured at each of `counts`
    counts: Sequence[int]  # K: components, units or knots, whichever they have
    counts_words: int  # M at which K grows
    num_contexts: int  # N
    emb_dim: int  # d
    chunk_mb: float  # memory of one chunk's logits, MiB
    plain_mb: float  # what the whole of log P may take, MiB; a head that needs more is left out
    repeats: int  # timed steps, of which the median counts

    head_options = ("heads", "growing_heads")

    def __post_init__(self) -> None:
        require_counts("words", self.words, 2)
        require_counts("counts", self.counts, 2)
        for option in ("counts_words", "num_contexts", "emb_dim", "repeats"):
            require_count(option, getattr(self, option))
        require_positive("chunk_mb", self.chunk_mb)
        require_positive("plain_mb", self.plain_mb)
        for head in self.growing_heads:
            if not head.sizes:
                raise UserError(
                    f"growing_heads: {head.option} has no components, units or knots that can grow"
                )
        super().__post_init__()
        self.growing_heads = sized(self.growing_heads, self.num_experts, self.knots, self.units)

    def run(self, seed: int, work: Work) -> Tables:
        """Measures every head over M, and those with a K of their own over K."""
        points: list[tuple[str, FreeHead, int, int | None]] = [
            *(("words", head, words, None) for words in self.words for head in self.heads),
            *(
                ("count", head.resized(dict.fromkeys(head.sizes, count)), self.counts_words, count)
                for count in self.counts
                for head in self.growing_heads
            ),
        ]
        work.plan(len(points) * len(LOSSES))
        rows = []
        for (axis, head, words, count), loss in itertools.product(points, LOSSES):
            size = f"M={words}" if count is None else f"K={count}"
            measured = work.do(
                f"{head.option}, {loss}, {size}", partial(self.measure, head, words, loss, seed)
            )
            names = {"axis": axis, "head": head.option, "loss": loss, "words": words}
            rows.append({**names, "count": count, **measured})
        return {"costs": rows}

    def measure(self, kind: FreeHead, words: int, loss: str, seed: int) -> Row:
        """Median CPU seconds and peak MiB of a step; None where the plain loss needs too much."""
        if loss == "plain" and self._plain_mib(kind, words) > self.plain_mb:
            return {"seconds": None, "peak_mib": None}
        torch.manual_seed(seed)
        head = kind.build(self.emb_dim, words, context_dim=self.emb_dim, chunk_mb=self.chunk_mb)
        hidden = torch.randn(1, self.num_contexts, self.emb_dim, requires_grad=True)
        targets = torch.randint(words, (1, self.num_contexts))
        with LiveBytes() as live:
            _step(head, hidden, targets, loss)
        seconds = []
        for _ in range(self.repeats):
            start = time.process_time()
            _step(head, hidden, targets, loss)
            seconds.append(time.process_time() - start)
        return {"seconds": median(seconds), "peak_mib": live.peak / MIB}

    def _plain_mib(self, kind: FreeHead, words: int) -> float:
        """Roughly what the plain loss keeps: some tensors (N, K, M), and a few for each unit."""
        kept = 6 + 3 * kind.sizes.get("units", 0)
        return 4 * self.num_contexts * words * kind.components * kept / MIB

    def claims(self, tables: Tables) -> list[Claim]:
        """Those of the cost claims that the measured heads decide."""
        rows = tables["costs"]
        growing = {head.option: head.name for head in self.growing_heads}
        claims: list[Claim] = []
        if {SOFTMAX, MOS} <= self.names.keys():
            claims.append(_mixture_slower(rows))
        if {SOFTMAX, PLIF} <= self.names.keys():
            claims.append(_plif_like_softmax(rows))
        if {MOS, MONOTONE_MLP, PLIF} <= growing.keys():
            claims.append(_hungry(rows, growing))
        if {MOS, MONOTONE_MLP} <= growing.keys():
            claims.append(self._chunks_help(rows, growing))
        return claims

    def _chunks_help(self, rows: Sequence[Row], names: dict[str, str]) -> Claim:
        parts, holds = [], True
        for head in (MOS, MONOTONE_MLP):
            grown = _measured(rows, axis="count", head=head, loss="chunked")
            most = max(grown, key=lambda r: r["count"])
            whole = 4 * self.num_contexts * self.counts_words * most["count"] / MIB
            holds &= most["peak_mib"] < whole / 2
            parts.append(
                f"{names[head]} with K = {most['count']:,}: {most['peak_mib']:.1f} MiB, where "
                f"N x M x K numbers are {whole:.0f} MiB, and {most['seconds']:.2f} CPU seconds a "
                f"step"
            )
        return Claim(
            "In chunks neither a mixture of softmaxes nor a monotone network needs memory for "
            "N x M x K numbers",
            "lmkit",
            holds,
            f"{'; '.join(parts)}.",
            "cost",
        )

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Time above memory; over M for all heads, over K for those that have one."""
        figure, grid = panels(2, 2)
        names = {head.option: head.name for head in [*self.heads, *self.growing_heads]}
        for row, (column, name) in zip(grid, MEASURES.items(), strict=True):
            for axes, x in zip(row, ("words", "count"), strict=True):
                _draw(axes, where(tables["costs"], axis=x), column, x, names)
            row[0].set(xlabel="words M", ylabel=name)
            row[1].set(xlabel="K: components, units or knots", ylabel=name)
        grid[0][0].set_title(f"K = {self.num_experts} components")
        grid[0][1].set_title(f"M = {self.counts_words:,}")
        for axes in grid[1]:
            legend_under(axes)
        figure.suptitle(
            f"loss and gradients of N = {self.num_contexts:,} contexts, d = {self.emb_dim}\n"
            f"solid: in chunks of {self.chunk_mb:g} MiB; dotted: by the whole of log P"
        )
        return {"cost": figure}


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, counts the bytes of all tensors that are made and not yet gone.

    `peak` is the most there were at a time, on any device. Tensors from before are not counted, nor
    is what an operation needs for itself only.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: set[int] = set()
        self._bytes = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor):
                self._count(x.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._alive:
            self._alive.add(storage._cdata)
            self._bytes += storage.nbytes()
            self.peak = max(self.peak, self._bytes)
            weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())

    def _free(self, address: int, size: int) -> None:
        self._alive.remove(address)
        self._bytes -= size


def _step(head: Head, hidden: Tensor, targets: Tensor, loss: str) -> None:
    head.zero_grad()
    hidden.grad = None
    if loss == "chunked":
        nll = head.nll(hidden, targets)
    else:
        log_probs_NM = _whole_log_probs(head, hidden)
        nll = -log_probs_NM.gather(1, targets.view(-1, 1)).mean()
    torch.autograd.backward(nll)


def _whole_log_probs(head: Head, hidden: Tensor) -> Tensor:
    """Log P (N, M) by torch's own operations, as the sources' programs have it."""
    log_prior_NK, context_NKE = head.contexts(hidden)
    values_NKM = head.logits(context_NKE)
    if isinstance(head.transform, MonotoneMLP):
        mlp, softplus = head.transform, torch.nn.functional.softplus
        units = torch.sigmoid(softplus(mlp.raw_u) * values_NKM.unsqueeze(-1) + mlp.unit_bias)
        values_NKM = (softplus(mlp.raw_v) * units).sum(-1) + mlp.bias
    else:
        values_NKM = head.transform(values_NKM)
    log_p_NKM = torch.log_softmax(values_NKM, dim=-1)
    return torch.logsumexp(log_prior_NK.unsqueeze(-1) + log_p_NKM, dim=1)


def _draw(axes: Axes, rows: Sequence[Row], column: str, x: str, names: dict[str, str]) -> None:
    for i, (head, name) in enumerate(names.items()):
        for loss, line in (("chunked", "-"), ("plain", ":")):
            if own := _measured(rows, head=head, loss=loss):
                label = name if loss == "chunked" else None
                y = [r[column] for r in own]
                axes.plot([r[x] for r in own], y, ls=line, label=label, **line_look(i))
    axes.set(xscale="log", yscale="log")


def _measured(rows: Sequence[Row], **values: object) -> list[Row]:
    return [r for r in where(rows, **values) if r["seconds"] is not None]


def _ratios(rows: Sequence[Row], head: str, loss: str, column: str) -> list[float]:
    """A head's cost over softmax's, at each M where both were measured, the smallest M first."""
    own, base = (
        {r["words"]: r[column] for r in _measured(rows, axis="words", head=each, loss=loss)}
        for each in (head, SOFTMAX)
    )
    return [own[words] / base[words] for words in sorted(own.keys() & base.keys())]


def _mixture_slower(rows: Sequence[Row]) -> Claim:
    plain, chunked = (_ratios(rows, MOS, loss, "seconds") for loss in ("plain", "chunked"))
    memory = _ratios(rows, MOS, "plain", "peak_mib")
    return Claim(
        f"A mixture of softmaxes is {SLOWER[0]:g} to {SLOWER[1]:g} times slower than softmax "
        f"(whole models on a GPU, as they measured)",
        GANEA,
        bool(plain) and SLOWER[0] <= plain[-1] <= SLOWER[1],
        f"The head alone, here: {_span(plain)} times slower by the whole of log P, with "
        f"{_span(memory)} times the memory; {_span(chunked)} times slower in chunks. In a whole "
        f"model the trunk's time is added to both.",
        "cost",
    )


def _plif_like_softmax(rows: Sequence[Row]) -> Claim:
    chunked, plain = ([_ratios(rows, PLIF, loss, column) for column in MEASURES] for loss in LOSSES)
    return Claim(
        "PLIF takes about the time and memory of softmax",
        GANEA,
        max(of_measure[-1] for of_measure in chunked) <= SAME,
        f"Times softmax's, over M: {_span(chunked[0])} in time and {_span(chunked[1])} in memory "
        f"in chunks; {_span(plain[0])} and {_span(plain[1])} by the whole of log P. Comparable is "
        f"taken as at most {SAME:g} at the largest M.",
        "cost",
    )


def _hungry(rows: Sequence[Row], names: dict[str, str]) -> Claim:
    heads = (MOS, MONOTONE_MLP, PLIF)
    growth = {
        head: _growth(_measured(rows, axis="count", head=head, loss="plain")) for head in heads
    }
    return Claim(
        "A mixture of softmaxes and a monotone network need memory for N x M x K numbers, PLIF "
        "does not",
        GANEA,
        growth[MOS] > 0.5 and growth[MONOTONE_MLP] > 0.5 and growth[PLIF] < 0.1,
        "By the whole of log P, memory grows with K to the power "
        + ", ".join(f"{power:.2f} ({names[head]})" for head, power in growth.items())
        + ", from the smallest K measured to the largest (1 is proportional).",
        "cost",
    )


def _growth(own: Sequence[Row]) -> float:
    """Exponent p of memory ~ K^p between the smallest and the largest K, 0 with one alone."""
    own = sorted(own, key=lambda r: r["count"])
    if len(own) < 2:
        return 0.0
    first, last = own[0], own[-1]
    return log(last["peak_mib"] / first["peak_mib"]) / log(last["count"] / first["count"])


def _span(values: Sequence[float]) -> str:
    if not values:
        return "(not measured)"
    low, high = min(values), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
