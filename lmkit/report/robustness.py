"""How Press's rank answers to noise, and how much of the gradient passes a head's bottleneck.

Parthiban et al. 2021, supplement, section 5; Godey and Artzi 2026.
"""

from __future__ import annotations

from lmkit.comparison.cells import listed, spread_cell
from lmkit.comparison.groups import Study, spread_of
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_robustness
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import MARKERS, SERIES, figure, legend_below
from lmkit.presentation.tables import Column, Table, number, whole, word

_SHOWN = 8
_SHARES = {
    "share": "share of all gradients, %",
    "mean_share": "mean share, %",
    "isotropic_share": "share of a random direction, %",
}


def robustness(study: Study, files: Files) -> Section:
    """What `press_robustness.json` and `gradient_bottleneck.json` tell, if they were written."""
    blocks: list[Block] = []
    missing = []
    noisy = _noisy(study, files)
    if noisy:
        blocks += [_noise_table(study, noisy), _noise_figure(study, noisy)]
    else:
        missing.append(
            "no press_robustness.json: lmkit press_robustness run=FOLDER"
        )
    bottleneck, without = _bottleneck(study, files)
    blocks += bottleneck
    if without:
        how = "lmkit gradient_bottleneck run=FOLDER"
        missing.append(f"no gradient_bottleneck.json: {listed(without)}: {how}")
    return Section(
        "robustness",
        "Robustness of the rank, and the gradient",
        "A matrix of known rank is rounded and perturbed: what does Press's rank say? And how much "
        "of the loss gradient at the logits reaches the context vectors?",
        blocks,
        missing,
    )


def _noisy(study: Study, files: Files) -> dict[str, dict]:
    """press_robustness.json by the group's label."""
    found = {}
    groups, _ = files.having(study, "press_robustness")
    for group in study.shown(_SHOWN, groups)[0]:
        run = files.representative(group.runs, "press_robustness")
        content = files.analysis(run, "press_robustness") if run else None
        if content is not None and content.get("noise"):
            found[group.label] = content
    return found


def _noise_table(study: Study, noisy: dict[str, dict]) -> Table:
    published = published_robustness()
    rows = []
    for label, content in noisy.items():
        size = content.get("num_contexts"), content.get("num_words")
        compares = size == (published.num_contexts, published.num_words)
        for each in content["noise"]:
            ranks = each.get("effective_rank") or {}
            theirs = published.press_rank.get(each["c"]) if compares else None
            rows.append(
                [
                    word(label),
                    number(each["c"]) if each["c"] >= 0.01 else _scientific(each["c"]),
                    whole(content.get("true_rank")),
                    whole(each.get("press_rank")),
                    number(each.get("predicted_rank"), 0),
                    whole(theirs),
                    whole(ranks.get("0.001")),
                    whole(ranks.get("1e-05")),
                ]
            )
    columns = [
        Column("head", is_text=True),
        *(
            Column(name, is_optional=name == "published")
            for name in (
                "noise c",
                "true rank",
                "Press rank",
                "predicted",
                "published",
                "1e−3-effective rank",
                "1e−5-effective rank",
            )
        ),
    ]
    caption = (
        f"Rank of log P reduced to a known rank, with Gaussian noise of variance c / n², "
        f"{study.short}, one run a head. Predicted: by random-matrix theory. Published: "
        f"{published.source}, where the matrix has the same size."
    )
    return Table("press_robustness", "Press rank under noise", caption, columns, rows)


def _scientific(value: float):
    cell = number(value)
    return cell._replace(text=f"{value:.0e}".replace("-", "−"))


def _noise_figure(study: Study, noisy: dict[str, dict]) -> Drawing:
    drawn, axes = figure()
    for i, (label, content) in enumerate(noisy.items()):
        noise = sorted(content["noise"], key=lambda each: each["c"])
        x, y = [each["c"] for each in noise], [each["press_rank"] for each in noise]
        axes.plot(x, y, marker=MARKERS[i], color=SERIES[i], label=label)
    axes.set(xlabel="noise c (variance c / n²)", ylabel="Press rank", xscale="log", ylim=(0, None))
    legend_below(axes)
    caption = f"Press rank of a matrix of known low rank under growing noise, {study.short}."
    return Drawing("rank_under_noise", "Press rank under noise", caption, drawn)


def _bottleneck(study: Study, files: Files) -> tuple[list[Table], list[str]]:
    rows, without = [], []
    for group in study.groups:
        found = [c for run in group.runs if (c := files.analysis(run, "gradient_bottleneck"))]
        if not found:
            without.append(group.label)
            continue
        shares = [
            spread_of([100 * c[name] for c in found if c.get(name) is not None])
            for name in _SHARES
        ]
        first = found[0]
        cells = [whole(first.get("decoder_rank")), whole(first.get("num_contexts"))]
        rows.append([word(group.label), *cells, *(spread_cell(share, 2) for share in shares)])
    if not rows:
        return [], without
    columns = [
        Column("head", is_text=True),
        Column("decoder's rank"),
        Column("contexts"),
        *(Column(name, ("mean", "sd")) for name in _SHARES.values()),
    ]
    caption = (
        "Share of the squared norm of the loss gradient at the logits that reaches the context "
        f"vectors through the decoder, {study.short}: mean ± one standard deviation over seeds."
    )
    return [Table("gradient_bottleneck", "Gradient bottleneck", caption, columns, rows)], without
