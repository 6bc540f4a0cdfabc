"""Words that no context can make the likeliest, however the trunk is trained.

Grivas, Bogoychev and Lopez 2022 find them in pretrained decoders by linear programs; see
`lmkit.measures.unargmaxable` for which heads keep them.
"""

import numpy as np
from pydantic import Field

from lmkit.analyses.base import OfContexts, Record, Recorded, Subject
from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import progress_bar

NAMED = 50  # words in the record, at most


class UnargmaxableWords(Record):
    """Of a softmax over the head's decoder."""

    split: str | None = Field(default=None, title="split")  # None: of an earlier record
    num_words: int = Field(title="words")
    emb_dim: int = Field(title="dimension")  # or the decoder's rank
    num_contexts: int = Field(title="contexts")  # at which words are predicted
    # words that are the head's likeliest at one of these contexts
    predicted: int = Field(title="predicted words")
    unargmaxable: int = Field(title="never the likeliest")
    # of these, how many occur in the training text, or in a model's text
    occurring: int = Field(title="of these in the text")
    occurrences: int  # how often they do, together
    occurrence_share: float = Field(title="share of its tokens")  # of all tokens there
    # that a mixture of transformed softmaxes predicts at one of these contexts
    freed: int = Field(title="freed by the mixture")
    words: list[str] = Field(title="the most frequent of these")


class Unargmaxable(OfContexts):
    """Counts them; words that one softmax predicts at a context need no linear program."""

    name, record, version = "unargmaxable", UnargmaxableWords, 2
    title = "Words that no context can make the likeliest"

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.unargmaxable import predicted_words, unargmaxable_words

        head, chosen = subject.model.head, self.chosen(subject)
        if not head.has_plain_logits:
            raise UserError(
                f"{type(head).__name__} mixes no softmaxes of one decoder that could exclude words"
            )
        shown = chosen.with_bar(subject.name, "words")
        predicted_V = predicted_words(subject.model, shown, chosen.num_contexts)
        # a mixture predicts words that one softmax over its decoder may not; so may a transform of
        # a user's, which may differ from word to word
        parts = head.transform.modules()
        is_ours = all(type(part).__module__.startswith("lmkit.") for part in parts)
        known_V = predicted_V & (head.mixture.num_components == 1 and is_ours)
        with progress_bar() as progress:
            task = progress.add_task(f"{subject.name}: words", total=len(known_V))
            excluded = unargmaxable_words(
                head.decoder_weight,
                head.decoder_bias,
                known_V,
                lambda done: progress.update(task, completed=done),
            )
        counts_V, names = _words(subject)
        of_excluded = counts_V[excluded]
        occurring = [word for word in excluded if counts_V[word] > 0]
        most_frequent = sorted(occurring, key=lambda word: -counts_V[word])[:NAMED]
        return Recorded(
            UnargmaxableWords(
                split=chosen.split,
                num_words=len(known_V),
                emb_dim=head.decoder_weight.shape[1],
                num_contexts=chosen.num_contexts,
                predicted=int(predicted_V.sum()),
                unargmaxable=len(excluded),
                occurring=len(occurring),
                occurrences=int(of_excluded.sum()),
                occurrence_share=float(of_excluded.sum() / counts_V.sum()),
                freed=int(predicted_V[excluded].sum()),
                words=[names[word] for word in most_frequent],
            )
        )


def _words(subject: Subject) -> tuple[np.ndarray, tuple[str, ...]]:
    """How often each word occurs in the training text, or a model's text, and what it is."""
    if subject.run is not None:
        corpus = subject.run.data.corpus
        return corpus.train_word_counts(), corpus.vocabulary
    text, num_words = subject.loaded_pretrained.text, len(subject.model.head.decoder_bias)
    return np.bincount(text.ids, minlength=num_words), text.tokenizer.shown(num_words)
