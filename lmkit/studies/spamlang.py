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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.errors.user_error import require_count, require_list, require_rate
from lmkit.presentation.quantities import duration
from lmkit.studies.drawing import GRAY, line_look, log_x, panels, shared_legend
from lmkit.studies.heads import SOFTMAX, FreeHead, sized
from lmkit.studies.repetition import Training, learn
from lmkit.studies.study import Claim, Row, SyntheticStudy, Tables
from lmkit.studies.work import Work

GODEY = "Godey and Artzi 2026"
FAILS_ABOVE = 100_000  # words
LOST = (0.95, 0.99)  # of the gradient's norm, as reported of trained language models
TIMED_WORDS = 8192  # at most, of the steps that tell how long the study takes
TIMED_STEPS = 2

Point = tuple[str, int, int]  # head, words, dim


@dataclass(kw_only=True)
class SpamLang(SyntheticStudy):
    """Trains every head at every V and d on sequences of one symbol."""

    heads: Sequence[FreeHead]  # kinds that are trained
    words: Sequence[int]  # V
    dims: Sequence[int]  # d, of the trunk and of word embeddings
    layers: int  # of the trunk
    tied: bool  # whether the decoder's weight is the embedding
    steps: int  # of Adam
    batch: int  # sequences a step
    lr: float  # largest learning rate
    asked: int  # symbols of each group that a trained model is asked for
    learned: float  # accuracy from which the language counts as learned
    num_experts: int  # K of mixtures
    knots: int  # of PLIF
    units: int  # of the monotone network
    device: str  # cpu or cuda

    head_options = ("heads",)

    def __post_init__(self) -> None:
        for option, values in (("words", self.words), ("dims", self.dims)):
            require_list(option, values)
            for value in values:
                require_count(option, value, 2)
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
        self.heads = sized(self.heads, self.num_experts, self.knots, self.units)

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
        heads = {head.option: head.name for head in self.heads}
        claims = []
        if SOFTMAX in heads:
            softmax = [row for row in rows if row["head"] == SOFTMAX]
            if self.words[-1] > FAILS_ABOVE:
                claims.append(_fails(softmax))
            claims.append(self._worse(softmax))
        claims.append(self._lost(rows))
        others = {option: name for option, name in heads.items() if option != SOFTMAX}
        if SOFTMAX in heads and others:
            claims.append(self._others(rows, heads))
        return claims

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Accuracy over V at each width, and the gradient's norm that is lost."""
        rows = tables["scores"]
        accuracy, axes = panels(1, len(self.dims), share_y=True)
        for one, dim in zip(axes[0], self.dims, strict=True):
            self._lines(one, [r for r in rows if r["dim"] == dim], "accuracy")
            one.axhline(self.learned, color=GRAY, lw=1, ls=":", label="learned")
            one.set(title=f"d = {dim:,}", ylim=(-0.03, 1.03))
        axes[0][0].set_ylabel("accuracy")
        shared_legend(accuracy, axes.flat)
        lost, axes = panels(1, len(self.dims), share_y=True)
        for one, dim in zip(axes[0], self.dims, strict=True):
            own = [{**r, "lost": 1 - r["share_end"]} for r in rows if r["dim"] == dim]
            self._lines(one, own, "lost")
            random = [1 - min(1.0, dim / words) ** 0.5 for words in self.words]
            one.plot(self.words, random, color=GRAY, lw=1, ls="--", label="random direction")
            one.set(title=f"d = {dim:,}", ylim=(-0.03, 1.03))
        axes[0][0].set_ylabel("norm lost at the decoder")
        shared_legend(lost, axes.flat)
        return {"accuracy": accuracy, "lost": lost}

    def _lines(self, axes: Axes, rows: Sequence[Row], column: str) -> None:
        for i, head in enumerate(self.heads):
            own = [row for row in rows if row["head"] == head.option]
            axes.plot(
                [r["words"] for r in own], [r[column] for r in own], label=head.name, **line_look(i)
            )
        axes.set_xlabel("vocabulary V")
        log_x(axes, self.words)

    def _worse(self, rows: Sequence[Row]) -> Claim:
        parts, holds = [], True
        for dim in self.dims:
            own = [row for row in rows if row["dim"] == dim]
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
        largest = [row for row in rows if row["words"] == self.words[-1]]
        lost = [1 - row[column] for row in largest for column in ("share_start", "share_end")]
        by_words = {
            words: [1 - row["share_end"] for row in rows if row["words"] == words]
            for words in self.words
        }
        return Claim(
            f"The decoder lets {LOST[0]:.0%} to {LOST[1]:.0%} of the gradient's norm get lost "
            "(trained language models, as reported)",
            GODEY,
            min(lost) >= LOST[0],
            f"Lost after training, over heads and widths: "
            f"{'; '.join(f'V = {words:,}: {_range(of)}' for words, of in by_words.items())}. "
            f"At the largest V, before training too: {_range(lost)}.",
            "lost",
        )

    def _others(self, rows: Sequence[Row], heads: Mapping[str, str]) -> Claim:
        learned = {(row["head"], row["words"], row["dim"]) for row in rows if row["learned"]}
        better = [
            heads[head]
            for head in heads
            if any((SOFTMAX, words, dim) not in learned for h, words, dim in learned if h == head)
        ]
        parts = []
        for option, name in heads.items():
            largest = {
                dim: max((v for h, v, d in learned if (h, d) == (option, dim)), default=None)
                for dim in self.dims
            }
            at = ", ".join(
                f"{v:,} at d = {d}" if v else f"none at d = {d}" for d, v in largest.items()
            )
            parts.append(f"{name}: {at}")
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
