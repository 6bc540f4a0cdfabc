"""The dialogue model's LightningModule: a response word by word, given what was said before it.

Shapes: T words of a response, B batch, N predicted words (not padding), D input of the head.
"""

import numpy as np
import torch
from torch import Tensor

from lmkit.dialogue.batches import PairBatch
from lmkit.dialogue.seq2seq import Seq2Seq
from lmkit.heads.predictor import HeadInput
from lmkit.training.head_module import HeadModule, data_of


class DialogueModel(HeadModule):
    """A `Seq2Seq` as trunk, and a head over its outputs where there is a word to predict.

    The head gets each batch as one step of N contexts, so that dropout on the latents of a mixture
    has a mask for each word.

    Args: see `HeadModule`.
    """

    takes, trunk_kind = PairBatch, Seq2Seq
    follows_in_time = False  # the words of many responses
    trunk: Seq2Seq

    def setup(self, stage: str) -> None:
        # Lightning puts back what a checkpoint holds after this; a finetuned model has its bias
        if stage == "fit" and not self.head.decoder_bias.any():
            self.start_from_frequencies(data_of(self.trainer).corpus.train_word_counts())

    @torch.no_grad()
    def start_from_frequencies(self, word_counts_V: np.ndarray) -> None:
        """Sets the decoder's bias to the words' log frequencies, with one added to each count.

        From a bias of zero Adam first drives all outputs to the same large values, which give the
        frequencies, and finds no way back for hundreds of steps.
        """
        counts_V = word_counts_V + 1.0
        self.head.decoder_bias.copy_(torch.from_numpy(np.log(counts_V / counts_V.sum())))

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        hidden_1ND, targets_1N, _ = self.read(batch, None)
        nll = self.head.nll(hidden_1ND, targets_1N)
        loss = self.objective(nll, hidden_1ND, hidden_1ND) + self.head.penalty(hidden_1ND)
        self.log_step(batch, nll, loss, hidden_1ND)
        return loss

    def read(self, batch: PairBatch, state: None) -> HeadInput:
        """The decoder's outputs (1, N, D) where there is a word to predict, and these words."""
        memory, first = self.trunk.encode(
            batch.context_SB, batch.responder_SB, batch.context_lengths_B
        )
        hidden_TBD, _ = self.trunk.decode(batch.inputs_TB, memory, first)
        hidden_1ND = hidden_TBD[batch.is_word_TB].unsqueeze(0)
        return HeadInput(hidden_1ND, batch.targets_TB[batch.is_word_TB].unsqueeze(0), None)
