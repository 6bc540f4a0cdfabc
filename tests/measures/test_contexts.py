"""The bar over contexts, and what a log says meanwhile."""

from types import SimpleNamespace

from lmkit.measures import contexts
from lmkit.measures.contexts import with_bar


def test_a_line_a_minute_says_how_many_contexts_are_done(monkeypatch):
    now = 0.0
    monkeypatch.setattr(contexts, "time", SimpleNamespace(monotonic=lambda: now))
    batches = [SimpleNamespace(num_targets=500) for _ in range(4)]
    told: list[str] = []
    for _ in with_bar("spectrum", batches, 1_700, "values", told.append):
        now += 31
    assert told == ["spectrum: 1,500 of 1,700 contexts"]
