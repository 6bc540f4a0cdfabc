"""The command on tiny sizes: records, figures, resuming, a user's own parts, and errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.cli import study as command
from lmkit.cli.entry import CONFIGS
from lmkit.errors.user_error import UserError
from lmkit.runs.holder import this_process
from lmkit.runs.lock import RunLock
from lmkit.runs.stop_signals import INTERRUPTED
from lmkit.runs.study_record import RECORD, StudyRecord, read_record
from lmkit.studies.work import Work
from tests.studies.conftest import TINY

STUDIES = sorted(path.stem for path in (CONFIGS / "studies").glob("*.yaml"))

Run = Callable[..., list[Path]]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """Runs the command in an empty folder; returns the folders of studies that are finished."""
    monkeypatch.chdir(tmp_path)

    def command_line(*arguments: str) -> list[Path]:
        name = arguments[0] if arguments else ""
        tiny = TINY.get(name, "").split()
        shared = ["threads=1", "progress_bar=false"] if tiny else []
        line = [*arguments[:1], *shared, *tiny, *arguments[1:]]
        monkeypatch.setattr(sys, "argv", ["lmkit study", *line])
        command.main()
        return sorted(path.parent for path in tmp_path.glob(f"runs/synthetic/*/{RECORD}"))

    return command_line


def without_times(record: StudyRecord) -> str:
    tables = {
        name: [
            dict(zip(table["columns"], row, strict=True)) | {"seconds": 0} for row in table["rows"]
        ]
        for name, table in record.tables.items()
    }
    return json.dumps(tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_killed_and_resumed_ends_as_one_that_was_not(name, run, monkeypatch, capsys):
    (whole,) = run(name)
    record = read_record(whole / RECORD)
    check_record(record, whole)
    assert str(whole.relative_to(Path.cwd()) / RECORD) in capsys.readouterr().out
    run(name)
    assert "already finished" in capsys.readouterr().out

    pieces = whole / "pieces.jsonl"
    lines = pieces.read_text().splitlines()
    (whole / RECORD).unlink()
    pieces.unlink()
    done: list[str] = []

    def do(self, piece, compute, original=Work.do, **size):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(piece)
        return original(self, piece, compute, **size)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "do", do)
        with pytest.raises(SystemExit, match=str(INTERRUPTED)):
            run(name)
    assert capsys.readouterr().err == "interrupted: the same command resumes\n"
    assert len(pieces.read_text().splitlines()) == 3
    with pieces.open("a") as file:
        file.write('{"name": "half')  # what a kill may leave
    computed: list[str] = []

    def count(self, piece, compute, original=Work.do, **size):
        return original(self, piece, lambda: computed.append(piece) or compute(), **size)

    monkeypatch.setattr(Work, "do", count)
    assert run(name) == [whole]
    assert len(computed) == len(lines) - 3
    assert not set(computed) & set(done)
    resumed = read_record(whole / RECORD)
    assert without_times(resumed) == without_times(record)
    times = [json.loads(line)["seconds"] for line in pieces.read_text().splitlines()]
    assert resumed.cost["seconds"] == pytest.approx(sum(times), abs=0.06)  # of both starts


def check_record(record: StudyRecord, folder: Path) -> None:
    assert record.experiment == folder.name.rpartition("-")[0]
    assert record.claims
    for claim in record.claims:
        assert claim.keys() == {"claim", "source", "holds", "evidence", "figure"}
        assert isinstance(claim["holds"], bool)
        assert claim["evidence"].endswith(".")
        assert claim["figure"] in record.figures
    for figure in record.figures:
        assert (folder / figure).read_text().startswith("<?xml")
    for table in record.tables.values():
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


@pytest.mark.usefixtures("undrawn")
def test_evidence_of_fits_that_cannot_be_compared_says_so(run):
    """With a single problem no test has two pairs, and no dimension is below the true rank."""
    one = "alphas=[1.0] seeds=1 num_contexts=3 num_words=2 dims=[2] more_words=[] words_dim=2"
    heads = "heads=[none+identity,none+plif,none+monotone_mlp,softmaxes+identity]"
    (folder,) = run("mode_matching", *one.split(), heads)
    claims = read_record(folder / RECORD).claims
    silent = [claim for claim in claims if "nothing to compare." in claim["evidence"]]
    assert len(silent) == 6  # two on each learned function, on the mixture, and on the rank
    assert not any(claim["holds"] for claim in silent)
    text = " ".join(claim["evidence"] for claim in claims)
    assert "none of them has d + 2 below the rank" in text
    assert not re.search(r"\b0 of 0\b|[:;,] ?\.|the 0 of them", text)


@pytest.mark.usefixtures("undrawn")
def test_the_largest_rank_of_rank_bounds_is_fitted_at_full_dimension_too(run):
    one = "num_contexts=8 num_words=8 rank=5 dims=[1] steps=60 heads=[none+identity]"
    (folder,) = run("rank_bounds", *one.split())
    table = read_record(folder / RECORD).tables["fits"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    full = [row for row in rows if row["dim"] == 8]
    assert len(full) == 4
    assert all(row["distance"] == 0 and row["kl"] < 1e-9 for row in full)
    assert any(row["distance"] > 0 for row in rows)


CUBE = """
import torch
from torch import nn

