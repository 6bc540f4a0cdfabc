"""`lmkit reproduce`, as typed."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
from functools import cache
from pathlib import Path

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lmkit.cli import entry, reproduce
from lmkit.errors.user_error import UserError
from lmkit.reproduction import running
from lmkit.runs.folder import RunFolder
from lmkit.runs.stop_signals import STOPPED, StopRequested
from lmkit.sweeps.axes import Line
from lmkit.sweeps.points import Composer, Config
from tests.claims.conftest import Lmkit
from tests.tiny import TINY
from tests.waiting import meanwhile, wait_for

NAMES = sorted(file.stem for file in (entry.CONFIGS / "reproduce").glob("*.yaml"))

SWEEP = """\
# @package _global_
hydra:
  mode: MULTIRUN
  sweeper:
    params: {experiment: glob(toy), seed: "1,2"}
"""
REPRODUCTION = """\
# @package _global_
# Two seeds, finetuned.
defaults:
  - /reproduce
  - _self_
paper: Somebody 2020
table: table 9
sweeps:
  - {sweep: two}
finetunings:
  - {runs: toy, options: [lr=3, max_epochs=1]}
measures:
  - {command: evaluate, runs: toy_finetune, options: [split=valid]}
report: []
size: {name: tiny, about: Tiny runs, runs_dir: runs, training: {seed: 7, TRAINING}, measures: {}}
"""
LINE = ("reproduce", "mine", "--config-dir", "my_conf", "+finetuning.logger=csv")


@pytest.fixture
def my_conf(tmp_path: Path) -> None:
    """The files of a reproduction of one's own."""
    training = ", ".join(each.replace("=", ": ", 1) for each in TINY)
    for name, text in (
        ("multirun_sweeps/two", SWEEP),
        ("reproduce/mine", REPRODUCTION.replace("TRAINING", training)),
    ):
        file = tmp_path / "my_conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)


