"""GSS as a smooth line of two pieces (Parthiban et al. 2021, figure 1).

PL(x) = x above the knee c, k (x - c) + c below; GSS smooths it, by |k - 1| ln 2 at the knee.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from lmkit.errors.user_error import require_count, require_number, require_positive
from lmkit.heads.transforms import GeneralizedSigSoftmax
from lmkit.presentation.figures import SERIES
from lmkit.studies.study import Findings, SyntheticStudy, require_each


@dataclass(kw_only=True, eq=False)
class GssPieces(SyntheticStudy):
    """Both functions, a panel for each knee."""

    c: Sequence[float]  # knees
    k: Sequence[float]  # slopes below the knee
    reach: float  # x goes from -reach to reach
    points: int  # of each curve

    def __post_init__(self) -> None:
        require_each("c", self.c, require_number)
        require_each("k", self.k, require_positive)
        require_positive("reach", self.reach)
        require_count("points", self.points, 2)

    def run(self, seed: int) -> Findings:
        x_X = torch.linspace(-self.reach, self.reach, self.points, dtype=torch.float64)
        figure = Figure(figsize=(1.2 + 3.4 * len(self.c), 3.8), layout="constrained")
        curves = []
        panels = figure.subplots(1, len(self.c), squeeze=False, sharey=True)[0]
        for axes, c in zip(panels, self.c, strict=True):
            for k, color in zip(self.k, cycle(SERIES), strict=False):
                smooth, line = GeneralizedSigSoftmax(c, k)(x_X), pieces(x_X, c, k)
                axes.plot(x_X, smooth, color=color, label=f"k = {k:g}")
                axes.plot(x_X, line, color=color, ls="--", lw=1)
                values = {"x": x_X, "pieces": line, "smooth": smooth}
                curves.append(pd.DataFrame(values).assign(c=c, k=k))
            axes.set(title=f"c = {c:g}", xlabel="logit x")
        panels[0].set_ylabel("GSS (whole line), its two pieces (broken)")
        panels[0].legend(fontsize=7)
        rows = pd.concat(curves, ignore_index=True)
        gaps = rows.assign(largest_gap=(rows["smooth"] - rows["pieces"]).abs())
        summary = gaps.groupby(["c", "k"])["largest_gap"].max().reset_index()
        return Findings(rows, summary, figure)


def pieces(x_X: Tensor, c: float, k: float) -> Tensor:
    """PL(x; c, k), of equation 2."""
    return torch.where(x_X > c, x_X, k * (x_X - c) + c)
