"""The room is quick to enter: status commands depend on it. One module, of arrays, needs numpy."""

import subprocess
import sys
from pathlib import Path

import lmkit.runs

ROOM = Path(lmkit.runs.__file__).parent
MODULES = sorted(path.stem for path in ROOM.glob("[!_]*.py") if path.stem != "spectrum_files")


def test_entering_brings_nothing_heavy() -> None:
    heavy = ["torch", "pytorch_lightning", "numpy", "pandas", "wandb", "hydra", "omegaconf"]
    heavy += ["matplotlib", "scipy", "rich"]
    imports = "".join(f"import lmkit.runs.{name}\n" for name in MODULES)
    code = f"import sys\n{imports}print(*(sys.modules.keys() & {heavy}))"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
