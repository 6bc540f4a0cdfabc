"""Figures of the house and the files they become."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.presentation.figures import (
    INK,
    SERIES,
    curves,
    figure,
    for_page,
    house_style,
    legend_below,
    looks,
    over_epochs,
    save,
    spectrum,
    to_pdf,
    to_svg,
    transform_curve,
)


def example() -> Figure:
    with house_style():
        drawn, axes = figure()
        axes.plot([1, 2], [3, 4], label="line", color=SERIES[0])
        legend_below(drawn)
    return drawn


def test_the_same_figure_makes_the_same_files():
    files = []
    for _ in range(2):
        drawn = example()
        files.append((to_svg(drawn, "key"), to_pdf(drawn)))
    assert files[0] == files[1]
    assert b"CreationDate" not in files[0][1]  # of whole seconds


def test_on_a_page_ids_are_the_figures_own_and_colours_the_pages():
    element = for_page(to_svg(example(), "key"), "key", "A line")
    assert element.startswith('<svg role="img" aria-label="A line" ')
    assert SERIES[0] not in element
    assert INK not in element
    assert "var(--s0)" in element
    ids = [node.get("id") for node in ElementTree.fromstring(element).iter() if node.get("id")]
    assert ids
    assert all(each.startswith("key-") for each in ids)


def test_no_two_of_the_first_lines_look_alike():
    seen = [(look["color"], look["linestyle"]) for look, _ in zip(looks(), range(32), strict=False)]
    assert len(set(seen)) == 32


def test_figures_of_a_run_are_of_the_house_and_leave_the_users_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    rows = [
        {"epoch": e, "train/ppl": 90.0 / e, "valid/ppl": 80.0 / e, "valid/ppl_raw": 85.0 / e,
         "averaging": float(e > 2)}
        for e in (1, 2, 3)
    ]  # fmt: skip
    drawn = {
        "curves": curves([*rows, {"epoch": 3, "test/ppl": 70.0}], 20.0, "run"),
        "spectrum": spectrum(np.array([4.0, 2.0, 0.0]), 1e-5, 0.0, "run"),
        "transform": transform_curve(np.arange(3.0), np.arange(3.0) ** 2, "run"),
    }
    assert dict(matplotlib.rcParams) == before
    for name, each in drawn.items():
        (axes,) = each.axes
        assert not axes.spines["top"].get_visible()
        save(each, tmp_path / f"{name}.svg")
        ElementTree.parse(tmp_path / f"{name}.svg")
    (axes,) = drawn["curves"].axes
    lines = {line.get_label(): line.get_xdata() for line in axes.lines}
    assert lines["averaging starts"][0] == 2.5
    assert list(lines["valid"]) == [1, 2, 3]
    (axes,) = drawn["spectrum"].axes
    assert list(axes.lines[0].get_ydata()) == [1.0, 0.5]


def test_epochs_are_whole_numbers_with_commas():
    with house_style():
        drawn, axes = figure()
        axes.plot([9998, 9999], [1, 2])
        over_epochs(axes)
        drawn.draw_without_rendering()
    texts = [label.get_text() for label in axes.get_xticklabels()]
    assert "9,998" in texts
    assert len(texts) == len(set(texts))  # of a fraction the text would repeat its neighbour's


def test_a_dollar_in_a_name_is_no_mathematics():
    with house_style():
        drawn, axes = figure()
        axes.plot([1, 2], [1, 1000], label="a $x^$ of 5")
        axes.set(yscale="log")
        axes.set_xticks([1, 2], ["$b_$ and c", "d"])
        legend_below(drawn)
    svg = to_svg(drawn, "key")
    assert ">10²</text>" in svg
    assert ">a $x^$ of 5</text>" in svg
    assert ">$b_$ and c</text>" in svg


@pytest.mark.parametrize("draw", [Axes.legend, lambda axes: axes.figure.legend()])
def test_a_figure_with_a_legend_of_its_own_gets_no_other(draw):
    drawn, axes = figure()
    axes.plot([1, 2], label="a line")
    draw(axes)
    before = len(drawn.legends)
    legend_below(drawn)
    assert len(drawn.legends) == before
