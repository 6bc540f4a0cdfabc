"""What the server of `tests.forked` does before it forks: imports, and a run of a second.

Runs that it forks have empty figures and are not synced, as those of `tests.conftest`.
"""

import os
import tempfile

from lmkit.experiment import conclusion
from tests.conftest import write_empty_figures
from tests.faults.scenarios import PLAIN
from tests.faults.warm import warm_up

conclusion._draw = write_empty_figures
os.fsync = lambda _: None
with tempfile.TemporaryDirectory() as folder:
    # the language of `tests.tiny.TINY`: processes have its biases, which take half a second
    warm_up([*PLAIN, "data.num_words=40", f"runs_dir={folder}"])
