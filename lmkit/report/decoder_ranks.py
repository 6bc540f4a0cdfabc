"""Heads whose decoders have a limited rank: perplexity and the spectrum of log P over that rank.

Godey et al. 2024, section 5, for a softmax on fixed contexts. The rank is `head.decoder_rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import seeds_in_words
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Spread
from lmkit.comparison.points import number_of, sets_but_for
from lmkit.comparison.run_files import Files
from lmkit.comparison.settings import labels
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.spectrum_figures import LabelledSpectrum, draw_values
from lmkit.presentation.style import SERIES, looks
from lmkit.presentation.tables import Entry, Heading, table_over
from lmkit.report.performance import perplexities, press_rank

OPTION = "head.decoder_rank"
_MOST_SPECTRA = len(SERIES)  # in one panel


def decoder_ranks(study: Study, files: Files) -> list[Section]:
    """The section; none where no two runs differ only in the rank of the decoder."""
    limited = [g for g in study.groups if g.settings.get(OPTION) is not None and not g.has_failed]
    sets = [sorted(s, key=_rank) for s in sets_but_for(limited, OPTION.__eq__) if len(s) > 1]
    if not sets:
        return []
    blocks: list[Block] = [_drawing(study, sets), _table(study, sets)]
    if spectra := _spectra(study, sets, files):
        blocks.insert(1, spectra)
    intro = (
        "At which rank of the decoder does a head stop gaining, and does one that breaks the "
        "softmax bound need a lower one?"
    )
    return [Section("decoder_ranks", "Decoders of limited rank", intro, blocks)]


def _rank(group: Facts) -> float:
    return number_of(group, OPTION)


def _names(sets: Sequence[Sequence[Facts]]) -> list[str]:
    """Each set's head, with what else distinguishes it."""
    firsts = [groups[0] for groups in sets]
    rest = [{o: value for o, value in g.settings.items() if o != OPTION} for g in firsts]
    return labels([group.names for group in firsts], rest)


def _drawing(study: Study, sets: Sequence[Sequence[Facts]]) -> Drawing:
    drawn = Figure(figsize=(7.4, 3.4), layout="constrained")
    of_ppl, of_rank = drawn.subplots(1, 2)
    for name, groups, look in zip(_names(sets), sets, looks(), strict=False):
        _line(of_ppl, [(_rank(g), g.spread("test_ppl")) for g in groups], name, look["color"])
        _line(of_rank, [(_rank(g), g.rank(study.contexts)) for g in groups], name, look["color"])
    ranks = sorted({_rank(group) for groups in sets for group in groups})
    for axes, label in ((of_ppl, "test perplexity"), (of_rank, "Press rank of log P")):
        axes.set(xlabel="rank of the decoder", ylabel=label, xscale="log")
        axes.set_xticks(ranks, [f"{rank:g}" for rank in ranks])
        axes.minorticks_off()
    of_rank.set_yscale("log")
    of_ppl.legend()
    at = f" over {study.contexts:,} test contexts" if study.contexts else ""
    caption = (
        f"Test perplexity, and Press rank of log P{at}, over the rank of the decoder on "
        f"{study.short}: means over seeds, {_seeds(sets)}; bars are one standard deviation to "
        "either side."
    )
    return Drawing("decoder_ranks", "Over the rank of the decoder", caption, drawn, True)


def _line(axes: Axes, points: Sequence[tuple[float, Spread | None]], name: str, color: str) -> None:
    known = [(rank, spread) for rank, spread in points if spread is not None]
    if known:
        x, y = zip(*known, strict=True)
        bars = [each.sd or 0.0 for each in y]
        axes.errorbar(
            x, [each.mean for each in y], bars, label=name, color=color, marker="o", capsize=3
        )


def _spectra(study: Study, sets: Sequence[Sequence[Facts]], files: Files) -> Drawing | None:
    """Singular values of log P at each rank, of the first run of each group; a panel a head."""
    panels = {}
    for name, groups in zip(_names(sets), sets, strict=True):
        shown = []
        for group in groups[:_MOST_SPECTRA]:
            for run, measured in list(group.measured.get(study.contexts or 0, {}).items())[:1]:
                stored = files.spectrum(run, measured.file)
                if stored is not None:
                    shown.append(
                        LabelledSpectrum(f"{_rank(group):g}", stored.relative_S, stored.measures)
                    )
        if shown:
            panels[name] = shown
    if not panels:
        return None
    drawn = Figure(figsize=(3.7 * min(2, len(panels)), 3.0 * -(-len(panels) // 2)),
                   layout="constrained")  # fmt: skip
    grid = drawn.subplots(-(-len(panels) // 2), min(2, len(panels)), squeeze=False, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (name, shown) in zip(grid.flat, panels.items(), strict=False):
        draw_values(axes, shown)
        axes.set(title=name, xscale="log")
    grid.flat[0].legend(title="decoder's rank")
    caption = (
        f"Singular values of log P over {study.contexts:,} test contexts of {study.origin}, of one "
        "run at each rank of the decoder; the dotted line is the tolerance of Press's rank."
    )
    title = "Spectra over the rank of the decoder"
    return Drawing("decoder_rank_spectra", title, caption, drawn, len(panels) > 1)


def _table(study: Study, sets: Sequence[Sequence[Facts]]) -> Block:
    names = dict(zip((groups[0] for groups in sets), _names(sets), strict=True))
    name_of = {group: names[groups[0]] for groups in sets for group in groups}
    columns: dict[Heading, Callable[[Facts], Entry]] = {
        "head": lambda f: name_of[f],
        "rank of the decoder": lambda f: f"{_rank(f):g}",
        "seeds": lambda f: len(f.runs),
        **perplexities("valid", "test"),
        **press_rank(study.contexts),
    }
    caption = (
        f"Decoders of limited rank on {study.short}: mean ± one standard deviation, {_seeds(sets)}."
    )
    return table_over(name_of, "decoder_ranks", "Over the rank of the decoder", caption, columns)


def _seeds(sets: Sequence[Sequence[Facts]]) -> str:
    return seeds_in_words(len(group.runs) for groups in sets for group in groups)
