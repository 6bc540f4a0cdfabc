"""What a run says of its memory."""

import re
import sys
from pathlib import Path

import pytest
import torch

from lmkit.training.callbacks.cost import peak_memory_mib


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own account")
def test_peak_memory_is_the_kernels_own_number_in_mib():
    status = Path("/proc/self/status").read_text()
    kib = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # proc(5): "kB" are 1,024 bytes
    assert peak_memory_mib(torch.device("cpu")) == pytest.approx(kib / 1024, rel=0.05)
