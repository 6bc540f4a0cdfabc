"""Tables on the terminal and as HTML, CSV and LaTeX."""

from __future__ import annotations

import ast
import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import lmkit
from lmkit.presentation.side_by_side import side_by_side
from lmkit.presentation.table_files import latex_text, to_csv, to_html, to_latex
from lmkit.presentation.tables import (
    DASH,
    Cell,
    Column,
    Table,
    absent,
    counted,
    interval,
    key_values,
    millions,
    number,
    p_value,
    plain_table,
    spread,
    whole,
    word,
)
from lmkit.presentation.terminal import to_terminal

TABLE = Table(
    "made_by_hand",
    "By hand",
    "Heads & their 95 % intervals, ε > 0",
    [
        "head",
        Column("test", ("mean", "sd")),
        "p",
        Column("published", is_optional=True),
    ],
    [
        ["LMS-PLIF†_{x}", spread(56.80391, 0.1139), p_value(1.91e-5), None],
        ["new # head", spread(-1.5, None), None, None],
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


def test_what_rounds_to_0_has_no_sign():
    assert [number(value, 2).text for value in (-0.004, -0.006, 0.0)] == ["0.00", "−0.01", "0.00"]


def test_csv_has_a_column_for_each_part_and_full_precision():
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows == [
        ["head", "test mean", "test sd", "p"],
        ["LMS-PLIF†_{x}", "56.80391", "0.1139", "1.91e-05"],
        ["new # head", "-1.5", "", ""],
    ]


def test_an_optional_column_appears_once_a_row_has_a_value():
    columns = ["head", Column("published", is_optional=True)]
    with_value = [["a", 1.0], ["b", None]]
    assert len(Table("k", "t", "c", columns, with_value).columns) == 2
    assert len(Table("k", "t", "c", columns, with_value[1:]).columns) == 1


def test_latex_is_balanced_plain_and_of_as_many_cells_as_columns():
    text = to_latex(TABLE, "penn_k")
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


def test_every_sign_in_lmkits_own_texts_is_written_out_in_latex():
    files = Path(lmkit.__file__).parent.rglob("*.py")
    trees = [ast.parse(file.read_text("utf-8")) for file in files if file.name != "table_files.py"]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = "".join(node.value for node in nodes if isinstance(node.value, str))
    assert {"α", "²", "“", "”", "‖"} <= set(texts)
    known = set("ĠĊ")  # letters with a dot above, of byte-level tokens: pdflatex has them
    never_shown = {"\ufeff"}
    unwritten = {sign for sign in texts if not latex_text(sign).isascii()}
    assert unwritten - known - never_shown == set()


@pytest.mark.parametrize("text", ["50 %", "a_b", "x & y", "$5", "#1", "{y}", "~", "^", "\\"])
def test_latex_takes_no_letter_for_its_own(text):
    assert not re.search(r"(?<!\\)[%&#_]", latex_text(text))


def test_plain_values_become_the_usual_cells_and_decide_where_a_column_stands():
    table = plain_table("t", ["run", "seed", "ppl", "why"], [["a", 1234, 57.126, None]])
    assert table.rows == [[word("a"), whole(1234), number(57.126, 2), absent()]]
    assert [column.is_text for column in table.columns] == [True, False, False, False]


def test_a_row_of_another_length_or_a_cell_of_other_parts_is_refused():
    with pytest.raises(ValueError, match="must have 2 entries"):
        plain_table("t", ["a", "b"], [[1]])
    with pytest.raises(ValueError, match="must have 2 values"):
        plain_table("t", [Column("a", ("mean", "sd"))], [[number(1.0)]])


def printed(table: Table, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(to_terminal(table))
    return capture.get().splitlines()


def test_texts_on_the_terminal_are_no_markup_and_rules_and_notes_are_drawn():
    rows = [["[red]x", 1], ["total", 2]]
    table = Table("k", "[t]", "", ["a", "b"], rows, ["note [1]"], rules=[1])
    lines = printed(table, 80)
    assert lines[0].strip() == "[t]"
    assert "[red]x" in lines[4]
    assert lines[5].startswith("├")
    assert lines[-1].strip() == "note [1]"


def test_names_with_values_have_no_header():
    table = key_values("run", [("seed", 1), ("method", "cache")])
    assert len(printed(table, 80)) == 5
    assert to_csv(table) == "seed,1\nmethod,cache\n"
    assert "<thead>" not in to_html(table, 1, "t")
    assert to_latex(table, "t").count("midrule") == 0


@pytest.mark.parametrize("width", [30, 60, 100, 400])
def test_many_runs_side_by_side_keep_their_numbers_whole_on_any_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"softmax-{i:07x}" for i in range(7)]
    runs = {name: ["123,456", f"{i}"] for i, name in enumerate(names)}
    tables = side_by_side("ranks", "Ranks", ["rank", "order"], runs)
    assert len(tables) == {30: 7, 60: 4, 100: 2, 400: 1}[width]
    lines = [line for table in tables for line in printed(table, width)]
    assert max(map(len, lines)) <= width
    ranks = [line for line in lines if "rank " in line]
    assert sum(line.count("123,456") for line in ranks) == 7
    orders = [cell.text for table in tables for cell in table.rows[1][1:]]
    assert orders == ["0", "1", "2", "3", "4", "5", "6"]


def test_html_escapes_sorts_by_values_and_folds_up_many_rows():
    html = to_html(plain_table("t", ["a", "b"], [["<b>", Cell("57.0 ± 1.0", (57.0,))]]), 1, "t")
    assert '<th scope="row" class="text" data-v="&lt;b&gt;">&lt;b&gt;</th>' in html
    assert '<td data-v="57.0">57.0 ± 1.0</td>' in html
    assert "<details>" not in html
    many = to_html(plain_table("Runs", ["a"], [[1]] * 41), 7, "t")
    assert "<summary>Table 7. Runs (41 rows)</summary>" in many
    main = Table("k", "Runs", "c", ["a"], [[1]] * 41, is_main=True)
    assert "<details>" not in to_html(main, 7, "t")


def test_a_table_has_a_caption_row_headers_and_a_scroll_area_for_the_keyboard():
    html = to_html(TABLE, 3, "penn_k")
    assert "<caption>" in html
    assert f"<b>Table 3. {TABLE.title}.</b>" in html
    assert 'href="tables/penn_k.csv"' in html
    assert html.count('<th scope="row"') == len(TABLE.rows)
    assert f'tabindex="0" role="region" aria-label="{TABLE.title}"' in html


def test_labels_in_latex_are_the_files_and_long_texts_are_broken_into_lines():
    rows = [["a claim of many words, more than fit a line", "yes", 1.0]]
    latex = to_latex(Table("claims", "t", "c", ["claim", "holds", "p"], rows), "penn_claims")
    assert r"\label{tab:penn-claims}" in latex
    assert r"\begin{tabular}{p{0.30\linewidth}lr}" in latex


def test_one_is_singular():
    assert [counted(n, "run") for n in (0, 1, 1204)] == ["0 runs", "1 run", "1,204 runs"]
    assert counted(1, "corpus", "corpora") == "1 corpus"
    assert counted(2, "corpus", "corpora") == "2 corpora"


def test_rules_are_drawn_in_html_and_latex():
    table = plain_table("t", ["a"], [[1], [2]], rules=[1])
    assert to_html(table, 1, "t").count('<tr class="rule">') == 1
    assert to_latex(table, "t").count("midrule") == 2


def test_small_models_differ_in_their_parameters():
    shown = [millions(count / 1e6).text for count in (23112, 23352, 24221600)]
    assert shown == ["0.0231", "0.0234", "24.22"]
