"""From axes to points: combinations, parts, what the command line replaces, samples."""

from itertools import product

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.quoting import as_value
from lmkit.sweeps import axes
from lmkit.sweeps.axes import expand, for_sweeper, read, sample
from lmkit.sweeps.planning import labels_of

PARTS = [{"experiment": "a,b", "seed": "1,2"}, {"experiment": "c", "k": "range(0,3)"}]


@pytest.mark.parametrize(
    ("params", "parts", "typed", "lines"),
    [
        (  # all combinations of all parts, in order
            {"lr": 20},
            PARTS,
            [],
            [
                "lr=20 experiment=a seed=1", "lr=20 experiment=a seed=2",
                "lr=20 experiment=b seed=1", "lr=20 experiment=b seed=2",
                "lr=20 experiment=c k=0", "lr=20 experiment=c k=1", "lr=20 experiment=c k=2",
            ],
        ),
        (  # a typed value replaces the axis where it is
            {}, PARTS, ["seed=7", "k=5"],
            ["experiment=a seed=7", "experiment=b seed=7", "experiment=c k=5"],
        ),
        (  # one that is no axis joins all parts
            {}, [{"a": 1}, {"b": 2}], ["c=3,4", "d=x"],
            ["a=1 c=3 d=x", "a=1 c=4 d=x", "b=2 c=3 d=x", "b=2 c=4 d=x"],
        ),
        # what is typed may sweep by itself, and no point comes twice
        ({}, [], ["a=choice(1,2)", "b=1,1", "~c"], ["a=1 b=1 ~c", "a=2 b=1 ~c"]),
        # steps as they would be typed, without the end
        ({}, [], ["a=range(0.1,0.8,0.1)"], [f"a=0.{tenths}" for tenths in range(1, 8)]),
        ({}, [], ["a=range(2,-3,-2)"], ["a=2", "a=0", "a=-2"]),
    ],
)  # fmt: skip
def test_points_are_all_combinations_of_the_axes(params, parts, typed, lines):
    assert [" ".join(line) for line in expand(params, parts, typed)] == lines


def test_single_values_of_a_line_do_not_multiply_its_combinations(monkeypatch):
    combined = []
    monkeypatch.setattr(axes, "product", lambda *all_: combined.append(all_) or product(*all_))
    line = for_sweeper(["-m", *(f"option{number}=1" for number in range(12)), "seed=1,2"])
    assert len(expand({}, [], line[1:])) == 2
    assert [len(values) for values in combined[0]] == [1] * 12 + [2]
    assert for_sweeper(["-m", "x=shuffle([1,2])"]) == ["-m", "x=shuffle([1,2])"]  # drawn once


@pytest.mark.parametrize(
    ("params", "parts", "message"),
    [
        ({"lr": "interval(0,1)"}, [], "lr=interval"),
        ({"lr": [1, 2]}, [], r"hydra\.sweeper\.params: the values of lr must be written as a,b,c"),
        ({"sweep.retries": 9}, [], r"hydra\.sweeper\.params: sweep\.retries is of the sweep"),
        ({}, [{"hydra/launcher": "packed"}], r"parts: hydra/launcher is of the sweep, and no axis"),
        ({}, [{"lr": [1]}], r"hydra\.sweeper\.parts: the values of lr must be written as a,b,c"),
    ],
)
def test_an_axis_that_cannot_be_enumerated_is_refused(params, parts, message):
    with pytest.raises(UserError, match=message):
        expand(params, parts, [])


def test_labels_are_what_differs_but_for_what_a_sweep_tells_its_runs():
    assert labels_of([("x=1", "y=1"), ("x=1", "y=2", "sweep.trial=2")]) == ["y=1", "y=2"]
    assert labels_of([("x=1", "y=1")]) == ["x=1 y=1"]
    assert labels_of([()]) == ["no overrides"]


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


KEPT = ["+callbacks.mine.by=[1,2]", "seed=1,2", "sweep.sample=3", "patience=null", "name='a b'"]
KEPT += ["hydra/launcher=workers", "dry_run=true", "--config-dir", "mine"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (  # single values of a sweep's line are left to the sweeper
            ["multirun_sweeps=mine", "k=2.5", *KEPT],
            ["--multirun", "multirun_sweeps=mine", "k=2.5,2.5", "+callbacks.mine.by=[1,2],[1,2]",
             "seed=1,2", "sweep.sample=3", "patience=null,null", "name='a b','a b'", *KEPT[5:]],
        ),
        (["multirun_sweeps=null", "k=2"], ["multirun_sweeps=null", "k=2"]),
        (
            ["-m", "dry_run=false", "hydra/sweeper=basic"],
            ["-m", "dry_run=false", "hydra/sweeper=basic"],
        ),
        (
            ["multirun_sweeps=mine", "k=2", "hydra/sweeper=basic"],
            ["--multirun", "multirun_sweeps=mine", "k=2", "hydra/sweeper=basic"],
        ),
    ],
)  # fmt: skip
def test_a_line_is_made_one_of_a_sweep_where_it_is(line, expected):
    assert for_sweeper(line) == expected


def test_two_files_are_no_sweep():
    with pytest.raises(UserError, match=r"multirun_sweeps=\[a,b\]: a sweep takes a single file"):
        for_sweeper(["multirun_sweeps=[a,b]"])


def test_submitits_launcher_needs_slurm(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="srun is not on PATH"):
        for_sweeper(["-m", "hydra/launcher=submitit_slurm"])


@pytest.mark.parametrize(
    "text",
    [
        *("/home/josé/runs", "/data/größe", "/数据/runs", "runs/٣", "it's, more", "runs", "12"),
        *("runs[1]/synthetic", "a b", r"a\b", "a\\", r"\\'", r"it\'s \\", r"'\'\\'c\\d\\\\"),
    ],
)
def test_a_text_is_read_back_as_it_was_whatever_its_letters(text):
    assert read(f"runs_dir={as_value(text)}").value() == text


def test_an_option_of_some_parts_alone_is_told():
    parts = [{"seed": "1,2"}, {"head/transform": "gss"}]
    assert axes.of_some_parts({}, parts, ["seed=5", "max_epochs=3"]) == {"seed": 1}
    assert axes.of_some_parts({"seed": 9}, parts, ["seed=5"]) == {}
