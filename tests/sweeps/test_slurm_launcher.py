"""Options of hydra/launcher=slurm, and what is read from SLURM's own commands."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lmkit.cli.entry import CONFIGS
from lmkit.errors.user_error import UserError
from lmkit.sweeps import slurm_queue
from lmkit.sweeps.slurm import Slurm
from lmkit.sweeps.slurm_job import Ended, TrainPoint
from lmkit.sweeps.slurm_queue import Queue, executor_in, has_ended, max_array_size


def launcher(**options: object) -> Slurm:
    section = OmegaConf.load(CONFIGS / "hydra" / "launcher" / "slurm.yaml")
    return instantiate(OmegaConf.merge(section, options))


def put(folder, name: str, script: str) -> None:
    """A command of SLURM's that does as `script` says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A folder of commands that goes before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("srun", "sbatch", "squeue", "scontrol"):
        put(folder, name, "exit 1")
    return folder


@pytest.mark.parametrize(
    ("option", "value"),
    [("time_min", 0), ("gpus", -1), ("cpus", 0), ("mem_gb", 0), ("array_parallelism", "8")],
)
def test_bad_values_name_their_option(option, value):
    with pytest.raises(Exception, match=rf"hydra\.launcher\.{option} must be"):
        launcher(**{option: value})


def test_the_runs_see_a_gpu_when_they_are_given_one():
    assert launcher().has_gpu
    assert not launcher(gpus=0).has_gpu
    assert launcher(array_parallelism=8).slots() == 8


def test_nobody_else_can_touch_the_files_that_jobs_run(commands, tmp_path, monkeypatch):
    jobs = tmp_path / "runs" / "jobs"
    executor_in(jobs, 5)
    assert jobs.stat().st_mode & 0o777 == 0o700
    jobs.chmod(0o775)  # as an earlier lmkit left it, under a umask of groups
    executor_in(jobs, 5)
    assert jobs.stat().st_mode & 0o777 == 0o700
    (jobs / "7_0_submitted.pkl").write_bytes(b"")
    executor_in(jobs, 5)
    jobs.chmod(0o777)
    with pytest.raises(UserError, match="could be written by other users"):
        executor_in(jobs, 5)
    jobs.chmod(0o700)
    monkeypatch.setattr(slurm_queue.os, "getuid", lambda: -1)
    with pytest.raises(UserError, match="is not your folder"):
        executor_in(jobs, 5)


def test_the_files_of_jobs_are_read_while_nobody_else_can_replace_their_folder(commands, tmp_path):
    runs, jobs = tmp_path / "runs", tmp_path / "runs" / "jobs"
    queue = Queue(executor_in(jobs, 5), "a-sweep")
    (jobs / "7_0_result.pkl").write_bytes(pickle.dumps(("success", Ended(0, None))))
    readings = [lambda: queue.results(["7_0"]), lambda: queue.point("7_1")]
    readings.append(lambda: executor_in(jobs, 5))
    for mode in (0o777, 0o1777, 0o755):
        runs.chmod(mode)
        for read in readings:
            if mode == 0o777:
                with pytest.raises(UserError, match=rf"type chmod \+t {runs}"):
                    read()
            else:
                read()
    jobs.rename(runs / "mine")
    jobs.mkdir(mode=0o777)
    jobs.chmod(0o777)
    for read in readings[:2]:
        with pytest.raises(UserError, match="could be written by other users"):
            read()


