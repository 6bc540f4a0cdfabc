"""Commands import no more than they need: torch and Lightning take most of a start's seconds."""

import subprocess
import sys
from pathlib import Path

from tests.tiny import TINY

# the command, then which of these it has imported
CODE = """\
import sys
from lmkit.cli.main import main
main()
print("imported", *sorted({"torch", "pytorch_lightning", "wandb"} & sys.modules.keys()))
"""


def run(folder: Path, *arguments: str) -> str:
    line = [sys.executable, "-c", CODE, *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_finished_run_is_skipped_without_torch(trained: Path):
    told = run(trained.parent, "train", *TINY, "seed=1", "trainer.accelerator=cpu")
    assert "already finished: runs/toy-" in told
    assert told.splitlines()[-1] == "imported"
