"""Whatever happens to its jobs, a sweep on SLURM ends with the bits of one left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from lmkit.runs.stop_signals import STOPPED
from tests.slurm.conftest import HEADS_ALONE, Process, Sweep

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def cluster_lines(sweep) -> list[str]:
    """The commands of the manual's page, in order, with this sweep and on this node."""
    text = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    for theirs, ours in (
        ("multirun_sweeps=gss_grid_penn", " ".join(sweep.overrides)),
        ("gss_grid_penn", "smoke"),
        ("hydra/launcher=slurm", "hydra/launcher=slurm hydra.launcher.gpus=0"),
        ("=gpu", "=low"),
        ("--gpus=1", ""),
        ("--cpus-per-task=2", ""),
        ("--array=1-8", "--array=1-2"),
        ("/shared/runs", "runs"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    return text.splitlines()


def test_each_point_is_a_job_of_one_array(sweep, undisturbed):
    process = sweep.typed(cluster_lines(sweep)[0])
    text = process.said()
    assert process.returncode == 0, text
    assert "3 jobs submitted" in text
    assert text.count("] finished: ") == 3
    assert len(sweep.job_logs()) == 3
    assert sweep.metrics() == undisturbed


def test_every_job_runs_out_of_time(sweep, undisturbed):
    """Each has two minutes when it trains, no more, and plenty before and when it goes on."""
    times = ["hydra.launcher.time_min=1", "hydra.launcher.signal_delay_s=110"]
    process = sweep.on_slurm(*times, "logger=wandb", "sweep.sample=2")
    limits: dict[str, int] = {}

    def limit(job: str, minutes: int) -> None:
        if limits.get(job) != minutes:
            limits[job] = minutes
            with suppress(subprocess.CalledProcessError):  # it has just ended
                sweep.slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    def has_ended() -> bool:
        stopped = [pinned for pinned in sweep.pin() if pinned.is_stopped]
        listed = sweep.slurm("squeue", "-h", "--states=R", "-O", "JobID,JobArrayID,TimeUsed")
        for number, job, used in (line.split() for line in listed.splitlines()):
            if not used[0].isdigit():
                continue  # SLURM says INVALID of one that is on its way back into the queue
            over = any(pinned.holder.job_id == number for pinned in stopped)
            if not over or limits.get(job, 60) == 60:
                limit(job, int(used.split(":")[0]) + 2 if over else 60)
        for pinned in stopped:
            if pinned.is_asked():
                pinned.release()
        return process.poll() is not None

    sweep.wait_for(has_ended)
    text = process.said()
    assert process.returncode == 0, text
    assert "2 jobs submitted" in text
    assert sum("this job is timed-out" in log for log in sweep.job_logs()) == 2
    for run in sweep.runs():
        assert "stopped by SIGUSR2: saved at step" in sweep.log(run)
    metrics = sweep.metrics()
    assert metrics == {run: undisturbed[run] for run in metrics}


def test_a_job_of_higher_priority_takes_the_node(sweep, undisturbed):
    process = sweep.on_slurm("hydra.launcher.time_min=60")
    pinned = sweep.pinned_to(2)
    sweep.slurm("sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 2")
    for each in list(pinned):
        sweep.wait_for(each.is_asked)
        each.release()
    text = process.said()
    assert process.returncode == 0, text
    assert "3 jobs submitted" in text
    assert sum("this job is preempted" in log for log in sweep.job_logs()) == 2
    for each in pinned:
        assert "stopped by SIGUSR2: saved at step" in sweep.log(each.run)
    assert sweep.metrics() == undisturbed


def test_runs_and_jobs_are_killed(sweep, undisturbed):
    process = sweep.on_slurm()
    one, other = sweep.pinned_to(2)
    os.kill(one.process, signal.SIGKILL)
    for process_id in (parent(other.process), other.process):  # the job and all in it
        os.kill(process_id, signal.SIGKILL)
    text = process.said()
    assert process.returncode == 0, text
    assert sum("killed by SIGKILL, attempt 2 follows" in log for log in sweep.job_logs()) == 1
    assert re.search(r"job \d+_\d ended without a result: failed, attempt 2 follows", text)
    assert "1 jobs submitted" in text
    assert sweep.metrics() == undisturbed


def test_the_controlling_process_is_killed_and_its_line_typed_again(sweep, undisturbed):
    first = sweep.on_slurm()
    pinned = list(sweep.pinned_to(2))
    first.kill()
    first.communicate()
    again = sweep.on_slurm()
    known = "3 jobs of an earlier launch are queued or running\n"
    sweep.wait_for(lambda: again.stdout.readline() == known)
    for each in pinned:
        each.release()
    text = again.said()
    assert again.returncode == 0, text
    assert "submitted" not in text
    for run in sweep.runs():
        assert sweep.log(run).count("run folder:") == 1
    assert sweep.metrics() == undisturbed


def test_heads_alone_that_are_told_to_stop_go_on(tmp_path, sweep):
    """`sweep stop` ends the launcher and the jobs, which save; the command again resumes them."""
    small = ["data.train_tokens=20000", "data.valid_tokens=2000", "data.test_tokens=2000"]
    train = ["lmkit", "train", "threads=1", "max_epochs=1", "logger=csv", "runs_dir=trunks"]
    trunk = Process(tmp_path, *train, *small, "conclusion.contexts=200")
    assert trunk.wait() == 0, trunk.said()
    (result,) = tmp_path.glob("trunks/*/result.json")
    sweep.overrides = [*HEADS_ALONE, f"trunk.of={result.parent}"]
    alone = Sweep(tmp_path / "alone")
    alone.folder.mkdir()
    alone.overrides = sweep.overrides
    local = alone.here()
    text = local.said()
    assert local.returncode == 0, text
    process = sweep.on_slurm()
    pinned = list(sweep.pinned_to(2))
    stop = sweep.typed("lmkit sweep stop smoke")
    assert "2 runs of smoke" in stop.said()
    for each in pinned:
        sweep.wait_for(each.is_asked)
        each.release()
    text = process.said()
    assert process.returncode == STOPPED, text
    sweep.wait_for(lambda: not sweep.slurm("squeue", "-h"))
    for each in pinned:
        assert "saved at step" in sweep.log(each.run)
        assert not each.run.result.exists()
    again = sweep.on_slurm()
    text = again.said()
    assert again.returncode == 0, text
    assert sweep.metrics() == alone.metrics()


def test_a_job_that_is_cancelled_is_a_failure_that_ends_no_other(sweep):
    process = sweep.on_slurm()
    one, other = sweep.pinned_to(2)
    sweep.slurm("scancel", sweep.job(one))
    one.release()
    other.release()
    text = process.said()
    assert process.returncode == 1, text
    assert re.search(r"failed after 1 attempt: .*ended without a result: cancelled", text)
    assert "stopped by SIGTERM: saved at step" in sweep.log(one.run)
    assert text.count("] finished: ") == 2


def test_workers_share_a_sweep_and_one_is_told_to_leave(sweep, undisturbed):
    _, plan, workers = cluster_lines(sweep)
    process = sweep.typed(plan)
    text = process.said()
    assert process.returncode == 0, text
    assert "waiting for workers (3)" in text
    assert sweep.typed(workers).wait() == 0
    one, other = sweep.pinned_to(2)
    sweep.slurm("scancel", "--batch", "--signal=TERM", sweep.job(one))  # as --signal=B:TERM does
    sweep.wait_for(one.is_asked)
    one.release()
    other.release()
    sweep.wait_for(lambda: not sweep.slurm("squeue", "-h"))
    assert "stopped by SIGTERM: saved at step" in sweep.log(one.run)
    outputs = [path.read_text() for path in sweep.folder.glob("slurm-*.out")]
    assert sum("SIGTERM: the same command resumes" in output for output in outputs) == 1
    assert sweep.metrics() == undisturbed


def test_a_job_of_hydras_own_launcher_that_loses_its_node_goes_on(sweep, undisturbed):
    process = sweep.by_hydra(
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.cpus_per_task=1",
    )
    pinned = sweep.pinned_to(2)
    sweep.slurm("sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 2")
    for each in list(pinned):
        sweep.wait_for(each.is_asked)
        each.release()
    text = process.said()
    assert process.returncode == 0, text
    logs = "".join(log.read_text() for log in sweep.folder.rglob("*_log.*"))
    assert logs.count("stopped by SIGUSR2: saved at step") == 2
    assert "this job is preempted" in logs
    metrics = sweep.metrics()
    assert len(metrics) == 2
    assert metrics == {run: undisturbed[run] for run in metrics}
