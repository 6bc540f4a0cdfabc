"""The command, on tiny sizes: its record, its figures, going on after a kill, its errors."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from lmkit.cli import study as command
from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.studies import study
from lmkit.studies.record import RECORD, read_record
from lmkit.studies.work import Work

TINY = {
    "mode_matching": {
        "alphas": [0.01, 1.0],
        "seeds": 2,
        "num_contexts": 12,
        "num_words": 8,
        "dims": [1, 2],
        "more_words": [6],
        "words_dim": 2,
        "knots": 20,
        "units": 2,
        "steps": 3,
    },
    "rank_bounds": {
        "num_contexts": 14,
        "num_words": 12,
        "rank": 3,
        "dims": [1, 3],
        "units": 2,
        "knots": 20,
        "steps": 60,
    },
    "toy_rank": {
        "ranks": [4, 5],
        "dims": [2, 3],
        "num_contexts": 20,
        "num_words": 10,
        "knots": 20,
        "units": 2,
        "steps": 3,
    },
    "degenerate": {
        "width": 8,
        "experts": [2, 4],
        "inputs": 3,
        "draws": 1,
        "image_side": 3,
        "channels": 2,
        "task_steps": 2,
        "task_width": 6,
        "task_seeds": 2,
    },
    "cost": {
        "words": [20, 40],
        "counts": [2, 4],
        "counts_words": 20,
        "num_contexts": 4,
        "emb_dim": 3,
        "num_experts": 2,
        "knots": 20,
        "units": 2,
        "repeats": 1,
    },
}


def config_of(name: str, folder: Path, **options: object) -> dict:
    config = plain_config(compose("synthetic", [f"study={name}", "progress_bar=false"]))
    section = config[name] | TINY[name] | options
    return config | {"runs_dir": str(folder), "threads": 1, name: section}


@pytest.mark.parametrize("name", study.EXPERIMENTS)
def test_each_experiment_writes_its_record_and_figures(name, tmp_path, capsys):
    path = study.run(config_of(name, tmp_path))
    record = read_record(path / RECORD)
    assert (record.schema_version, record.experiment) == (1, name)
    assert record.config[name]["units" if name != "degenerate" else "width"]
    assert record.claims
    for claim in record.claims:
        assert claim.keys() == {"claim", "source", "holds", "evidence", "figure"}
        assert isinstance(claim["holds"], bool)
        assert claim["evidence"].endswith(".")
        assert claim["figure"] in record.figures
    for figure in record.figures:
        assert (path / figure).read_text().startswith("<?xml")
    for table in record.tables.values():
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    out = capsys.readouterr().out
    assert str(path / RECORD) in out.replace("\n", "")
    study.run(config_of(name, tmp_path))
    assert "already finished" in capsys.readouterr().out


def test_a_killed_experiment_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    config = config_of("rank_bounds", tmp_path)
    whole = read_record(study.run(config_of("rank_bounds", tmp_path / "whole")) / RECORD)
    done: list[str] = []

    def do(self, name, compute, original=Work.do):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(name)
        return original(self, name, compute)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "do", do)
        with pytest.raises(KeyboardInterrupt):
            study.run(config)
    path = study.define(config).path
    pieces = path / "pieces.jsonl"
    assert len(pieces.read_text().splitlines()) == 5
    with pieces.open("a") as file:
        file.write('{"name": "half')  # what a kill may leave
    computed: list[str] = []

    def count(self, name, compute, original=Work.do):
        return original(self, name, lambda: computed.append(name) or compute())

    monkeypatch.setattr(Work, "do", count)
    study.run(config)
    assert not set(computed) & set(done)
    record = read_record(path / RECORD)
    assert json.dumps(record.tables) == json.dumps(whole.tables)
    times = [json.loads(line)["seconds"] for line in pieces.read_text().splitlines()]
    assert record.cost["seconds"] == pytest.approx(sum(times), abs=0.06)  # of both starts


def test_what_decides_the_numbers_decides_the_folder(tmp_path):
    def folder(**options: object) -> Path:
        return study.define(config_of("cost", tmp_path, **options)).path

    assert folder() == folder()
    assert folder(repeats=2) != folder()
    other = config_of("cost", tmp_path) | {"mode_matching": {}, "progress_bar": True}
    assert study.define(other).path == folder()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mode_matching", {"heads": ["none+plip"]}, "there is no head none+plip (did you mean"),
        ("mode_matching", {"alphas": [0]}, "mode_matching.alphas must be greater than 0"),
        ("mode_matching", {"dims": 3}, "mode_matching.dims must be a list"),
        ("mode_matching", {"steps": 0}, "mode_matching.steps must be a whole number"),
        ("rank_bounds", {"rank": 10}, "rank_bounds.rank must be at most 9"),
        ("toy_rank", {"ranks": [30]}, "toy_rank.ranks must be at most"),
        ("degenerate", {"kernel": 2}, "degenerate.kernel must be odd"),
        ("degenerate", {"channels": 3}, "degenerate.channels must divide width = 8"),
        ("cost", {"words": []}, "cost.words must be a list"),
    ],
)
def test_bad_options_are_named(name, options, message, tmp_path):
    with pytest.raises(UserError) as error:
        study.define(config_of(name, tmp_path, **options))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mode_match"], "study must be one of mode_matching, rank_bounds"),
        (["cost", "cost.wrods=3"], "there is no option cost.wrods (did you mean cost.words?)"),
        (["cost", "seed=x"], "seed must be a number, but is 'x'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lmkit.studies", *command.with_name(arguments)])
    with pytest.raises(SystemExit) as exit_:
        command.main()
    assert str(exit_.value.code).startswith(f"error: {message}")


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(UserError, match=RECORD):
        read_record(tmp_path / RECORD)


def test_record_is_json_that_others_can_read(tmp_path):
    path = study.run(config_of("cost", tmp_path))
    content = json.loads((path / RECORD).read_text())
    columns, rows = (content["tables"]["costs"][key] for key in ("columns", "rows"))
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    measured = [r for r in records if r["seconds"] is not None]
    assert measured
    assert all(r["seconds"] > 0 and math.isfinite(r["peak_mib"]) for r in measured)
