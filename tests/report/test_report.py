"""The report over folders made by hand: every section, and the files beside the page."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig

from lmkit.analyses import finding
from lmkit.cli.entry import CONFIGS, experiment_config
from lmkit.report.contents import make_report
from lmkit.runs.checksums import KEY, checked_json
from lmkit.runs.finished import LeftOut
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.selection import select_runs

REPOSITORY = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """Tables of a page by the id of what holds them, links, and tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str]]]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self._table: list | None = None
        self._id, self._cell = "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag == "div" and "id" in named:
            self._id = named["id"]
        elif tag == "table":
            self.tables[self._id] = []
        elif tag == "tr":
            self.tables[self._id].append([])
        elif tag in ("td", "th"):
            self._cell = [named.get("data-v", ""), ""]

    def handle_data(self, data):
        if self._cell is not None:
            self._cell[1] += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[self._id][-1].append(tuple(self._cell))
            self._cell = None
        elif tag == "tr" and len(self.tables[self._id][-1]) == 1:
            self.tables[self._id].pop()  # what unfolds the rows below


@pytest.fixture(scope="module")
def report(study_folder, analyses, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report")
    damaged = next(iter(sorted(study_folder.glob("*/analysis/samples.json"))))
    whole = damaged.read_text()
    damaged.write_text("{")
    make_report(
        select_runs("runs", str(study_folder)).runs,
        analyses=analyses,
        experiments=experiment_config,
        baseline="softmax",
        window=(54.0, 57.5),
        out=out,
    )
    damaged.write_text(whole)
    return out


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page((report / "index.html").read_text())


def test_the_page_refers_to_nothing_outside_but_the_files_beside_it(report, page):
    text = (report / "index.html").read_text()
    assert not re.search(r"<(link|img|iframe|script src)|@import|url\((?!#)", text)
    for tag, name, value in page.attributes:
        if name in ("href", "xlink:href", "src"):
            assert value.startswith("#") or (report / value).is_file(), (tag, value)
    referred = {v[1:] for _, name, v in page.attributes if name.endswith("href") and v[:1] == "#"}
    referred |= set(re.findall(r"url\(#([^)]+)\)", text))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert referred <= set(ids)
    assert len(ids) == len(set(ids))


def test_every_section_has_its_tables_and_figures(report):
    tables = {path.stem.removeprefix("penn_") for path in (report / "tables").glob("*.csv")}
    figures = {path.stem.removeprefix("penn_") for path in (report / "figures").glob("*.svg")}
    assert tables == {
        "performance", "significance", "published", "rank_and_difference", "pairs", "correlation",
        "averaging", "experts", "latent_dropout", "ranks_10000", "ranks_82429", "divergence",
        "predictions", "hit_shares", "margins", "word_similarity", "word_similarity_published",
        "components", "press_robustness", "gradient_bottleneck", "settings", "runs", "origins",
        "dialogue", "mixture_correlation", "yang_stages", "yang_ablation", "ganea_results",
        "cost", "rank_and_gradient", "order", "rank_measures",
    }  # fmt: skip
    assert figures == {
        "rank_gss", "rank_heads", "grid_perplexity", "grid_rank", "mixtures_experts",
        "mixtures_latent_dropout", "spectrum_log", "spectrum_normalised", "spectrum_cumulative",
        "hits", "wins", "transforms", "logits", "curve_valid", "curve_train", "rank_under_noise",
        "mixture_rank", "rank_gradient_ppl", "verdicts",
    }  # fmt: skip
    for path in (report / "figures").iterdir():
        if path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            assert path.read_bytes().startswith(b"%PDF")


def test_rank_gradient_and_perplexity_stand_side_by_side(report, page):
    with (report / "tables" / "penn_rank_and_gradient.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    by_lost = {round(float(row[6])): row for row in rows if row[6]}  # shares 0.05 to 0.07
    assert header[:2] == ["head", "seeds"]
    assert {name.removesuffix(" mean").split(" (")[0] for name in header[2::2]} >= {
        "test perplexity", "rank of log P", "gradient's norm lost, %", "rank of a step's change",
    }  # fmt: skip
    perplexity, rank, _, change, cosine = by_lost[93][2::2]
    assert by_lost[93][0].startswith("MoS")
    assert float(perplexity) == pytest.approx(55.0)
    assert float(rank) == 9981
    assert (float(change), float(cosine)) == (802, 0.125)
    assert by_lost[95][8] == ""  # measured by an earlier version


def test_csv_holds_the_numbers_of_the_pages_tables(report, page):
    for path in (report / "tables").glob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        shown = page.tables[path.stem]
        assert len(shown) == len(rows)
        firsts = [  # of each column of the page the first one of the file
            next(i for i, name in enumerate(rows[0]) if name.startswith(text.strip()))
            for _, text in shown[0]
        ]
        for line, cells in zip(rows[1:], shown[1:], strict=True):
            assert [line[i] for i in firsts] == [value for value, _ in cells], path.name


def test_what_decides_the_numbers_of_each_group_is_shown(report, page):
    text = (report / "index.html").read_text()
    rows = {row[0][1]: [text for _, text in row] for row in page.tables["penn_settings"]}
    softmax = rows["Softmax (ET 200)"]
    assert "lr 20" in softmax[4]
    assert softmax[5] == "AR 2, TAR 1"
    assert softmax[-1] == "1, 2, 3"
    assert "latent 0.29" in rows["MoS (K=15, latent dropout 0.29, ET 200)"][3]
    gss = next(row for name, row in rows.items() if name.startswith("GSS (c=−2"))
    assert gss[1].endswith("c −2, k 1.5")
    assert "The data of all of them: 10,000 words, all training tokens." in text
    assert "made up" not in text  # its corpus lies in files


def test_what_a_killed_report_left_goes_and_two_never_write_at_once(
    study_folder, analyses, tmp_path
):
    def write() -> None:
        runs = select_runs("runs", f"{study_folder} head:softmax").runs
        make_report(
            runs,
            analyses=analyses,
            experiments=experiment_config,
            baseline="softmax",
            window=(54.0, 57.5),
            out=tmp_path,
            keys=["performance"],
        )

    left = [tmp_path / name for name in (".index.html.0.tmp", "tables/.a.csv.0.tmp")]
    another = tmp_path / ".another.0.tmp"
    (tmp_path / "tables").mkdir()
    for file in (*left, another):
        file.touch()
    with RunLock(tmp_path / "index.html.lock"), pytest.raises(LockHeld, match=r"index\.html\.lock"):
        write()
    write()
    assert not any(file.exists() for file in left)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        another.name,
        "figures",
        "index.html",
        "tables",
    ]


def test_published_figures_stand_beside_ours(page):
    rows = {(row[0][1], row[1][1]): row for row in page.tables["penn_published"][1:]}
    test = rows["Softmax (ET 200)", "test perplexity"]
    assert test[2][1].startswith("57.10")
    assert test[4][1] == "57.08 ± 0.09"
    assert float(test[5][0]) == pytest.approx((57.10 - 57.08) / 0.09)
    # ours over 82,429 contexts, not over the 10,000 of the end of training
    assert rows["Softmax (ET 200)", "Press rank"][2][1] == "410"
    assert not any(head == "Cube" for head, _ in rows)


def test_a_head_that_nobody_published_is_in_all_the_other_tables(page):
    for name in ("performance", "significance", "ranks_10000", "rank_and_difference"):
        assert any(row[0][1] == "Cube" for row in page.tables[f"penn_{name}"][1:]), name


def test_what_is_missing_or_damaged_is_named(report):
    text = (report / "index.html").read_text()
    assert "no embeddings.json: Cube" in text
    assert "no logits of Cube: lmkit logits" in text
    assert "only one seed" in text
    assert "samples.json" in text
    assert "1 left out" in text


def test_responses_are_scored_and_shown_side_by_side(report, page):
    rows = {(row[0][1], row[1][1]): row for row in page.tables["penn_dialogue"][1:]}
    assert rows["perplexity", "Softmax (ET 200)"][3][1] == "30.00"
    differences = {
        head: row[4][0] for (measure, head), row in rows.items() if measure == "BLEU-2 recall"
    }
    assert sorted(float(value) for value in differences.values() if value) == [
        pytest.approx(0.1),
        pytest.approx(0.2),
    ]
    assert "said: how are you" in (report / "index.html").read_text()


def test_texts_of_models_are_no_markup(report):
    text = (report / "index.html").read_text()
    assert "&lt;b&gt;once&lt;/b&gt; upon" in text
    assert "a &lt;unk&gt; &amp; b" in text


def test_two_corpora_without_ranks_and_a_damaged_analysis(
    tmp_path, make_run, add_analyses, analyses
):
    runs = tmp_path / "runs"
    for sizes in ((10000, 82429), (200, 1999)):
        for c, k in ((0.0, 1.5), (0.0, 2.0), (1.0, 1.5), (1.0, 2.0)):
            run = make_run(runs, 1, 57 + c + k, None, transform="gss", sizes=sizes,
                           changes={"transform.c": c, "transform.k": k})  # fmt: skip
    add_analyses(run)
    path = run / "analysis" / "predictions.json"
    content = json.loads(path.read_text().replace('"top"', '"pot"'))
    del content[KEY]
    path.write_bytes(checked_json(content))
    out = tmp_path / "out"
    selected = select_runs("runs", str(runs))
    left_out = [LeftOut(*each) for each in selected.left_out.items()]
    report = make_report(
        selected.runs,
        analyses=analyses,
        experiments=experiment_config,
        baseline="gss",
        window=None,
        out=out,
        left_out=left_out,
    )
    text = report.page.read_text()
    assert "predictions.json</b>: it is damaged: contexts[0].top is missing; remove it" in text
    stems = {path.stem for path in (out / "tables").glob("*.csv")}
    assert {"penn_performance", "penn_all_performance"} <= stems
    assert not (out / "figures" / "penn_grid_rank.svg").exists()


COMMAND = (
    "import sys\n"
    "from lmkit.cli.main import main\n"
    "sys.argv = ['lmkit', 'report', *sys.argv[1:]]\n"
    "try: main()\n"
    "finally: print('torch' in sys.modules)"
)


def lmkit_report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder; its last line says whether torch was imported."""
    command = [sys.executable, "-c", COMMAND, *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.slow
def test_the_command_needs_no_torch_and_names_what_is_wrong(tmp_path, make_run, add_analyses):
    add_analyses(make_run(tmp_path / "runs", 1))
    done = lmkit_report(tmp_path, "runs=runs", "out=out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
    assert (tmp_path / "out" / "index.html").is_file()
    assert (tmp_path / "out" / "tables" / "penn_published.csv").is_file()
    assert "error: runs=" in lmkit_report(tmp_path, "runs=nowhere").stderr
    wrong = lmkit_report(tmp_path, "runs=runs", "window=[3,1]").stderr
    assert wrong.startswith("error: window must begin below its end")


MINE = """\
from lmkit.analyses.analysis import Analysis
from lmkit.presentation.section import Section


class Mine(Analysis):
    name = "mine"
    order = 1

    def measure(self, run):
        return {}

    def tables(self, contents):
        return []

    @classmethod
    def sections(cls, study, files):
        return [Section("mine", "Mine alone", f"Of {study.title}.")]
"""


@pytest.mark.parametrize("option", ["--config-dir=configs", "hydra.searchpath=[configs]"])
def test_an_analysis_of_ones_own_has_its_section_and_a_broken_one_a_line(
    tmp_path, make_run, option
):
    make_run(tmp_path / "runs", 1)
    (tmp_path / "my_code.py").write_text(MINE)
    group = tmp_path / "configs" / "analyses"
    group.mkdir(parents=True)
    for name, target in {
        "mine": "my_code.Mine",
        "other": "no.Other",
        "no": "json.loads",
        "shell": "os.system",
    }.items():
        (group / f"{name}.yaml").write_text(f"# @package _global_\n_target_: {target}\n")
    option = option.replace("configs]", f"file://{tmp_path}/configs]")
    done = lmkit_report(tmp_path, option, "runs=runs", "out=out")
    assert done.returncode == 0, done.stderr
    assert "left out: analyses/other: " in done.stdout
    assert "No module named 'no'" in done.stdout
    assert "left out: analyses/no: " in done.stdout
    assert "Target 'os.system'" in done.stdout
    assert "is blocklisted" in done.stdout
    text = (tmp_path / "out" / "index.html").read_text()
    assert text.count("Of Penn Treebank.") == 1
    places = [text.index(f"{title}</h3>") for title in ("Performance", "Mine alone", "Runs")]
    assert places == sorted(places)


def test_what_an_analysis_file_says_of_its_class_is_what_hydra_composes(tmp_path, monkeypatch):
    group = tmp_path / "configs" / "analyses"
    group.mkdir(parents=True)
    files = {
        "plain": "_target_: a.Plain\n",
        "first": "defaults: [_self_, plain]\n_target_: a.First\n",
        "last": "defaults: [plain, _self_]\n_target_: a.Last\n",
        "taken": "defaults: [plain, _self_]\n",
        "found": "name: Found\n_target_: a.${name}\n",
        "rank": "_target_: a.Second\n",  # ours has that name
    }
    for name, content in files.items():
        (group / f"{name}.yaml").write_text(f"# @package _global_\n{content}")
    own = [f"hydra.searchpath=[file://{tmp_path}/configs]"]
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        running = hydra.compose("report", ["runs=none", *own], return_hydra_config=True)
        HydraConfig.instance().set_config(running)
        told = {name: finding._own_target(name) for name in finding.analysis_names()}
        composed = {
            name: hydra.compose(overrides=[f"+analyses@_global_={name}", *own])["_target_"]
            for name in told
        }
    assert {name for name in files if told[name] is None} == {"first", "taken", "found", "rank"}
    assert {name: target for name, target in told.items() if target is not None}.items() <= (
        composed.items()
    )
