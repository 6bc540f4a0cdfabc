"""From axes to points: combinations, parts, what the command line replaces, samples."""

from __future__ import annotations

import pytest

from lmkit.errors.user_error import UserError
from lmkit.sweeps.axes import expand, for_sweeper, read, sample
from lmkit.sweeps.quoting import as_value

PARTS = [{"experiment": "a,b", "seed": "1,2"}, {"experiment": "c", "k": "range(0,3)"}]


def test_all_combinations_of_all_parts_in_order():
    assert expand({"lr": 20}, PARTS, []) == [
        ("lr=20", "experiment=a", "seed=1"),
        ("lr=20", "experiment=a", "seed=2"),
        ("lr=20", "experiment=b", "seed=1"),
        ("lr=20", "experiment=b", "seed=2"),
        ("lr=20", "experiment=c", "k=0"),
        ("lr=20", "experiment=c", "k=1"),
        ("lr=20", "experiment=c", "k=2"),
    ]


def test_a_typed_value_replaces_the_axis_where_it_is():
    lines = expand({}, PARTS, ["seed=7", "k=5"])
    assert lines == [
        ("experiment=a", "seed=7"),
        ("experiment=b", "seed=7"),
        ("experiment=c", "k=5"),
    ]


def test_a_typed_option_that_is_no_axis_joins_all_parts():
    lines = expand({}, PARTS, ["max_epochs=2,3", "runs_dir=x"])
    assert len(lines) == 14
    assert all(line[-1] == "runs_dir=x" for line in lines)


def test_what_is_typed_may_sweep_by_itself_and_no_point_comes_twice():
    assert expand({}, [], ["a=choice(1,2)", "b=1,1", "~c"]) == [
        ("a=1", "b=1", "~c"),
        ("a=2", "b=1", "~c"),
    ]


@pytest.mark.parametrize("axes", [{"lr": "interval(0,1)"}, {"lr": [1, 2]}])
def test_an_axis_that_cannot_be_enumerated_is_refused(axes):
    with pytest.raises(UserError, match="lr"):
        expand(axes, [], [])


@pytest.mark.parametrize(
    ("params", "parts", "section"),
    [({"lr": [1, 2]}, [], "hydra.sweeper.params"), ({}, [{"lr": [1]}], "hydra.sweeper.parts")],
)
def test_a_list_is_refused_by_the_section_that_it_stands_in(params, parts, section):
    with pytest.raises(UserError, match=rf"{section}: the values of lr must be written as a,b,c"):
        expand(params, parts, [])


def test_a_sample_is_the_same_each_time_and_part_of_every_larger_one():
    drawn = sample(2940, 30, 1)
    assert drawn == sample(2940, 30, 1)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 30
    assert set(drawn) < set(sample(2940, 31, 1))
    assert drawn != sample(2940, 30, 2)
    assert drawn[:3] == [2, 5, 51]  # for good: a sweep half done goes on with the same part
    assert sample(5, None, 1) == sample(5, 9, 1) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, -1, 1.5, "all"])
def test_a_sample_of_no_size_is_refused(size):
    with pytest.raises(UserError, match=r"sweep\.sample"):
        sample(10, size, 1)


def test_single_values_of_a_sweeps_line_are_left_to_the_sweeper():
    line = ["multirun_sweeps=gss_grid_penn", "k=2.5", "+callbacks.mine.by=[1,2]", "seed=1,2"]
    line += [
        "sweep.sample=3",
        "patience=null",
        "name='a b'",
        "hydra/launcher=workers",
        "dry_run=true",
        "--config-dir",
        "mine",
    ]
    assert for_sweeper(line) == [
        "--multirun",
        "multirun_sweeps=gss_grid_penn",
        "k=choice(2.5)",
        "+callbacks.mine.by=choice([1,2])",
        *line[3:],
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["k=2"], ["k=2"]),
        (["multirun_sweeps=null", "k=2"], ["multirun_sweeps=null", "k=2"]),
        (["-m", "k=2", "hydra/sweeper=basic"], ["-m", "k=2", "hydra/sweeper=basic"]),
        (
            ["multirun_sweeps=mine", "k=2", "hydra/sweeper=basic"],
            ["--multirun", "multirun_sweeps=mine", "k=2", "hydra/sweeper=basic"],
        ),
    ],
)
def test_other_lines_keep_their_values(line, expected):
    assert for_sweeper(line) == expected


def test_submitits_launcher_needs_slurm(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="srun is not on PATH"):
        for_sweeper(["-m", "hydra/launcher=submitit_slurm"])


@pytest.mark.parametrize(
    "text",
    ["/home/josé/runs", "/data/größe", "/数据/runs", "runs/٣", "it's, more", "runs", "12", "a b"],
)
def test_a_text_is_read_back_as_it_was_whatever_its_letters(text):
    assert read(f"runs_dir={as_value(text)}").value() == text
