"""Small models of transformers, which is an extra and takes seconds to import."""

from __future__ import annotations


def make_tokenizer(text: str, *, begins: bool):
    """A byte-level tokenizer of 290 tokens; whether it puts a token before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    made.train_from_iterator([text], trainer)
    if begins:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


def make_gpt2(*, num_words: int):
    """GPT-2 of two layers of 16, which reads 32 tokens at a time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=num_words, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return GPT2LMHeadModel(config)
