"""Which heads learn that a symbol repeats, over the vocabulary's size and the width: SpamLang.

Godey and Artzi 2026, "Lost in Backpropagation: The LM Head is a Gradient Bottleneck" (arXiv
2603.10145): each sequence repeats one symbol. A few weights are enough for the rule, but the
gradient that would teach it must pass from V logits to d numbers, and models of about 100M
parameters are reported to fail at vocabularies above 100,000. The models here are small
(`lmkit.studies.repetition` says what is the paper's); every size is trained with as many sequences.

Where the embedding is the decoder's weight (`tied`), the rule is one for all symbols, also for
those that training never drew. Without that, a symbol has to be seen to be learned. So symbols are
asked for in two groups, those drawn and those not, and what is not learned because it was not seen
can be told from what was seen and not learned.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.errors.user_error import require_count, require_rate
from lmkit.presentation.quantities import duration
from lmkit.studies.drawing import GRAY, line_look, log_x, panels, shared_legend
from lmkit.studies.heads import SOFTMAX, FreeHead, HeadStudy
from lmkit.studies.repetition import Training, learn
from lmkit.studies.study import Claim, Row, Tables, require_counts, where
from lmkit.studies.work import Work

GODEY = "Godey and Artzi 2026"
FAILS_ABOVE = 100_000  # words
LOST = (0.95, 0.99)  # of the gradient's norm, as reported of trained language models
TIMED_WORDS = 8192  # at most, of the steps that tell how long the study takes
TIMED_STEPS = 2

Point = tuple[str, int, int]  # head, words, dim


@dataclass(kw_only=True)
class SpamLang(HeadStudy):
    """Trains every head at every V and d on sequences of one symbol."""

    words: Sequence[int]  # V
    dims: Sequence[int]  # d, of the trunk and of word embeddings
    layers: int  # of the trunk
    tied: bool  # whether the decoder's weight is the embedding
    steps: int  # of Adam
    batch: int  # sequences a step
    lr: float  # largest learning rate
    asked: int  # symbols of each group that a trained model is asked for
    learned: float  # accuracy from which the language counts as learned
    device: str  # cpu or cuda

    def __post_init__(self) -> None:
        require_counts("words", self.words, 2)
        require_counts("dims", self.dims, 2)
        require_count("asked", self.asked)
        require_rate("learned", self.learned)
        self.training = Training(
            layers=self.layers,
            tied=self.tied,
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            device=self.device,
        )
        self.words, self.dims = sorted(self.words), sorted(self.dims)
        super().__post_init__()

    def run(self, seed: int, work: Work) -> Tables:
        """Trains head after head, the small vocabularies first."""
        pieces = {
            f"{head.option} V={words} d={dim}": (words, dim, head)
            for words, dim, head in itertools.product(self.words, self.dims, self.heads)
        }
        open_pieces = {name: piece for name, piece in pieces.items() if not work.has(name)}
        seconds = self._seconds_a_step(list(open_pieces.values()), seed)
        total = self.steps * sum(seconds.values())
        work.plan(total)
        if open_pieces:
            work.say(f"{len(open_pieces)} trainings, about {duration(total)}")
        rows = []
        for name, (words, dim, head) in pieces.items():
            step = seconds.get((head.option, words, dim), 0.0)
            piece = work.do(
                name,
                partial(
                    learn,
                    head,
                    dim,
                    words,
                    training=self.training,
                    asked=self.asked,
                    seed=seed,
                    after_step=partial(work.advance, step),
                ),
                size=step * self.steps,
            )
            names = {"head": head.option, "words": words, "dim": dim}
            rows.append({**names, **piece, "learned": piece["accuracy"] >= self.learned})
        return {"scores": rows}

    def _seconds_a_step(
        self, pieces: Sequence[tuple[int, int, FreeHead]], seed: int
    ) -> dict[Point, float]:
        """Roughly, of each piece: the time of a step grows with V from what two small V take."""
        low, high = self.words[0], max(min(self.words[-1], TIMED_WORDS), self.words[0] + 1)
        timed = {
            (head.option, dim): [self._timed(head, dim, words, seed) for words in (low, high)]
            for _, dim, head in pieces
        }
        return {
            (head.option, words, dim): max(
                at_low + (at_high - at_low) * (words - low) / (high - low), at_low
            )
            for words, dim, head in pieces
            for at_low, at_high in [timed[head.option, dim]]
        }

    def _timed(self, head: FreeHead, dim: int, words: int, seed: int) -> float:
        trainer = self.training.start(head, dim, words, seed)
        symbols = torch.randint(words, (self.batch,), device=self.device)
        trainer.step(symbols)
        start = time.monotonic()
        for _ in range(TIMED_STEPS):
            trainer.step(symbols)
        return (time.monotonic() - start) / TIMED_STEPS

    def claims(self, tables: Tables) -> list[Claim]:
        """What the trained heads say of the paper's claims."""
        rows = tables["scores"]
        claims = []
        if SOFTMAX in self.names:
            softmax = where(rows, head=SOFTMAX)
            if self.words[-1] > FAILS_ABOVE:
                claims.append(_fails(softmax))
            claims.append(self._worse(softmax))
        claims.append(self._lost(rows))
        if SOFTMAX in self.names and len(self.names) > 1:
            claims.append(self._others(rows))
        return claims

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Accuracy over V at each width, and the gradient's norm that is lost."""
        rows = [{**row, "lost": 1 - row["share_end"]} for row in tables["scores"]]
        figures = {}
        for column, name in (("accuracy", "accuracy"), ("lost", "norm lost at the decoder")):
            figures[column], grid = panels(1, len(self.dims), share_y=True)
            for axes, dim in zip(grid[0], self.dims, strict=True):
                for i, (head, label) in enumerate(self.names.items()):
                    own = where(rows, dim=dim, head=head)
                    x, y = ([r[of] for r in own] for of in ("words", column))
                    axes.plot(x, y, label=label, **line_look(i))
                axes.set_xlabel("vocabulary V")
                log_x(axes, self.words)
                self._limit(axes, column, dim)
                axes.set(title=f"d = {dim:,}", ylim=(-0.03, 1.03))
            grid[0][0].set_ylabel(name)
            shared_legend(figures[column], grid.flat)
        return figures

    def _limit(self, axes: Axes, column: str, dim: int) -> None:
        if column == "accuracy":
            axes.axhline(self.learned, color=GRAY, lw=1, ls=":", label="learned")
        else:
            random = [1 - min(1.0, dim / words) ** 0.5 for words in self.words]
            axes.plot(self.words, random, color=GRAY, lw=1, ls="--", label="random direction")

    def _worse(self, rows: Sequence[Row]) -> Claim:
        parts, holds = [], True
        for dim in self.dims:
            own = where(rows, dim=dim)
            holds &= own[-1]["accuracy"] < own[0]["accuracy"]
            parts.append(f"d = {dim}: {_accuracies(own)}")
        return Claim(
            "The larger the vocabulary, the less a softmax learns of SpamLang by equal training",
            GODEY,
            holds,
            f"Accuracy of softmax over V, {self._trained()}. {'; '.join(parts)}.",
            "accuracy",
        )

    def _trained(self) -> str:
        kind = "tied" if self.tied else "untied"
        return f"{self.steps:,} steps of {self.batch:,} sequences, {kind}"

    def _lost(self, rows: Sequence[Row]) -> Claim:
        largest = where(rows, words=self.words[-1])
        lost = [1 - row[column] for row in largest for column in ("share_start", "share_end")]
        ranges = {
            words: _range([1 - row["share_end"] for row in where(rows, words=words)])
            for words in self.words
        }
        return Claim(
            f"The decoder lets {LOST[0]:.0%} to {LOST[1]:.0%} of the gradient's norm get lost "
            "(trained language models, as reported)",
            GODEY,
            min(lost) >= LOST[0],
            f"Lost after training, over heads and widths: "
            f"{'; '.join(f'V = {words:,}: {of}' for words, of in ranges.items())}. "
            f"At the largest V, before training too: {_range(lost)}.",
            "lost",
        )

    def _others(self, rows: Sequence[Row]) -> Claim:
        learned = {
            head: {(row["dim"], row["words"]) for row in where(rows, head=head, learned=True)}
            for head in self.names
        }
        better = [name for head, name in self.names.items() if learned[head] - learned[SOFTMAX]]
        parts = []
        for head, name in self.names.items():
            largest = {
                dim: max((words for d, words in learned[head] if d == dim), default=None)
                for dim in self.dims
            }
            at = (f"{v:,} at d = {d}" if v else f"none at d = {d}" for d, v in largest.items())
            parts.append(f"{name}: {', '.join(at)}")
        return Claim(
            "Another mixture or transform learns SpamLang where a softmax of its width does not",
            "lmkit",
            bool(better),
            f"Learned is an accuracy of {self.learned:g}. Largest V learned. {'; '.join(parts)}. "
            f"Where softmax does not: {', '.join(better) or 'none'}.",
            "accuracy",
        )


def _fails(softmax: Sequence[Row]) -> Claim:
    large = [row for row in softmax if row["words"] > FAILS_ABOVE]
    parts = [
        f"V = {row['words']:,}, d = {row['dim']}: {row['accuracy']:.3f} "
        f"({_accuracy_cell(row['accuracy_seen'])} of symbols drawn, "
        f"{_accuracy_cell(row['accuracy_unseen'])} of others; {row['visits']:.2g} visits a symbol)"
        for row in large
    ]
    return Claim(
        f"With a vocabulary of more than {FAILS_ABOVE:,} a softmax does not learn SpamLang (models "
        "of about 100M parameters, as reported)",
        GODEY,
        not any(row["learned"] for row in large),
        f"Accuracy of softmax. {'; '.join(parts)}.",
        "accuracy",
    )


def _accuracies(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['accuracy']:.3f} at {row['words']:,}" for row in rows)


def _accuracy_cell(accuracy: float | None) -> str:
    return "none" if accuracy is None else f"{accuracy:.3f}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1%}", f"{max(values):.1%}"
    return low if low == high else f"{low} to {high}"
