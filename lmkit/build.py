"""From a composed configuration to the objects it describes."""

from __future__ import annotations

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from lmkit.errors import UserError
from lmkit.heads.head import Head
from lmkit.module import LanguageModel


def create(section: dict, **arguments: object) -> object:
    """The object that `section` names by its `_target_`.

    Raises: UserError with the object's own complaint, or the reason why it cannot be made.
    """
    try:
        return instantiate(section, **arguments)
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UserError):
                raise cause from None
            cause = cause.__cause__
        reason = " ".join(str(error).split())
        raise UserError(f"{section.get('_target_', 'a section')} cannot be made: {reason}") from None


def build_model(config: dict, num_words: int) -> LanguageModel:
    """The untrained model of a configuration (plain data, resolved) over `num_words` words.

    Parameters are drawn from torch's global generator, in a fixed order.
    """
    trunk = create(config["trunk"], num_words=num_words)
    sections = config["head"]
    head = Head(
        create(sections["mixture"]),
        create(sections["transform"]),
        num_words,
        trunk.embedding_weight if sections["tie_weights"] else None,
        sections["loss"],
        sections["chunk_mb"],
    )
    return LanguageModel(
        trunk,
        head,
        create(config["objective"]),
        create(config["optimizer"]),
        config["callbacks"]["log_every"],
    )