class Cube(nn.Module):
    display_name, place = "Cube", {place}

    def __init__(self, start):
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(start))

    def forward(self, logits):
        return logits + self.raw.abs() * logits**3
"""


@pytest.mark.slow
def test_a_transform_of_ones_own_takes_part_and_decides_the_folder(run, tmp_path, monkeypatch):
    ours = run("rank_bounds")
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "own_transforms.py"
    source.write_text(CUBE.format(place=50))
    config = tmp_path / "own" / "head" / "transform" / "cube.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("_target_: own_transforms.Cube\nstart: 0.01\n")

    (with_cube,) = set(run("rank_bounds", "--config-dir=own")) - set(ours)
    record = read_record(with_cube / RECORD)
    heads = {row[0] for row in record.tables["ranks"]["rows"]}
    assert {"none+cube", "contexts+cube", "softmaxes+cube"} <= heads
    assert "Of 16 heads" in next(c for c in record.claims if "non-linear" in c["claim"])["evidence"]
    assert "Cube" in (with_cube / "ranks.svg").read_text()
    searched = run("rank_bounds", f"hydra.searchpath=[file://{tmp_path}/own]")
    assert set(searched) == {*ours, with_cube}

    source.write_text(CUBE.format(place=51))  # an edited file is another transform
    edited = run("rank_bounds", "--config-dir=own")
    assert len(edited) == 3
    config.write_text("_target_: own_transforms.Cube\nstart: 0.02\n")
    assert len(run("rank_bounds", "--config-dir=own")) == 4


OWN_STUDY = """
from dataclasses import dataclass
from lmkit.presentation.style import figure
from lmkit.studies.study import Claim, SyntheticStudy

@dataclass(kw_only=True)
class Doubling(SyntheticStudy):
    count: int

    def run(self, seed, work):
        return {"sums": [{"sum": work.do("sum", lambda: {"sum": seed * self.count})["sum"]}]}

    def claims(self, tables):
        return [Claim("it doubles", "me", True, f"{tables['sums'][0]['sum']}.", "sums")]

    def figures(self, tables):
        return {"sums": figure()[0]}
