"""Tables as text, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re

import pytest

from lmkit.presentation.tables import (
    DASH,
    Column,
    Table,
    absent,
    interval,
    latex_text,
    number,
    p_value,
    spread,
    to_csv,
    to_latex,
    whole,
    word,
)

TABLE = Table(
    "made_by_hand",
    "By hand",
    "Heads & their 95 % intervals, ε > 0",
    [
        Column("head", is_text=True),
        Column("test", ("mean", "sd")),
        Column("p"),
        Column("published", is_optional=True),
    ],
    [
        [word("LMS-PLIF†_{x}"), spread(56.80391, 0.1139), p_value(1.91e-5), absent()],
        [word("new # head"), spread(-1.5, None), p_value(None), absent()],
    ],
)


def test_texts_are_rounded_and_values_are_not():
    assert spread(56.80391, 0.1139).text == "56.80 ± 0.11"
    assert spread(1.0, None).text == "1.00"
    assert interval(-0.5, 0.25).text == "−0.50 … 0.25"
    assert number(-1234.5, 1).text == "−1,234.5"
    assert whole(82429).text == "82,429"
    assert p_value(1.91e-5).text == "1.91e−05"
    assert p_value(0.392).text == "0.392"
    assert absent(2).values == (None, None)
    assert spread(56.80391, 0.1139).values == (56.80391, 0.1139)


def test_csv_has_a_column_for_each_part_and_full_precision():
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows == [
        ["head", "test mean", "test sd", "p"],
        ["LMS-PLIF†_{x}", "56.80391", "0.1139", "1.91e-05"],
        ["new # head", "-1.5", "", ""],
    ]


def test_an_optional_column_appears_once_a_row_has_a_value():
    columns = [Column("head", is_text=True), Column("published", is_optional=True)]
    with_value = [[word("a"), number(1.0)], [word("b"), absent()]]
    assert len(Table("k", "t", "c", columns, with_value).columns) == 2
    assert len(Table("k", "t", "c", columns, with_value[1:]).columns) == 1


def test_latex_is_balanced_plain_and_of_as_many_cells_as_columns():
    text = to_latex(TABLE)
    assert text.isascii()
    bare = re.sub(r"\\[{}&%$#_]", "", text)
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    begun = re.findall(r"\\begin\{(\w+)\}", bare)
    assert begun == re.findall(r"\\end\{(\w+)\}", bare)[::-1]
    rows = [line for line in bare.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert all(row.count("&") == 2 for row in rows)
    assert r"\begin{tabular}{lrr}" in text
    assert DASH not in text


@pytest.mark.parametrize("text", ["50 %", "a_b", "x & y", "$5", "#1", "{y}", "~", "^", "\\"])
def test_latex_takes_no_letter_for_its_own(text):
    assert not re.search(r"(?<!\\)[%&#_]", latex_text(text))
