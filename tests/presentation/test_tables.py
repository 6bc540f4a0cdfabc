"""Tables of the terminal, and of pages and papers."""

import pandas as pd
from rich.console import Console

from lmkit.presentation import styled
from lmkit.presentation.tables import Column, Table, counted, decimal, key_values, plain_table

TEXT = pd.DataFrame({"test": ["56.80 ± 0.11", "−1.50"]}, index=["LMS-PLIF†_{x}", "<new> & #"])


def test_what_rounds_to_0_has_no_sign():
    assert [decimal(value, 2) for value in (-0.004, -0.006, 0.0)] == ["0.00", "−0.01", "0.00"]
    assert [styled.signed(value) for value in (0.004, -0.006, 1.0)] == ["0.00", "−0.01", "+1.00"]


def test_a_mean_has_its_deviation_and_a_small_p_its_exponent():
    assert styled.plus_minus(56.80391, 0.1139) == "56.80 ± 0.11"
    assert styled.plus_minus(1.0, float("nan")) == "1.00"
    assert [styled.p_text(p) for p in (0.392, 1.91e-5, float("nan"))] == ["0.392", "1.9e−05", "–"]


def test_html_escapes_and_has_the_same_ids_each_time():
    classes = pd.DataFrame({"test": ["better", ""]}, index=TEXT.index)
    html = styled.to_html(TEXT, "key", classes)
    assert "&lt;new&gt; &amp; #" in html
    assert "better" in html
    assert html == styled.to_html(TEXT, "key", classes)


def test_latex_is_booktabs_and_takes_no_letter_for_its_own():
    latex = styled.to_latex(TEXT, "penn_groups", "Heads & their 95 % intervals")
    assert r"LMS-PLIF\dag{}\_\{x\} & 56.80 $\pm$ 0.11 \\" in latex
    assert r"\textless{}new\textgreater{} \& \# & $-$1.50 \\" in latex
    assert r"{Heads \& their 95 \% intervals}" in latex
    assert r"\label{tab:penn-groups}" in latex
    assert latex.count("rule") == 3
    odd = styled.to_latex(
        TEXT.rename(columns={TEXT.columns[0]: "MoS‡"}), "odd", r"x^2 ~ \y", ["‡ Apart."]
    )
    assert r"MoS\ddag{}" in odd
    short = r"x\textasciicircum{}2 \textasciitilde{} \textbackslash{}y"
    assert rf"\caption[{short}]{{{short}. \ddag{{}} Apart.}}" in odd


def test_plain_values_have_their_usual_texts_and_columns_may_be_left_out():
    columns = [*map(Column, ("run", "seed", "ppl", "why")), Column("if any", is_optional=True)]
    table = plain_table("t", columns, [["a", 1234, 57.126, None, None]])
    assert table.rows == [["a", "1,234", "57.13", "–"]]
    assert table.columns == columns[:4]


def printed(table: Table, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_texts_on_the_terminal_are_no_markup_and_rules_and_notes_are_drawn():
    table = plain_table("[t]", [Column("a"), Column("b")], [["[red]x", 1], ["total", 2]], rules=[1])
    table.notes = ["note [1]"]
    lines = printed(table, 80)
    assert lines[0].strip() == "[t]"
    assert "[red]x" in lines[4]
    assert lines[5].startswith("├")
    assert lines[-1].strip() == "note [1]"


def test_names_with_values_have_no_header():
    assert len(printed(key_values("run", [("seed", 1), ("method", "cache")]), 80)) == 5


def test_columns_that_do_not_fit_follow_below():
    columns = [Column("run"), *(Column(f"a long name {i}") for i in range(8))]
    lines = printed(plain_table("t", columns, [["softmax", *[123456] * 8]]), 60)
    assert max(map(len, lines)) <= 60
    assert sum(line.count("123,456") for line in lines) == 8
    assert sum("softmax" in line for line in lines) > 1


def test_one_is_singular():
    assert [counted(n, "run") for n in (0, 1, 1204)] == ["0 runs", "1 run", "1,204 runs"]
