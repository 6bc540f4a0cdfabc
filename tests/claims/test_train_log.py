"""What a run says off a terminal, and in its `train.log`: the same lines."""

import itertools
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmkit.runs.train_log import has_diverged
from lmkit.training.callbacks.progress import spectrum_lines, waiting_line
from tests.tiny import TINY, without

NOT_SHORT = without("callbacks.progress_bar", "callbacks.spectrum", "max_epochs")
LINE = (*NOT_SHORT, "callbacks.spectrum.contexts=60", "max_epochs=3")
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def logged(text: str) -> list[str]:
    """The lines of a log without their times, and with # in place of numbers that vary."""
    lines = [re.fullmatch(rf"{TIME}  (.+)", line) for line in text.splitlines()]
    return [re.sub(r"[\d,.]+ tokens/s|[\d,.]*\d", "#", line[1]) for line in lines if line]


def test_a_line_at_the_start_one_an_epoch_and_one_for_each_event(lmkit, refused, run, monkeypatch):
    monkeypatch.setattr("lmkit.training.callbacks.epoch_end.TOLD_AFTER_S", math.inf)
    printed = lmkit("train", *LINE)
    folder = run()
    assert "\r" not in printed
    assert "\x1b" not in printed
    assert logged(printed) == logged(folder.log.read_text())
    text = folder.log.read_text()
    parameters = folder.read_result().cost["parameters"]
    first = f"runs/{folder.path.name}: Softmax on the toy language (40 words), "
    assert re.match(
        f"{TIME}  {re.escape(first)}{parameters:,} parameters, CPU \\(threads: 1\\); starting\n",
        text,
    )
    assert logged(text)[1:6] == [
        "epoch # of #: train perplexity #, valid #, #, # s left",
        "spectrum of log P on valid: Press rank #, stable rank #, entropy rank #",
        "best valid perplexity so far: #",
        "averaging starts with epoch #",
        "saved at step #",
    ]
    assert "epoch # of #: train perplexity #, valid # (averaged weights), #, # s left" in logged(
        text
    )
    assert logged(text)[-3:] == [
        "training stops after epoch #, by max_epochs",
        "measuring the test perplexity and the spectrum of log P",
        "test perplexity #, of epoch #",
    ]
    lmkit("train", *LINE, "max_epochs=4")
    again = folder.log.read_text()
    assert again.startswith(text)
    begins = again.removeprefix(text).splitlines()[0]
    assert re.search(r"; resuming after epoch 3 \(step [\d,]+\)$", begins)
    assert "epoch 4 of 4" in again
    assert logged(again).count("epoch # of #: train perplexity #, valid #, #, # s left") == 1
    folder.result.unlink()  # as if it had been stopped after its last epoch
    assert "has trained 4 epochs: max_epochs=4 or more goes on" in refused("train", *LINE)


def test_a_run_that_its_sweep_does_not_wait_for_is_not_trained(lmkit, capsys, monkeypatch):
    monkeypatch.setenv("LMKIT_RUN", "toy-000000000000")
    with pytest.raises(SystemExit) as end:
        lmkit("train", *TINY)
    assert end.value.code == 78
    assert (
        "and its sweep waits for toy-000000000000: is the kind of device" in capsys.readouterr().err
    )
    assert "LMKIT_RUN" not in os.environ  # which a callback that trains another run would inherit
    assert not Path("runs").exists()


def test_an_option_that_another_one_keeps_from_training_is_told(lmkit):
    said = lmkit("train", *TINY, "optimizer=adam", "sgd_lr=1", "trigger=never", "switch_epoch=1")
    assert "sgd_lr has no effect here: the lr is optimizer.lr\n" in said
    assert "switch_epoch has no effect here: only trigger=at_epoch reads it, unless trigger" in said
    assert "no effect" not in lmkit("train", *without("optimizer."), "sgd_lr=1", "switch_epoch=1")


def test_averaging_that_never_comes_is_not_announced_and_patience_does_not_wait_for_it(lmkit, run):
    lmkit("train", *TINY, "switch_epoch=2", "patience=1")
    log = run().log.read_text()
    assert "averaging starts" not in log
    assert (
        "patience=1 has no effect up to max_epochs=2: it counts from averaging on, which would "
        "start after epoch 2\n"
    ) in log
    assert run().read_result().metrics["switched_after"] is None
    lmkit("train", *TINY, "switch_epoch=2", "patience=1", "max_epochs=3")
    assert "has no effect" not in run().log.read_text().removeprefix(log)
    assert run().read_result().metrics["switched_after"] == 2


@pytest.mark.parametrize(
    ("cores", "core"), [(2, "a core that other work has"), (1, "their turn on 1 core")]
)
def test_the_first_steps_say_how_long_a_run_will_take_and_what_it_waits_for(
    lmkit, run, monkeypatch, cores, core
):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr("lmkit.training.callbacks.epoch_end.TOLD_AFTER_S", 0.0)
    times = ((7 * calls, 3 * calls) for calls in itertools.count())
    monkeypatch.setattr("lmkit.training.callbacks.progress._ran_and_waited", lambda: next(times))
    lmkit("train", *LINE, "threads=2", "max_epochs=1")
    lines = logged(run().log.read_text())
    told = [line for line in lines if "by its first steps" in line]
    assert told == ["about # s per epoch, # s to epoch #, by its first steps"]
    assert lines.index(told[0]) == 1  # after the line of the start
    advice = [line for line in run().log.read_text().splitlines() if "threads=1" in line]
    assert len(advice) == 1
    assert f"  its 2 threads wait 30% of their time for {core}: " in advice[0]


@pytest.mark.parametrize(("threads", "waits"), [(1, 0.9), (2, 0.1)])
def test_threads_that_need_no_advice_get_none(threads, waits):
    assert waiting_line(SimpleNamespace(share_waited=lambda: waits), threads) is None


def test_a_rank_has_all_its_digits():
    ranks = {"press_rank": 12345.0, "stable_rank": 9999.4, "entropy_rank": 1.0094}
    assert spectrum_lines({f"spectrum/valid_log_probs/{name}": x for name, x in ranks.items()}) == [
        "spectrum of log P on valid: Press rank 12,345, stable rank 9,999, entropy rank 1.009"
    ]


def test_a_log_that_cannot_be_written_stops_no_run(lmkit, three):
    three[0].log.unlink()
    three[0].log.mkdir()
    lmkit("train", *TINY, "seed=1", "max_epochs=3")
    assert three[0].read_result().budget.epochs == 3


def test_a_run_that_resumed_after_a_divergence_has_not_diverged(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("2026-01-01 00:00:00  stopped at step 3: the loss is not finite\n")
    assert has_diverged(log)
    log.write_text(log.read_text() + "2026-01-01 00:00:09  resumed at step 0\n")
    assert not has_diverged(log)
