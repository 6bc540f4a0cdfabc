"""The script of docs/search.md: killed and started again, it ends with the trials asked for."""

import re
import signal
import subprocess
import sys
import time

import pytest

from lmkit.runs.metrics import MetricsFile
from tests.conftest import REPOSITORY
from tests.faults.comparison import runs_in
from tests.tiny import TINY

PAGE = REPOSITORY / "docs" / "search.md"


@pytest.mark.slow
def test_the_script_of_the_page_is_killed_and_goes_on(tmp_path):
    optuna = pytest.importorskip("optuna")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for theirs, ours in (
        ('"experiment=toy"', f"*{(*TINY, 'max_epochs=8')!r}"),
        ("heartbeat_interval=60", "heartbeat_interval=1"),
        ("MaxTrialsCallback(20", "MaxTrialsCallback(3"),
    ):
        assert theirs in code
        code = code.replace(theirs, ours)
    (tmp_path / "search.py").write_text(code)

    def start() -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen([sys.executable, "search.py"], cwd=tmp_path, text=True, **pipes)

    first = start()
    while not any(MetricsFile(file).read() for file in tmp_path.glob("runs/*/metrics.csv")):
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(3)  # without a heartbeat
    second = start()
    text, _ = second.communicate()
    assert second.returncode == 0, text
    study = optuna.load_study(study_name="rates", storage=f"sqlite:///{tmp_path}/rates.db")
    states = [trial.state.name for trial in study.trials]
    killed = states.index("FAIL")
    assert study.trials[killed + 1].params == study.trials[killed].params
    assert states[killed + 1] in ("COMPLETE", "PRUNED")
    assert len(states) >= 3
    assert "RUNNING" not in states
    runs = runs_in(tmp_path / "runs")
    assert len(runs) == len({str(trial.params) for trial in study.trials})  # none twice
    for run in runs:
        rows = [row["epoch"] for row in MetricsFile(run.metrics).read() if "valid/ppl" in row]
        assert rows == list(range(1, len(rows) + 1))
    assert study.best_value == min(
        run.read_result().metrics["valid_ppl"] for run in runs if run.state() == "finished"
    )
