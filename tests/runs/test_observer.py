"""Observers of a run: who is told, and that none of them can end it."""

import pytest

from lmkit.runs.observer import tell


class Recorder:
    """Notes the events that it is told of; `failure` is raised at each."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure, self.events = failure, []

    def _note(self, *event: object) -> None:
        self.events.append(event)
        if self.failure:
            raise self.failure

    begin = epoch_spectrum = transform = concluded = _note


def test_one_that_fails_is_reported_in_a_line_and_the_others_are_told(capsys):
    failing, other = Recorder(OSError("Disk quota\nexceeded")), Recorder()
    tell([failing, object(), other], lambda o: o.epoch_spectrum("valid", "log_probs"))
    tell([failing, object(), other], lambda o: o.concluded({}, {}))
    assert failing.events == other.events == [("valid", "log_probs"), ({}, {})]
    assert capsys.readouterr().out == 2 * (
        "Recorder failed, the run continues: Disk quota exceeded\n"
    )


def test_an_interruption_is_no_failure():
    with pytest.raises(KeyboardInterrupt):
        tell([Recorder(KeyboardInterrupt())], lambda o: o.concluded({}, {}))
