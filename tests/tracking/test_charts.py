"""What W&B is shown of stored spectra."""

from pathlib import Path

import numpy as np

from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import epoch_spectrum, write_spectrum
from lmkit.tracking.charts import PLOTTED_EPOCHS, epoch_charts
from tests.conftest import spectrum_measures


def test_few_epochs_are_shown_the_first_and_the_last_among_them(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for epoch in range(1, 31):
        path = epoch_spectrum(folder, epoch, "valid", "log_probs")
        write_spectrum(path, np.geomspace(1.0, 1e-6, 20), spectrum_measures(150, 200, epoch))
    table = epoch_charts(folder, "valid", "log_probs")["spectrum/valid_log_probs/table"]
    shown = [row[0] for row in table.data]
    assert len(shown) == PLOTTED_EPOCHS
    assert (shown[0], shown[-1]) == (1, 30)
    assert shown == sorted(set(shown))
