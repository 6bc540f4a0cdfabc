"""The head of the README, run by the README's command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from lmkit.runs.folder import RunFolder
from tests.forked import typed

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
SMALL = [
    "threads=1",
    "logger=csv",
    "callbacks.progress_bar=null",
    "data.train_tokens=4000",
    "data.valid_tokens=500",
    "data.test_tokens=500",
    "max_epochs=1",
]


def test_the_head_of_the_readme_trains_by_its_command(tmp_path):
    (code,) = re.findall(r"```python\n# heads.py\n(.*?)```", README, re.DOTALL)
    (command,) = re.findall(r"lmkit (train .*heads\.Cube.*)", README)
    (tmp_path / "heads.py").write_text(code)
    typed(tmp_path, *shlex.split(command), *SMALL).check_returncode()
    (folder,) = (RunFolder(path.parent) for path in (tmp_path / "runs").glob("*/config.yaml"))
    assert folder.read_result().metrics["test_ppl"] < 250
    assert "heads.Cube" in folder.config.read_text()