@pytest.fixture
def mine(
    lmkit: Lmkit, my_conf: None, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """A reproduction of one's own, whose two runs are trained; the commands that it runs.

    They run in this process, without a second of imports each.
    """
    for path in trained.glob("toy-*/"):
        shutil.copytree(path, Path("runs") / path.name)
    commands: list[list[str]] = []

    def run(words: list[str]) -> int:
        commands.append(list(words))
        try:
            lmkit(*words)
        except SystemExit as exit_:
            return 1 if exit_.code else 0
        return 0

    monkeypatch.setattr(running, "run_command", run)
    return commands


@pytest.mark.slow
def test_an_interrupted_reproduction_goes_on_and_ends_with_its_page(
    mine, lmkit, runs, tmp_path, monkeypatch, capsys
):
    run = running.run_command

    def interrupted(words: list[str]) -> int:
        if words[0] == "evaluate":
            raise KeyboardInterrupt
        return run(words)

    monkeypatch.setattr(running, "run_command", interrupted)
    with pytest.raises(SystemExit):
        lmkit(*LINE)
    assert "interrupted: the same command resumes" in capsys.readouterr().err
    assert [words[0] for words in mine] == ["train", "finetune", "finetune"]
    trained = {folder.result: folder.result.stat().st_mtime_ns for folder in runs()}
    assert len(trained) == 4
    assert not (tmp_path / "reproductions").exists()
    monkeypatch.setattr(running, "run_command", run)
    mine.clear()
    capsys.readouterr()
    lmkit(*LINE, "hydra/launcher=packed", "hydra.launcher.runs=2")
    printed = " ".join(capsys.readouterr().out.split())
    assert "Somebody 2020, table 9, size=tiny: Tiny runs." in printed
    assert "lmkit train multirun_sweeps=two" in printed
    assert "2 runs; about" in printed  # of the sweep, by its finished runs
    assert printed.count("1 run; about") == 2  # of the finetunings
    train, *_, evaluate, report = mine
    assert {"hydra/launcher=packed", "hydra.launcher.runs=2"} <= set(train)
    assert not {"hydra/launcher=packed"} & set(evaluate)
    assert evaluate[0] == "evaluate"
    assert report[0] == "report"
    assert {path: path.stat().st_mtime_ns for path in trained} == trained  # nothing trained anew
    assert len(runs()) == 4
    finetuned = [each for each in runs() if each.path.name.startswith("toy_finetune")]
    for folder in finetuned:
        (measured,) = folder.analysis.glob("evaluate_*.json")
        assert json.loads(measured.read_text())["split"] == "valid"
    page = (tmp_path / "reproductions/mine_tiny/index.html").read_text()
    assert "<h1>Somebody 2020, table 9</h1>" in page
    assert "at size=tiny. Tiny runs. Options of its runs:" in page
    assert "windows.bptt=20" in page
    assert "seed=7" not in page  # the sweep's own axes stay as they are
    seeds = {RunFolder(path.parent).read_result().metrics["test_ppl"] for path in trained}
    assert len(seeds) == 4
    # the commands that a dry run shows can be typed, and do the same
    lmkit(*LINE, "dry_run=true")
    lines = [each.strip() for each in capsys.readouterr().out.splitlines()]
    commands = [shlex.split(each)[1:] for each in lines if each.startswith("lmkit ")]
    assert [words[0] for words in commands] == [words[0] for words in mine]
    (tmp_path / "reproductions/mine_tiny/index.html").unlink()
    for words in commands:
        lmkit(*words)
    assert len(runs()) == 4
    assert (tmp_path / "reproductions/mine_tiny/index.html").read_text() == page
    # a step that fails is named, and the page is written all the same
    with pytest.raises(SystemExit):
        lmkit(*LINE, "measures=[{command: evaluate, options: ['split=nowhere']}]", "out=other")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "error: failed, as shown above: lmkit evaluate; the same command retries"
    assert (tmp_path / "other/index.html").exists()
    (tmp_path / "runs").rename(tmp_path / "moved")
    capsys.readouterr()
    lmkit(*LINE, "runs_dir=moved", "dry_run=true")
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 runs; about" in printed


@pytest.mark.usefixtures("my_conf")
def test_its_sweeps_take_all_options_of_the_launcher(refused, monkeypatch):
    commands: list[list[str]] = []
    monkeypatch.setattr(running, "run_command", lambda words: commands.append(words) or 1)
    launcher = ["hydra/launcher=slurm", "hydra.launcher.gpus=0", "+hydra.launcher.extra.qos=long"]
    launcher += ["+hydra.launcher.extra.exclusive=true", "~hydra.launcher.extra.exclusive"]
    assert "multirun_sweeps=two has failed" in refused(*LINE, *launcher)
    ((*_, config_dir, folder),) = commands
    assert commands[0][-7:] == [*launcher, config_dir, folder]


@pytest.mark.usefixtures("my_conf")
def test_nothing_follows_a_sweep_that_was_stopped(lmkit, monkeypatch):
    commands: list[list[str]] = []
    monkeypatch.setattr(running, "run_command", lambda words: commands.append(words) or STOPPED)
    with pytest.raises(SystemExit) as ended:
        lmkit(*LINE)
    assert (ended.value.code, len(commands)) == (STOPPED, 1)


def test_a_mistake_is_one_line(refused, lmkit):
    assert "did you mean yang_table1?" in refused("reproduce", "yang_tabel1")
    assert "size= takes full, small, toy" in refused("reproduce", "yang_table1", "size=tiny")
    unknown = refused("reproduce", "yang_table1", "dryrun=true")
    assert "did you mean dry_run?" in unknown
    for option in ("training", "finetuning"):
        keep = refused("reproduce", "yang_table1", f"+{option}.keep=none")
        assert keep.startswith(f"{option}.keep=none leaves later steps no checkpoint")
    listed = refused("reproduce", "yang_table1", "+training.foo=[1,2]")
    assert listed.startswith("training: the values of foo must be written as a,b,c")
    later = refused("reproduce", "yang_table1", "size=toy", "+finetuning.lrr=3")
    assert later == "finetune: Could not override 'lrr' (did you mean lr?)"
    measured = refused("reproduce", "yang_table1", "size=toy", "report=['basline=gss']")
    assert measured == "report: Could not override 'basline' (did you mean baseline?)"
    lmkit("reproduce", "yang_table1", "size=toy", "dry_run=true", "report=['title=Größe']")
    dialogue = refused("reproduce", "yang_table3", "size=toy")
    assert dialogue == "table 3 of Yang et al. 2018 cannot be had at size=toy"


@pytest.mark.usefixtures("my_conf")
def test_runs_of_one_name_are_finetuned_one_by_one(lmkit, refused, capsys):
    file, every = Path("my_conf/multirun_sweeps/two.yaml"), "finetunings=[{runs: '*'}]"
    params = '{experiment: toy, name: mine, optimizer.lr: "1,2", seed: "1,2"}'
    file.write_text(SWEEP.replace('{experiment: glob(toy), seed: "1,2"}', params))
    lmkit(*LINE, every, "dry_run=true")
    lines = [each for each in capsys.readouterr().out.splitlines() if "lmkit finetune" in each]
    assert len(set(lines)) == 4
    for line, (lr, seed) in zip(lines, [(1, 1), (1, 2), (2, 1), (2, 2)], strict=True):
        assert f"'run=runs/sweeps/two name:mine optimizer.lr:{lr} seed:{seed}'" in line
    file.write_text(SWEEP.replace('seed: "1,2"', 'trigger: "never,at_epoch"'))
    assert "runs of two are all called toy, and seeds" in refused(*LINE, every, "dry_run=true")


@pytest.mark.usefixtures("my_conf")
def test_the_folder_of_runs_may_have_any_letters(lmkit, capsys):
    lmkit(*LINE, "runs_dir='josé/läufe'", "dry_run=true")
    printed = capsys.readouterr().out
    assert "runs_dir='josé/läufe'" in printed
    assert "2 runs; no estimate: none of that name has finished" in printed


def test_alone_it_lists_papers_and_tables(lmkit, my_conf, capsys, tmp_path):
    lmkit("reproduce", "--config-dir", "my_conf")
    printed = " ".join(capsys.readouterr().out.split())
    assert "orhan_degenerate │ Orhan 2018 │ all figures │" in printed
    assert "yang_table1 │ Yang et al. 2018 │ table 1 │" in printed
    assert "mine │ Somebody 2020 │ table 9 │" in printed
    assert not (tmp_path / "runs").exists()


ITEMS = {
    "Parthiban et al. 2021": [
        *(f"table {n}" for n in range(1, 7)),
        *(f"figure {n}" for n in range(1, 8)),
        *(f"supplement, table {n}" for n in (1, 2, 3, 4, 5, 10, 11, 12, 13, 15)),
        *(f"supplement, figure {n}" for n in (2, 3, 4, 5)),
    ],
    "Yang et al. 2018": [*(f"table {n}" for n in range(1, 9)), "figure 1"],
}


def items(table: str) -> set[str]:
    """What a reproduction's `table` names: "table 6; supplement, figures 2 to 5", one by one."""
    named = set()
    for place in table.split("; "):
        prefix = "supplement, " if place.startswith("supplement, ") else ""
        for kind, numbers in re.findall(r"(table|figure)s? ([\d, andto]*\d)", place):
            first, *others = map(int, re.findall(r"\d+", numbers))
            last = others[-1] if " to " in numbers else first
            each = range(first, last + 1) if " to " in numbers else [first, *others]
            named |= {f"{prefix}{kind} {number}" for number in each}
    return named


def test_every_published_item_is_named_by_a_reproduction():
    named: dict[str, set[str]] = {paper: set() for paper in ITEMS}
    for name in NAMES:
        wanted = yaml.safe_load((entry.CONFIGS / f"reproduce/{name}.yaml").read_text())
        named.setdefault(wanted["paper"], set()).update(items(wanted["table"]))
    for paper, published in ITEMS.items():
        assert set(published) <= named[paper]


def test_a_signal_is_handed_on_and_the_command_may_save(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = tmp_path / "command"
    command.write_text(
        "#!/bin/sh\ntrap 'sleep 0.3; touch saved; exit 0' TERM\ntouch ready\n"
        "while :; do sleep 0.05; done\n"
    )
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))

    def send() -> None:
        wait_for((tmp_path / "ready").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    with meanwhile(send), pytest.raises(StopRequested):
        running.run_command(["train"])
    assert (tmp_path / "saved").exists()


def test_a_reproduction_without_runs_says_nothing_of_their_size(lmkit, capsys, refused):
    lmkit("reproduce", "orhan_degenerate", "size=small", "dry_run=true")
    shown = capsys.readouterr().out
    assert shown.startswith("Orhan 2018, all figures.\n")
    assert "trunk" not in shown
    assert "lmkit report" not in shown  # a page is of runs
    assert "orhan_degenerate has none" in refused("reproduce", "orhan_degenerate", "out=there")


def test_the_page_tells_which_sweep_an_option_is_of(lmkit, capsys):
    lmkit("reproduce", "parthiban_table5", "size=small", "dry_run=true")
    shown = capsys.readouterr().out
    assert "Options of its runs: data.train_tokens=100000, " in shown
    assert "Options of fair_comparison_mos: trunk.emb_dim=48, " in shown


@cache  # most reproductions measure alike
def composes(command: str, *options: str) -> None:
    hydra.compose(command, ["run=none", *options])


@cache
def composed(run: Line) -> Config:
    loader = GlobalHydra.instance().config_loader()
    return Composer(loader, "train", [], entry.config_reader()).compose(run)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["full", "small", "toy"])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_every_reproduction_composes(name, size, monkeypatch):
    """And the names that its commands select are those that its runs get."""
    monkeypatch.setenv("LMKIT_DATA", "data")
    GlobalHydra.instance().clear()
    entry.set_up_hydra()
    with hydra.initialize_config_dir(str(entry.CONFIGS), version_base="1.3"):
        wanted = OmegaConf.to_object(hydra.compose(f"reproduce/{name}", [f"size={size}"]))
        try:
            wanted = wanted.at_its_size()
        except UserError:
            assert (name, size) == ("yang_table3", "toy")  # of dialogues
            return
        for step in wanted.finetunings:
            composes("finetune", *step.options)
        for step in wanted.measures:
            of_size = wanted.size.measures.get(step.command, [])
            composes(f"analyses/{step.command}", *step.options, *of_size)
        for step in wanted.sweeps:
            sweep = reproduce.plan_sweep(step, wanted, reproduce._axes_of(step.sweep, []))
            assert 0 < len(sweep.runs) < (3000 if size == "full" else 200)
            runs = list(dict(sweep.runs).items())  # one of each name
            # a size gives all runs of a sweep the same options
            for called, line in runs if size == "full" else runs[:1]:
                config = composed(line)
                assert config["name"] == called
                assert config["runs_dir"] == {"full": "runs"}.get(size, f"runs/{size}")
                if size == "toy":
                    assert config["data"]["name"] == "toy"
