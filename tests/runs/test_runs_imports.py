"""The room is quick to enter: status commands depend on it. One module, of arrays, needs numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmkit.runs

ROOM = Path(lmkit.runs.__file__).parent
MODULES = sorted(path.stem for path in ROOM.glob("[!_]*.py") if path.stem != "spectrum_files")


def test_light_and_quick() -> None:
    imports = "".join(f"import lmkit.runs.{name}\n" for name in MODULES)
    heavy = "{'torch', 'pytorch_lightning', 'numpy', 'pandas', 'wandb', 'hydra', 'omegaconf'}"
    code = (
        "import sys, time\nbefore = time.perf_counter()\n"
        + imports
        + f"print(time.perf_counter() - before, *(sys.modules.keys() & {heavy}))"
    )
    best_s = float("inf")
    for _ in range(5):  # the machine may be busy: the quickest is what the code itself takes
        command = [sys.executable, "-c", code]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert out[1:] == []
        best_s = min(best_s, float(out[0]))
    assert best_s < 0.1


def test_room_imports_nothing_of_the_others() -> None:
    allowed = ("lmkit.runs", "lmkit.errors.user_error")
    for name in MODULES:
        text = (Path(lmkit.runs.__file__).parent / f"{name}.py").read_text()
        for line in text.splitlines():
            if line.lstrip().startswith(("import lmkit", "from lmkit")):
                assert line.split()[1].startswith(allowed), f"{name}: {line}"
