"""SpamLang: the one position that is computed, what is asked for, and which heads learn it."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn import functional as F

from lmkit.cli import study as command
from lmkit.runs.study_record import RECORD, read_record
from lmkit.studies.heads import MOS, SOFTMAX
from lmkit.studies.repetition import Repeater, scores
from lmkit.studies.work import Work


def rotated(x_BTD: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of numbers turned by the position times a frequency."""
    length, half = x_BTD.shape[1], x_BTD.shape[2] // 2
    angle_TH = torch.arange(length)[:, None] * 0.3 ** torch.arange(half)
    a, b = x_BTD[..., :half], x_BTD[..., half:]
    return torch.cat(
        [a * angle_TH.cos() - b * angle_TH.sin(), a * angle_TH.sin() + b * angle_TH.cos()], -1
    )


def test_a_causal_transformer_has_the_studys_output_at_every_position(free_heads):
    """Attention averages equal values, whatever queries and keys are."""
    torch.manual_seed(1)
    model = Repeater(free_heads[SOFTMAX], 8, 30, layers=2, tied=True)
    symbols_B, length = torch.tensor([3, 17, 29]), 5
    x_BTD = F.embedding(symbols_B.unsqueeze(1).expand(-1, length), model.embedding)
    *layers, last_norm = model.trunk
    for layer in layers:
        normed = layer.before_attention(x_BTD)
        query, key = (rotated(normed @ torch.randn(8, 8)) for _ in range(2))
        heads = [x.unflatten(2, (2, 4)).transpose(1, 2) for x in (query, key, layer.value(normed))]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x_BTD = x_BTD + layer.output(attended.transpose(1, 2).flatten(2))
        normed = layer.before_swiglu(x_BTD)
        x_BTD = x_BTD + layer.down(F.silu(layer.gate(normed)) * layer.up(normed))
    expected_BTD = last_norm(x_BTD)
    found_1BD = model.hidden(symbols_B)
    torch.testing.assert_close(found_1BD[0].unsqueeze(1).expand(-1, length, -1), expected_BTD)


@pytest.mark.parametrize("option", [SOFTMAX, MOS])
def test_scores_weigh_both_groups_by_their_shares(free_heads, option):
    torch.manual_seed(3)
    model = Repeater(free_heads[option], 6, 40, layers=0, tied=True)
    with torch.no_grad():
        model.embedding[10:] *= 0.1  # some are predicted, some are not
    every = torch.arange(40)
    log_p_VV = model.head.log_probs(model.hidden(every))
    hits = (log_p_VV.argmax(1) == every).double()
    assert 0 < hits.mean() < 1
    found = scores(model, {"seen": every[:15], "unseen": every[15:]}, 15 / 40)
    assert found["accuracy"] == pytest.approx(float(hits.mean()))
    assert found["accuracy_seen"] == pytest.approx(float(hits[:15].mean()))
    assert found["accuracy_unseen"] == pytest.approx(float(hits[15:].mean()))
    assert found["nll"] == pytest.approx(-float(log_p_VV.diag().mean()), rel=1e-5)
    whole = scores(model, {"seen": every, "unseen": every[:0]}, 1.0)
    assert whole["accuracy"] == pytest.approx(found["accuracy"])
    assert whole["accuracy_unseen"] is None


def test_every_head_is_trained_and_softmax_learns_a_small_vocabulary(tmp_path, monkeypatch, capsys):
    line = "spamlang heads=all words=[16] dims=[16] layers=0 steps=25 batch=32 asked=16 lr=0.05"
    shared = f"units=3 knots=50 threads=1 progress_bar=false runs_dir={tmp_path}"
    monkeypatch.setattr(sys, "argv", ["lmkit study", *line.split(), *shared.split()])
    command.main()
    assert "15 trainings, about " in capsys.readouterr().out
    (path,) = tmp_path.glob(f"*/{RECORD}")
    table = read_record(path).tables["scores"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert len({row["head"] for row in rows}) == 15
    (softmax,) = (row for row in rows if row["head"] == SOFTMAX)
    assert softmax["learned"] is True
    assert all(row["learned"] == (row["accuracy"] >= 0.99) for row in rows)
    for share in (row[name] for row in rows for name in ("share_start", "share_end")):
        assert share == pytest.approx(1)  # a decoder of as many numbers as words loses nothing
    assert all(row["accuracy_unseen"] is None and row["visits"] == 50 for row in rows)


def test_the_bar_moves_within_a_piece_and_ends_at_its_size(tmp_path):
    with Work(tmp_path / "pieces.jsonl", show=False) as work:
        work.plan(10)
        bar = work._progress.tasks[0]

        def compute() -> dict[str, float]:
            work.advance(3)
            return {"at": bar.completed}

        assert not work.has("long")
        assert work.do("long", compute, size=8) == {"at": 3}
        assert (work.has("long"), bar.completed) == (True, 8)
        work.do("short", dict)
        assert bar.completed == 9