"""


def test_a_study_of_ones_own_is_listed_and_runs(run, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_studies.py").write_text(OWN_STUDY)
    config = tmp_path / "own" / "studies" / "doubling.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "# @package _global_\n# Twice the seed.\ndefaults: [/study, _self_]\n"
        "_target_: own_studies.Doubling\ncount: 2\n"
    )
    run("--help", "--config-dir=own")
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in (*STUDIES, "doubling"))
    assert "Twice the seed." in listed
    (folder,) = run("doubling", "--config-dir=own", "seed=7", "progress_bar=false")
    assert read_record(folder / RECORD).claims[0]["evidence"] == "14."


@pytest.mark.slow
def test_options_heads_and_seed_decide_the_folder(run):
    (first,) = run("cost")
    lines = (
        ["repeats=2"],
        ["seed=2"],
        ["heads=[none+identity,softmaxes+identity]"],
        ["runs_dir=runs/synthetic/../synthetic"],  # the same folder
        ["heads=[softmaxes+identity,none+identity]"],  # the same heads
    )
    assert [len(run("cost", *line)) for line in lines] == [2, 3, 4, 4, 4]
    assert (first / RECORD).exists()


@pytest.mark.usefixtures("undrawn")
def test_the_gates_of_orhans_program_make_another_study_and_the_default_none(run):
    (blog,) = run("degenerate")
    assert run("degenerate", "gates_as=blog") == [blog]
    program = {*run("degenerate", "gates_as=program")} - {blog}
    (other,) = program
    shares = [read_record(folder / RECORD).tables["shares"]["rows"] for folder in (blog, other)]
    differing = {old[-3] for old, new in zip(*shares, strict=True) if old != new}
    columns = read_record(blog / RECORD).tables["shares"]["columns"]
    assert columns[-3:] == ["layer", "gates", "experts"]
    assert differing == {"dense", "conv"}


@pytest.mark.usefixtures("undrawn")
def test_several_values_have_a_folder_each(run):
    folders = run("rank_bounds", "rank=2,4", "--multirun")
    assert sorted(read_record(f / RECORD).config["options"]["rank"] for f in folders) == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mode_match"], "there is no study mode_match (did you mean mode_matching?)"),
        (["cost", "wrods=3"], "there is no option wrods (did you mean words?)"),
        (["cost", "seed=x"], "seed must be a whole number of at least 0, but is 'x'"),
        (["cost", "threads=0"], "threads must be a whole number"),
        (["cost", "_target_=nowhere.Cost"], "cost: "),
        (["cost", "_target_=lmkit.studies.work.Work"], "lmkit.studies.work.Work is not derived"),
        (["mode_matching", "heads=[none+plip]"], "heads: there is no head none+plip (did you mean"),
        (["mode_matching", "alphas=[0]"], "alphas must be greater than 0"),
        (["mode_matching", "dims=3"], "dims must be a list"),
        (["mode_matching", "steps=0"], "steps must be a whole number"),
        (["mode_matching", "knots=1"], "knots must be a whole number of at least 2"),
        (["rank_bounds", "rank=10"], "rank must be at most 9"),
        (["toy_rank", "ranks=[30]"], "ranks must be at most"),
        (["degenerate", "kernel=2"], "kernel must be odd"),
        (["degenerate", "channels=3"], "channels must divide width = 8"),
        (["cost", "words=[]"], "words must be a list"),
        (["cost", "growing_heads=all"], "growing_heads: none+"),
        (["spamlang", "heads=[doc+identity]"], "heads: doc+identity is not for studies"),
        (["spamlang", "tied=maybe"], "tied must be true or false"),
        (["spamlang", "words=[1]"], "words must be a whole number of at least 2"),
        (["spamlang", "learned=1.5"], "learned must be"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments, message, run, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    status = exit_.value.code  # or the line that Python then prints
    assert status
    line = status if isinstance(status, str) else capsys.readouterr().err.removesuffix("\n")
    assert line.startswith(f"error: {message}")
    assert "\n" not in line


@pytest.mark.parametrize("content", ["{", '{"schema_version": 1}'])
def test_a_record_that_cannot_be_read_is_named(content, tmp_path):
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(UserError, match=RECORD):
        read_record(tmp_path / RECORD)


@pytest.mark.usefixtures("undrawn")
def test_a_study_killed_once_it_was_published_is_tidied(run):
    (folder,) = run("mode_matching")
    lock = folder.with_name(f"{folder.name}.lock")
    lock.write_bytes(this_process()._replace(pid=2**30).to_json())
    left = [lock, folder / f".{RECORD}.0.tmp"]
    left[1].touch()
    run("mode_matching")
    assert not any(file.exists() for file in left)
    with RunLock(lock):
        left[1].touch()
        run("mode_matching")  # another process's: it is left as it is
    assert left[1].exists()


def test_names_of_studies_are_completed(run, monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", "lmkit ra")
    run("-sc", "query=bash")
    assert capsys.readouterr().out.split() == ["rank_bounds"]
