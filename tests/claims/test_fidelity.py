"""The page's comparison with published logs: kept epochs, in those logs' terms."""

import re

import full_size
import numpy as np
import pandas as pd
import pytest

from lmkit.runs.folder import RunFolder
from tests.tiny import TINY


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    return pd.read_csv(full_size.EPOCHS)


def test_losses_are_means_as_the_authors_program_prints_them():
    # a sum that is printed and emptied after every 200th window, counted from 0
    losses = np.random.default_rng(0).uniform(4, 7, 1_106)
    printed, total = [], 0.0
    for window, loss in enumerate(losses):
        total += loss
        if window % 200 == 0 and window > 0:
            printed.append(total / 200)
            total = 0.0
    np.testing.assert_allclose(full_size.printed_losses(losses), printed, rtol=1e-12)


def test_the_page_has_the_tables_of_the_kept_epochs(kept, tmp_path):
    page = full_size.HERE.parent / "fidelity.md"
    emptied = re.sub(
        r"(<!-- (\w+) -->).*?<!-- \2 -->", r"\1\1", page.read_text("utf-8"), flags=re.S
    )
    copy = tmp_path / "fidelity.md"
    copy.write_text(emptied, "utf-8")
    full_size.write_page(kept, copy)
    assert copy.read_text("utf-8") == page.read_text("utf-8")


def test_the_figure_is_drawn_of_the_kept_epochs(kept):
    figure = full_size.HERE / "full_size.svg"
    assert full_size.drawn(kept) == figure.read_text("utf-8")


@pytest.mark.slow
def test_a_report_draws_the_logs_beside_a_run_that_ended_earlier(lmkit, tmp_path):
    (run,) = full_size.RUNS.glob("penn_mos_nt-8744*")  # five epochs
    lmkit("report", f"runs={run}", f"out={tmp_path / 'report'}")
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "Grey: trainings by others, mos_ptb (omerlux/NLP-PTB); mos_ptb_16 (" in page
    assert "own class window_losses.WindowLosses" in page


def test_a_run_is_kept_in_the_logs_terms(lmkit, tmp_path, monkeypatch):
    monkeypatch.setattr(full_size, "PRINTED_EVERY", 5)  # of 15 windows
    callback = "+callbacks.windows._target_=window_losses.WindowLosses"
    lmkit("train", *TINY, "max_epochs=1", "name=penn_toy", callback)
    (folder,) = (tmp_path / "runs").glob("penn_toy-*/")
    windows = pd.read_csv(folder / "windows.csv", names=["epoch", "window", "nll"])
    assert list(windows["window"]) == list(range(1, len(windows) + 1))

    (epoch,) = full_size.epochs_of(folder).to_dict("records")
    first, second, *_ = map(float, epoch["printed"].split())
    assert first == pytest.approx(np.exp(windows["nll"][:6].sum() / 5), abs=0.005)
    assert second == pytest.approx(np.exp(windows["nll"][6:11].mean()), abs=0.005)
    result = RunFolder(folder).read_result().metrics
    assert epoch["valid_ppl"] == result["valid_ppl"]
    assert epoch["valid"] == pytest.approx(result["valid_ppl"] ** (7_375 / 7_376))
    # windows differ in length: the mean over tokens is near the mean over windows, not equal
    assert np.exp(windows["nll"].mean()) == pytest.approx(result["train_ppl"], rel=0.02)