@pytest.mark.parametrize(("group", "is_refused"), [("me", False), ("lab", True), (None, True)])
def test_a_group_that_is_the_users_alone_may_write_beside_the_jobs(
    group, is_refused, commands, tmp_path, monkeypatch
):
    def by_number(_: int) -> SimpleNamespace:
        if group is None:
            raise KeyError
        return SimpleNamespace(gr_name=group)

    monkeypatch.setattr(slurm_queue.grp, "getgrgid", by_number)
    monkeypatch.setattr(slurm_queue.pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(0o775)
    with pytest.raises(UserError, match=r"chmod \+t") if is_refused else nullcontext():
        executor_in(tmp_path / "runs" / "jobs", 5)


def test_what_is_asked_of_sbatch(sweep_of, commands, tmp_path):
    sweep = sweep_of("ok", "ok")
    put(commands, "sbatch", f'cp "$1" {tmp_path}/script; echo Submitted batch job 7')
    put(commands, "squeue", "exit 0")
    slurm = launcher(partition="gpu", time_min=90, cpus=3, mem_gb=7.5, account="me")
    executor = executor_in(sweep.path / "jobs", 5)
    executor.update_parameters(name="lmkit-mine", **slurm._parameters)
    queue = Queue(executor, "lmkit-mine")
    ids = queue.submit([TrainPoint(sweep, {}), TrainPoint(sweep, {})])
    assert ids == ["7_0", "7_1"]
    script = (tmp_path / "script").read_text()
    for option in (
        "partition=gpu",
        "account=me",
        "time=90",
        "gpus-per-node=1",
        "cpus-per-task=3",
        "mem=7680MB",
        "array=0-1%2",
        "signal=USR2@120",
        "job-name=lmkit-mine",
        "requeue",
    ):
        assert f"#SBATCH --{option}\n" in script
    assert "--cpus-per-task=3" in next(line for line in script.splitlines() if "srun" in line)
    assert queue.point("7_1") == sweep.manifest.points[0]
    assert queue.point("8_0") is None


def test_a_refusal_of_sbatch_is_one_line(sweep_of, commands):
    sweep = sweep_of("ok")
    put(commands, "sbatch", "echo sbatch: error: invalid partition specified: x >&2; exit 1")
    queue = Queue(executor_in(sweep.path / "jobs", 0), "lmkit-mine")
    with pytest.raises(UserError, match=r"SLURM takes no jobs: .*invalid partition specified: x"):
        queue.submit([TrainPoint(sweep, {})])


def test_states_are_read_from_squeue(sweep_of, commands):
    queue = Queue(executor_in(sweep_of("ok").path / "jobs", 0), "lmkit-mine")
    assert queue.states() is None  # it does not answer
    put(commands, "squeue", r"printf '12_0|RUNNING\n12_10|PENDING \n13|OUT_OF_MEMORY\n'")
    assert queue.states() == {"12_0": "RUNNING", "12_10": "PENDING", "13": "OUT_OF_MEMORY"}
    assert [has_ended(state) for state in ("COMPLETING", "REQUEUED", "CANCELLED", None)] == [
        False,
        False,
        True,
        True,
    ]


def test_results_are_what_jobs_have_left(sweep_of, commands):
    queue = Queue(executor_in(sweep_of("ok").path / "jobs", 0), "lmkit-mine")
    assert queue.results(["7_0"]) == {}
    from submitit.core.utils import cloudpickle_dump

    cloudpickle_dump(("success", Ended("held")), queue.executor.folder / "7_0_0_result.pkl")
    cloudpickle_dump(("error", "text"), queue.executor.folder / "7_1_0_result.pkl")
    assert queue.results(["7_0", "7_1", "7_2"]) == {"7_0": Ended("held"), "7_1": "text"}


def test_the_size_of_arrays_is_the_clusters(commands):
    assert max_array_size() == slurm_queue._MAX_ARRAY
    put(commands, "scontrol", "echo 'MaxArraySize            = 4001'")
    assert max_array_size() == 4001


def test_a_cluster_without_arrays_is_refused(commands):
    put(commands, "scontrol", "echo 'MaxArraySize            = 0'")
    with pytest.raises(UserError, match=r"cluster takes none \(MaxArraySize = 0\)"):
        max_array_size()


def test_without_slurm_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs SLURM's commands"):
        executor_in(tmp_path, 0)
