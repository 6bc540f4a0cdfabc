"""Whatever happens to its jobs, a sweep on SLURM ends with the bits of one left alone."""

import os
import re
import signal
import subprocess
from pathlib import Path

from tests.slurm.conftest import SMOKE

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def cluster_lines() -> list[str]:
    """The commands of the manual's page, in order, with this sweep and on this node."""
    text = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    for theirs, ours in (
        ("multirun_sweeps=gss_grid_penn", " ".join([*SMOKE, "seed=141"])),
        ("gss_grid_penn", "smoke"),
        ("hydra/launcher=slurm", "hydra/launcher=slurm hydra.launcher.gpus=0"),
        ("partition=gpu", "partition=low hydra.launcher.array_parallelism=2"),
        ("--gpus=1", ""),
        ("/shared/runs", "runs"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    return [line.partition("  #")[0] for line in text.splitlines()]


def test_the_lines_of_the_page(sweep, undisturbed):
    submit, status, by_hand, plan, work = cluster_lines()
    sweep.slurm("scontrol", "update", "PartitionName=low", "State=down")
    process = sweep.typed(submit)  # its jobs wait, however slow the next command is
    text = process.said()
    assert process.returncode == 0, text
    assert re.search(r"array \d+: 2 workers, by ", text)
    again = sweep.typed(submit).said()
    assert "2 workers of an earlier command still queued or running" in again
    assert "array " not in again
    assert "its workers on SLURM: 2 " in sweep.typed(status).said()
    sweep.slurm("scontrol", "update", "PartitionName=low", "State=up")
    sweep.wait_for_the_end()
    assert "6 runs: 6 finished" in sweep.typed(status).said()
    metrics = sweep.metrics()
    assert metrics == {run: undisturbed[run] for run in metrics}
    subprocess.run(["rm", "-r", sweep.runs()[0].path], check=True)
    assert sweep.typed(by_hand).wait() == 0
    sweep.wait_for_the_end()
    assert sweep.metrics() == metrics
    assert "nothing is left to train" in sweep.typed(plan).said()
    assert sweep.typed(work).wait() == 0


def test_a_killed_job_one_at_its_time_limit_and_two_preempted(sweep, undisturbed):
    """Twelve points on two processors, by four workers of which two run."""
    assert "4 workers" in sweep.on_slurm("hydra.launcher.signal_delay_s=110")
    killed, late = sweep.pin_two()
    worker = parent(killed.process)
    for process in (parent(worker), worker, killed.process):  # the job and all in it
        os.kill(process, signal.SIGKILL)
    job = sweep.job(late)
    used = sweep.slurm("squeue", "-h", "--array", f"--job={job}", "-O", "TimeUsed").strip()
    minutes = int(used.split(":")[-2]) + 2  # less than two minutes are left
    sweep.slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")
    sweep.wait_for(late.is_asked)
    late.release()
    sweep.wait_for(lambda: "saved at step" in sweep.log(late.run))
    sweep.wait_for(lambda: "Restarts=1" in sweep.slurm("scontrol", "show", "job", job))
    sweep.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")

    preempted = sweep.pin_two()
    sweep.slurm("sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 2")
    for each in preempted:
        sweep.wait_for(each.is_asked)
        each.release()
    sweep.wait_for_the_end()
    for each in (late, *preempted):
        assert "stopped by SIGTERM: saved at step" in sweep.log(each.run)
    assert sweep.log(killed.run).count("run folder:") == 1
    assert sweep.metrics() == undisturbed
    assert len(undisturbed) == 12


def test_a_sweep_that_is_told_to_stop_goes_on(sweep, undisturbed):
    """`sweep stop` ends the jobs, whose runs save; the command again submits others."""
    sweep.on_slurm("seed=141")
    pinned = sweep.pin_two()
    stop = sweep.typed("lmkit sweep stop smoke")
    for each in pinned:
        sweep.wait_for(each.is_asked)
        each.release()
    assert "2 runs of smoke" in stop.said()
    sweep.wait_for_the_end()
    for each in pinned:
        assert "saved at step" in sweep.log(each.run)
        assert not each.run.result.exists()
    sweep.on_slurm("seed=141")
    sweep.wait_for_the_end()
    metrics = sweep.metrics()
    assert metrics == {run: undisturbed[run] for run in metrics}


def test_a_job_of_submitits_that_loses_its_node_goes_on(sweep, undisturbed):
    line = ["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "seed=141"]
    process = sweep.here(*line, "head/transform=identity,plif", "head/mixture=softmaxes")
    sweep.wait_for((sweep.path / "manifest.json").exists)
    pinned = sweep.pin_two()
    sweep.slurm("sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 2")
    for each in pinned:
        sweep.wait_for(each.is_asked)
        each.release()
    text = process.said()
    assert process.returncode == 0, text
    metrics = sweep.metrics()
    assert metrics == {run: undisturbed[run] for run in metrics}
