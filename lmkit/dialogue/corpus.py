"""Dialogues as token ids, and the pairs of a response and what was said before it.

A corpus is a folder with train.tsv, valid.tsv and test.tsv in UTF-8: one utterance per line,

    dialogue <tab> speaker <tab> utterance

The utterances of a dialogue follow one another; further columns are ignored. Every utterance but a
dialogue's first is a response, even when its speaker has just spoken. This is why each word of the
context says whether its speaker is the one who responds (the conversational floor of Zhao et al.
2017).

Shapes: W words of a split, U utterances.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from lmkit.data.corpus import Corpus, Splits, tell_once
from lmkit.data.text_files import SPLITS, SplitFiles
from lmkit.data.tokenizer import EOS, UNKNOWN
from lmkit.errors.user_error import UserError, require_choice, require_count, require_flag
from lmkit.presentation.tables import counted

SPECIAL = (EOS, UNKNOWN)  # first in every vocabulary
EOS_ID, UNK_ID = range(2)
# raised whenever the same bytes would be read as other token ids
READER_VERSION = 1
TOKENIZERS = ("word_punct", "treebank", "spaces")

Tokenize = Callable[[str], list[str]]


class Utterance(NamedTuple):
    """A line of a file."""

    dialogue: str
    speaker: str
    words: list[str]


@dataclass(frozen=True, eq=False)
class Utterances:
    """A split as token ids: its utterances in the order of the file."""

    words_W: np.ndarray  # int32 word indices; <eos> ends each utterance
    starts_U: np.ndarray  # int64, first word of each utterance, and W at the end (U + 1)
    first_U: np.ndarray  # int64, the first utterance of the dialogue that each belongs to
    speaker_U: np.ndarray  # int32, equal within a dialogue for the same speaker

    def __len__(self) -> int:
        """Words, as of the splits of a text."""
        return len(self.words_W)

    @property
    def responses(self) -> np.ndarray:
        """Indices of the utterances that answer something: all but the first of each dialogue."""
        utterances_U = np.arange(len(self.first_U))
        return utterances_U[self.first_U < utterances_U]


class DialogueSplits(Splits[Utterances]):
    """Splits of dialogues."""

    def train_word_counts(self) -> np.ndarray:
        return np.bincount(self.train.words_W, minlength=len(self.vocabulary))


@dataclass(kw_only=True, eq=False, repr=False)
class DialogueCorpus(Corpus):
    """The dialogues in `root`/`folder`/{train,valid,test}.tsv.

    Raises: UserError naming the option.
    """

    splits = DialogueSplits
    goes_with = (
        "windows=dialogue module=dialogue trunk=seq2seq, as experiment=dialogue_softmax sets"
    )

    root: str | None  # folder that holds the corpora; None where the user has not said it yet
    folder: str  # the corpus's own folder below `root`, "." where `root` is that folder
    # NLTK's "word_punct" (letters and digits, or other signs, as in Zhao et al. 2017) or "treebank"
    # (as in the Penn Treebank), or "spaces" for text that is tokenised already
    tokenizer: str
    lowercase: bool  # whether words are put into lower case
    num_words: int  # of the vocabulary: the most frequent ones of train, <eos> and <unk> included
    # how many dialogues, from the start of train, to train on, and to take the vocabulary from;
    # None: all
    train_dialogues: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("data.tokenizer", self.tokenizer, TOKENIZERS)
        require_flag("data.lowercase", self.lowercase)
        require_count("data.num_words", self.num_words, len(SPECIAL) + 1)
        if self.train_dialogues is not None:
            require_count("data.train_dialogues", self.train_dialogues)
        self.files = SplitFiles(self.root, self.folder, ".tsv")

    def fingerprint(self) -> str:
        """Of the three files' bytes and of how they are read, without tokenising."""
        reading = (self.tokenizer, self.lowercase, self.num_words, self.train_dialogues)
        digest = hashlib.sha256(f"dialogue reader {READER_VERSION} {reading}".encode())
        for split in SPLITS:
            digest.update(hashlib.sha256(self.files.read(split)).digest())
        return digest.hexdigest()

    def load(self, vocabulary: Sequence[str] | None = None) -> DialogueSplits:
        """Reads and tokenises the splits; some seconds.

        Args:
            vocabulary: of a finished run, to read the text as that run did; None: made from train.
                Words outside it become <unk>.

        Raises: UserError when a file is missing, not UTF-8, has a line that is no utterance, or
            holds no response.
        """
        tokenize = _tokenizer(self.tokenizer)
        read = {split: self._utterances(split, tokenize) for split in SPLITS}
        if vocabulary is None:
            counts = Counter(chain.from_iterable(each.words for each in read["train"]))
            for word in SPECIAL:  # a text may hold them already
                counts.pop(word, None)
            # the word itself breaks ties, so that the order of the text does not matter
            frequent = sorted(counts, key=lambda word: (-counts[word], word))
            vocabulary = (*SPECIAL, *frequent[: self.num_words - len(SPECIAL)])
        index = {word: position for position, word in enumerate(vocabulary)}
        splits = {split: _indexed(read[split], index) for split in SPLITS}
        for split, utterances in splits.items():
            if not len(utterances.responses):
                path = self.files.path(split)
                raise UserError(f"{path} holds no response: no dialogue in it has two utterances")
        return DialogueSplits(tuple(vocabulary), **splits)

    def _utterances(self, split: str, tokenize: Tokenize) -> list[Utterance]:
        """Those of a split that have words."""
        text = self.files.text(split)
        utterances: list[Utterance] = []
        dialogues, cut, last = 0, 0, None
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            columns = line.rstrip("\r").split("\t")
            if len(columns) < 3:
                raise UserError(
                    f"{self.files.path(split)}, line {number}: an utterance has three columns with "
                    f"a tab between them, dialogue, speaker and words, but this line has "
                    f"{len(columns)}"
                )
            if "\t" in line.rstrip("\r").partition("\r")[2]:  # of another utterance
                raise UserError(
                    f"{self.files.path(split)}, line {number}: it has a carriage return inside; "
                    f"lines must end in \\n or \\r\\n"
                )
            dialogue, speaker, utterance = columns[:3]
            dialogues += dialogue != last
            last = dialogue
            if split == "train" and dialogues > (self.train_dialogues or dialogues):
                break
            words = tokenize(utterance.lower() if self.lowercase else utterance)
            marks = {mark for mark in SPECIAL if mark in utterance}
            cut += self.tokenizer != "spaces" and not marks <= set(words)
            if words:
                utterances.append(Utterance(dialogue, speaker, words))
        if split == "train" and dialogues < (self.train_dialogues or 0):
            raise UserError(
                f"data.train_dialogues={self.train_dialogues} is more than the "
                f"{counted(dialogues, 'dialogue')} of {self.files.path(split)}; null takes all of "
                f"them"
            )
        if doubled := sum(EOS in utterance.words for utterance in utterances):
            tell_once(
                f"{self.files.path(split)}: {counted(doubled, 'utterance')} of {split} with {EOS} "
                f"inside, which ends a turn each time; take it out of the text"
            )
        if cut:
            tell_once(
                f"{self.files.path(split)}: {counted(cut, 'utterance')} of {split} with {EOS} or "
                f"{UNKNOWN}, of which data.tokenizer={self.tokenizer} makes several words, and "
                f"spaces one"
            )
        return utterances


def _tokenizer(name: str) -> Tokenize:
    if name == "spaces":
        return str.split
    # takes a second to import
    from nltk.tokenize import NLTKWordTokenizer, WordPunctTokenizer

    kinds = {"word_punct": WordPunctTokenizer, "treebank": NLTKWordTokenizer}
    tokenize: Tokenize = kinds[name]().tokenize
    return tokenize


def _indexed(utterances: Sequence[Utterance], index: Mapping[str, int]) -> Utterances:
    words: list[int] = []
    starts, first, speakers = [0], [], []
    last, beginning = None, 0
    known: dict[str, int] = {}  # speakers of the dialogue
    for number, utterance in enumerate(utterances):
        if utterance.dialogue != last:
            last, known, beginning = utterance.dialogue, {}, number
        words.extend(index.get(word, UNK_ID) for word in utterance.words)
        words.append(EOS_ID)
        starts.append(len(words))
        first.append(beginning)
        speakers.append(known.setdefault(utterance.speaker, len(known)))
    return Utterances(
        np.array(words, np.int32),
        np.array(starts, np.int64),
        np.array(first, np.int64),
        np.array(speakers, np.int32),
    )
