"""Small models of transformers, which is an extra and takes seconds to import."""

import re


def make_tokenizer(text: str, *, begins: bool = False, template: str | None = None):
    """A byte-level tokenizer of 290 tokens.

    Args:
        begins: whether it puts its `bos_token` before every text.
        template: what it makes of a text $A instead, with further special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", *re.findall(r"[<[]\S+", template or "")],
        show_progress=False,
    )
    made.train_from_iterator([text], trainer)
    if begins or template:
        template = template or "<s> $A"
        special = [(name, made.token_to_id(name)) for name in re.findall(r"[<[]\S+", template)]
        made.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


def make_gpt2(*, num_words: int):
    """GPT-2 of two layers of 16, which reads 32 tokens at a time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=num_words, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return GPT2LMHeadModel(config)
