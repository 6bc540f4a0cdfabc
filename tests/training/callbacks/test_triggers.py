"""When averaging starts. Epochs count from 1; a trigger is asked after each one's validation."""

import random

import pytest

from lmkit.errors.user_error import UserError
from lmkit.training.triggers import AtEpoch, NonMonotone, Trigger


def fired(trigger: Trigger, losses: list[float]) -> list[int]:
    """Epochs after which the trigger fires."""
    return [e for e, loss in enumerate(losses, start=1) if trigger.fires(e, loss)]


def authors_code(losses: list[float], n: int) -> list[int]:
    """`if len(best_val_loss) > n and val_loss > min(best_val_loss[:-n])`, then the append."""
    best_val_loss, epochs = [], []
    for epoch, val_loss in enumerate(losses, start=1):
        if len(best_val_loss) > n and val_loss > min(best_val_loss[:-n]):
            epochs.append(epoch)
        best_val_loss.append(val_loss)
    return epochs


def test_at_epoch_fires_after_that_epoch_alone():
    assert fired(AtEpoch(3), [1.0] * 6) == [3]
    assert fired(AtEpoch(1), [1.0] * 2) == [1]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_non_monotone_is_the_authors_code(n):
    for seed in range(50):
        draw = random.Random(seed)
        losses = [5 - 0.1 * epoch + draw.gauss(0, 0.3) for epoch in range(25)]
        assert fired(NonMonotone(n), losses) == authors_code(losses, n)


@pytest.mark.parametrize("stop", [0, 1, 4, 7])
def test_non_monotone_goes_on_after_a_restart(stop):
    losses = [5.0, 4.0, 4.5, 4.2, 4.1, 3.9, 4.0, 4.3, 3.0, 4.4]  # the second 4.0 is no worse
    first, second = NonMonotone(2), NonMonotone(2)
    before = fired(first, losses[:stop])
    second.load_state_dict(first.state_dict())
    after = [e for e in range(stop + 1, len(losses) + 1) if second.fires(e, losses[e - 1])]
    assert before + after == authors_code(losses, 2) != []


def test_a_saved_state_does_not_change_with_the_trigger():
    trigger = NonMonotone(2)
    trigger.fires(1, 5.0)
    state = trigger.state_dict()
    trigger.fires(2, 4.0)
    assert state == {"history": [5.0]}


@pytest.mark.parametrize("make", [NonMonotone, AtEpoch])
@pytest.mark.parametrize("value", [0, -1, 2.5, None, True])
def test_impossible_settings_name_the_option(make, value):
    option = "trigger.n" if make is NonMonotone else "trigger.epoch"
    with pytest.raises(UserError, match=option.replace(".", r"\.")):
        make(value)
