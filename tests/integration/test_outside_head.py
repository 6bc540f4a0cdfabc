"""A head from outside: a transform of a few lines, named on the command line."""

from __future__ import annotations

import json
import os

from tests.forked import typed

EMB_DIM = 4

MODULE = '''
from torch import nn


class Cube(nn.Module):
    """z + scale z^3, increasing."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, logits):
        return logits + self.scale * logits**3
'''


def test_a_transform_from_outside_trains_and_breaks_the_bottleneck(tmp_path):
    package = tmp_path / "their"
    package.mkdir()
    (package / "module.py").write_text(MODULE)
    done = typed(
        tmp_path,
        *(
            "train",
            "head.transform._target_=their.module.Cube",
            "+head.transform.scale=0.3",
            *(f"trunk.emb_dim={EMB_DIM}", f"trunk.out_dim={EMB_DIM}"),
            *("trunk.hidden_dim=32", "trunk.num_layers=1", "windows.bptt=20", "optimizer.lr=5"),
            # enough to learn of the contexts in one epoch: the cube bends only logits that differ
            *("data.num_words=50", "data.context_strength=3", "data.train_tokens=50000"),
            *("data.valid_tokens=2000", "data.test_tokens=2000", "max_epochs=1", "threads=1"),
            *("trainer.accelerator=cpu", "logger=csv", "callbacks.progress_bar=null"),
        ),
        environment=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "runs").glob("*/result.json")
    metrics = json.loads(result.read_text())["metrics"]
    # without the cube its rank would be at most that of context, bias and normaliser
    assert metrics["test_spectrum"]["press_rank"] > EMB_DIM + 2
    assert 1 < metrics["test_ppl"] < 50
