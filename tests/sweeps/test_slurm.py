"""Options of hydra/launcher=slurm, its script, and what SLURM's commands are told."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from rich.console import Console

from lmkit.cli.entry import CONFIGS
from lmkit.cli.sweep import status, stop
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.slurm import Slurm, cancel, job_name, jobs_of
from tests.waiting import wait_for


def slurm(**options: object) -> Slurm:
    section = OmegaConf.load(CONFIGS / "hydra" / "launcher" / "slurm.yaml")
    section._target_ = section.pop("trains")
    OmegaConf.set_struct(section, True)  # as Hydra has it
    return instantiate(OmegaConf.merge(section, options))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of SLURM's commands: each writes its arguments and environment beside itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, says in (("sbatch", "echo 17"), ("squeue", ":"), ("scancel", ":")):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$@" > {path}.said\nenv > {path}.env\n{says}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize(
    ("option", "value"),
    [("time_min", 0), ("gpus", -1), ("cpus", 0), ("mem_gb", 0), ("array_parallelism", "8")],
)
def test_bad_values_name_their_option(option, value):
    with pytest.raises(Exception, match=rf"hydra\.launcher\.{option} must be"):
        slurm(**{option: value})


def test_the_script_has_every_option_and_ends_in_a_worker(sweep_of):
    sweep = sweep_of("ok", "ok", "ok")
    options = {"partition": "a", "account": "b", "mem_gb": 1.5, "gpus": 0, "time_min": 30}
    extra = {"qos": "long", "exclusive": True, "overcommit": False, "nice": 0}
    made = slurm(**options, setup=["module load cuda"], extra=extra)
    text = made.script(sweep, 3)
    head = {line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line}
    assert head == {
        "partition=a", "account=b", "time=30", "signal=B:USR2@120", "cpus-per-task=2",
        "mem=1536M", "requeue", "open-mode=append", "qos=long", "exclusive",
        "nice=0", f"job-name={job_name(sweep)}", "array=0-2", f"chdir={sweep.manifest.started_in}",
        f"output={sweep.path}/logs/job-%A_%a.log",
    }  # fmt: skip
    assert "\nmodule load cuda\nexport CUDA_VISIBLE_DEVICES=\n" in text
    assert f"-Pm lmkit sweep work {sweep.path} &\n" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    sweep.path = Path("/shared/my runs/sweeps/mine")
    sweep.manifest = replace(sweep.manifest, started_in="/home/josé w")
    text = slurm().script(sweep, 1)
    assert "#SBATCH --chdir='/home/josé w'" in text
    assert "sweep work '/shared/my runs/sweeps/mine' &" in text
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_a_job_trains_several_points_at_a_time(sweep_of, commands, capsys):
    sweep = sweep_of(*["ok"] * 5)
    slurm(gpus=2, per_device=2, cpus=3)(sweep, sweep.manifest.points)
    assert capsys.readouterr().out.startswith("array 17: 2 workers, by ")
    text = (sweep.path / "slurm.sh").read_text()
    assert "--gpus-per-node=2\n" in text
    assert "--cpus-per-task=12\n" in text
    assert f"sweep work {sweep.path} per_device=2 &\n" in text


def test_options_of_jobs_that_exclude_each_other_are_refused():
    with pytest.raises(InstantiationException, match=r"signal_delay_s=120 must be less"):
        slurm(time_min=1)
    for option in ("gres", "gpus-per-node"):
        with pytest.raises(InstantiationException, match=rf"{option} goes with .*gpus=1 or more"):
            slurm(gpus=0, extra={option: "gpu:h100:1"})
    made = slurm(extra={"gpus-per-node": "h100:1"})
    assert made._options["gpus-per-node"] == "h100:1"
    for option, value in (
        *(("gpus-per-node", "h100:4"), ("gpus-per-node", 4), ("gres", "gpu:4"), ("gpus", 4)),
        *(("gpus-per-task", "h100:4"), ("tres-per-task", "gres/gpu:4")),
    ):
        with pytest.raises(
            InstantiationException, match=rf"{option}={value} differs from .*gpus=1"
        ):
            slurm(extra={option: value})
        assert slurm(gpus=4, extra={option: value})._options["cpus-per-task"] == 8
    assert slurm(extra={"exclusive": "", "gres": "gpu:h100:1(S:0-1)"})


@pytest.mark.parametrize("option", ["job-name", "array", "chdir", "output"])
def test_what_lmkit_sets_is_no_further_option(option):
    with pytest.raises(InstantiationException, match=rf"launcher\.extra\.{option} cannot be set"):
        slurm(extra={option: "x"})


@pytest.mark.parametrize(
    ("signal", "moment", "status", "restarts", "requeued"),
    [
        ("USR2", "while it trains", 75, "0", True),  # told that its time is nearly over
        ("USR2", "while it trains", 75, "100", False),  # as often as it may be
        ("USR2", "while it trains", 0, "0", False),  # but it was just done
        ("TERM", "while it trains", 75, "0", False),  # preempted or cancelled: SLURM knows which
        ("USR2", "before it starts", 143, "0", True),
        ("TERM", "before it starts", 143, "0", False),
    ],
)
def test_a_job_is_queued_again_when_its_time_is_over(
    sweep_of, tmp_path, commands, signal, moment, status, restarts, requeued
):
    early = [f"kill -{signal} $$"] if moment == "before it starts" else []
    text = slurm(setup=early).script(sweep_of("ok"), 1)
    worker = next(line for line in text.splitlines() if line.endswith(" &"))
    saves = f"bash -c 'trap \"sleep 0.2; exit {status}\" TERM; touch ready; sleep 9 & wait' &"
    text = text.replace(worker, "sleep 9 &" if early else saves)
    (commands / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/requeued\n')
    (commands / "scontrol").chmod(0o755)
    ids = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_RESTART_COUNT": restarts}
    job = subprocess.Popen(["bash", "-c", text], cwd=tmp_path, env=os.environ | ids)
    if not early:
        wait_for(lambda: (tmp_path / "ready").exists() or job.poll() is not None)
        assert job.poll() is None
        subprocess.run(["kill", f"-{signal}", str(job.pid)], check=True)
    assert job.wait(600) == status
    assert (tmp_path / "requeued").exists() == requeued
    if requeued:
        assert (tmp_path / "requeued").read_text() == "requeue 7_2\n"


def test_as_many_workers_are_submitted_as_there_are_points_less_those_that_are_there(
    sweep_of, commands, capsys
):
    sweep = sweep_of("ok", "ok", "ok")
    slurm(array_parallelism=2)(sweep, sweep.manifest.points)
    script = sweep.path / "slurm.sh"
    assert capsys.readouterr().out == f"array 17: 2 workers, by {script}\n"
    assert (commands / "sbatch.said").read_text() == f"--parsable --array=0-1 {script}\n"
    (commands / "squeue").write_text("#!/bin/sh\necho PENDING; echo RUNNING; echo COMPLETING\n")
    slurm()(sweep, sweep.manifest.points)
    assert (commands / "sbatch.said").read_text() == f"--parsable --array=0-0 {script}\n"
    assert capsys.readouterr().out == (
        f"array 17: 1 worker, by {script}\n"
        "2 workers of an earlier command still queued or running\n"
    )
    assert jobs_of(sweep) == ["PENDING", "RUNNING", "COMPLETING"]


def test_a_stop_ends_the_jobs_of_a_sweep_that_has_some(sweep_of, commands):
    sweep = sweep_of("ok")
    cancel(sweep)
    assert not (commands / "scancel.said").exists()
    (sweep.path / "slurm.sh").touch()
    stop(sweep)
    said = (commands / "scancel.said").read_text()
    assert said == f"--name={job_name(sweep)} --user={os.getuid()}\n"


def test_a_stop_where_jobs_cannot_be_cancelled_tells_both(sweep_of, commands, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(commands))  # this machine may have SLURM
    sweep = sweep_of("ok")
    (sweep.path / "slurm.sh").touch()
    (commands / "scancel").unlink()
    with pytest.raises(
        UserError, match=r"^scancel, .* where it is, type scancel --name=lmkit-mine"
    ):
        stop(sweep)
    assert "0 runs of mine running: whatever trains them" in capsys.readouterr().out


def test_jobs_of_sweeps_of_one_name_in_two_folders_are_told_apart(sweep_of, tmp_path, monkeypatch):
    sweep = sweep_of("ok")
    monkeypatch.chdir(sweep.path.parent)
    beside = SweepFolder(tmp_path / "others" / "sweeps" / "mine", sweep.manifest)
    names = [job_name(SweepFolder(Path("../sweeps/mine"), sweep.manifest)), job_name(beside)]
    assert names[0] == job_name(sweep) != names[1]
    assert all(name.startswith("lmkit-mine-") for name in names)


def test_where_slurm_does_not_answer_no_further_array_is_submitted(sweep_of, commands, capsys):
    sweep = sweep_of("ok")
    (commands / "squeue").write_text("#!/bin/sh\necho 'Socket timed out' >&2; exit 1\n")
    with pytest.raises(UserError, match=r"^squeue: Socket timed out$"):
        slurm()(sweep, sweep.manifest.points)
    assert not (commands / "sbatch.said").exists()
    console = Console(width=200)
    status(sweep, console, shows_all=False)
    assert "its workers on SLURM: not known (squeue: Socket timed out)\n" in capsys.readouterr().out


def test_an_allocations_variables_do_not_reach_sbatch(sweep_of, commands, monkeypatch):
    """They would be options of the jobs: memory by CPU and by node exclude each other."""
    sweep = sweep_of("ok")
    for name in ("SLURM_MEM_PER_CPU", "SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_CONF", "MINE"):
        monkeypatch.setenv(name, "1")
    slurm()(sweep, sweep.manifest.points)
    names = {line.partition("=")[0] for line in (commands / "sbatch.env").read_text().splitlines()}
    assert {"SLURM_CONF", "MINE"} <= names
    assert not {"SLURM_MEM_PER_CPU", "SLURM_JOB_ID", "SLURMD_NODENAME"} & names


def test_a_refusal_is_one_line_and_the_script_stays(sweep_of, commands, monkeypatch):
    sweep = sweep_of("ok")
    (commands / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: no\n such qos' >&2; exit 1\n")
    with pytest.raises(UserError, match=r"^sbatch: sbatch: error: no such qos$"):
        slurm()(sweep, sweep.manifest.points)
    assert (sweep.path / "slurm.sh").exists()
    (commands / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(UserError, match=r"not on PATH here; where it is, type sbatch .*/slurm\.sh"):
        slurm()(sweep, sweep.manifest.points)
