"""GSS as a smooth line of two pieces: PL~(x; c, k) against PL(x; c, k).

Parthiban et al. 2021, figure 1 and equations 1 to 5. PL(x; c, k) is x above c and k(x - c) + c
below. PL~ is what the transform of the head `gss` computes, in float64.

Shapes: X points on the axis of the logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_list, require_number, require_positive
from lmkit.heads.transforms import GeneralizedSigSoftmax, SigSoftmax
from lmkit.presentation.style import SERIES
from lmkit.studies.drawing import panels, shared_legend
from lmkit.studies.study import Claim, Row, SyntheticStudy, Tables, where
from lmkit.studies.work import Work

PAPER = "Parthiban et al. 2021"
FAR = 40.0  # from the knee: what is left of the smooth corner is rounding there
EXACT = 1e-12


def pieces(x_X: Tensor, c: float, k: float) -> Tensor:
    """PL(x; c, k), of equation 2."""
    return torch.where(x_X > c, x_X, k * (x_X - c) + c)


@dataclass(kw_only=True)
class GssPieces(SyntheticStudy):
    """How near PL~ is to PL, and which heads are members of the family."""

    c: Sequence[float]  # knees, a panel each
    k: Sequence[float]  # slopes below the knee, a line each
    reach: float  # x goes from -reach to reach
    points: int  # X

    def __post_init__(self) -> None:
        require_list("c", self.c)
        require_list("k", self.k)
        for c in self.c:
            require_number("c", c)
        for k in self.k:
            require_positive("k", k)
        require_positive("reach", self.reach)
        require_count("points", self.points, 2)

    def run(self, seed: int, work: Work) -> Tables:
        """One curve after the other; nothing is drawn at random."""
        pairs = [(c, k) for c in self.c for k in self.k]
        work.plan(len(pairs) + 1)
        drawn = [work.do(f"c={c:g} k={k:g}", partial(self._curve, c, k)) for c, k in pairs]
        return {
            "curves": [point for piece in drawn for point in piece["curve"]],
            "gaps": [piece["gap"] for piece in drawn],
            "members": [work.do("members", self._members)],
        }

    def _curve(self, c: float, k: float) -> Row:
        smooth = GeneralizedSigSoftmax(c, k)
        x_X = torch.linspace(-self.reach, self.reach, self.points, dtype=torch.float64)
        far = torch.tensor([c - FAR, c + FAR], dtype=torch.float64)
        knee = torch.tensor([c], dtype=torch.float64)
        values = zip(x_X.tolist(), pieces(x_X, c, k).tolist(), smooth(x_X).tolist(), strict=True)
        points = {"largest": x_X, "at_knee": knee, "far": far}
        gaps = {
            name: float((smooth(x) - pieces(x, c, k)).abs().max()) for name, x in points.items()
        }
        return {
            "curve": [{"c": c, "k": k, "x": x, "pieces": y, "smooth": z} for x, y, z in values],
            "gap": {"c": c, "k": k, **gaps},
        }

    def _members(self) -> Row:
        """The largest difference of softmax and SS, each by its own formula, from GSS."""
        x_X = torch.linspace(-self.reach, self.reach, self.points, dtype=torch.float64)
        ss = x_X.exp() * x_X.sigmoid()
        of_softmax = GeneralizedSigSoftmax(0.0, 1.0)(x_X).softmax(0) - x_X.softmax(0)
        of_ss = SigSoftmax()(x_X).softmax(0) - ss / ss.sum()
        dual = F.softmax(2 * x_X - F.softplus(x_X), 0) - ss / ss.sum()
        return {
            "softmax": float(of_softmax.abs().max()),
            "ss": float(torch.maximum(of_ss.abs(), dual.abs()).max()),
        }

    def claims(self, tables: Tables) -> list[Claim]:
        """Of equations 2 to 5."""
        gaps, (members,) = tables["gaps"], tables["members"]
        far = max(row["far"] for row in gaps)
        knee = max(abs(row["at_knee"] - abs(row["k"] - 1) * math.log(2)) for row in gaps)
        largest = max(row["largest"] - row["at_knee"] for row in gaps)
        widest = max(gaps, key=lambda row: row["at_knee"])
        return [
            Claim(
                "PL~ goes to x above the knee c, and to k(x - c) + c below",
                f"{PAPER}, section on GSS",
                far < EXACT,
                f"At a distance of {FAR:g} from c, on either side, they differ by {far:.0e}.",
                "gss_pieces",
            ),
            Claim(
                "PL~ is farthest from PL at the knee, by |k - 1| ln 2",
                f"{PAPER}, equations 2 and 3",
                knee < EXACT and largest < EXACT,
                f"It is {widest['at_knee']:.3f} where k is {widest['k']:g}, and no point of the "
                f"curves is farther away than their knee.",
                "gss_pieces",
            ),
            Claim(
                "softmax is GSS with k = 1, and SS is GSS with c = 0, k = 2",
                f"{PAPER}, equations 1, 4 and 5",
                max(members.values()) < EXACT,
                f"Their probabilities of the same logits differ by {max(members.values()):.0e} at "
                f"most.",
                "gss_pieces",
            ),
        ]

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """A panel for each knee: PL broken, PL~ whole."""
        figure, grid = panels(1, len(self.c), share_y=True)
        for axes, c in zip(grid[0], self.c, strict=True):
            for i, k in enumerate(self.k):
                own = where(tables["curves"], c=c, k=k)
                x, color = [row["x"] for row in own], SERIES[i % len(SERIES)]
                axes.plot(x, [row["smooth"] for row in own], color=color, label=f"k = {k:g}")
                axes.plot(x, [row["pieces"] for row in own], color=color, ls="--", lw=1)
            axes.set_title(f"c = {c:g}")
            axes.set_xlabel("logit x")
        grid[0][0].set_ylabel("PL~ (whole line), PL (broken)")
        shared_legend(figure, grid[0])
        return {"gss_pieces": figure}
