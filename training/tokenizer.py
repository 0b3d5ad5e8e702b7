"""The tokenizer: byte-level BPE whose pieces are the same in a question and in the JSON that repeats it.

Copying a value is the hardest thing for a model this small, so a value must be cut the same way wherever it stands: no
merge crosses from a space to a letter, and every digit is a token. Both hold for the learned merges, so GPT-2's own
splitting, which llama.cpp knows as `tokenizer.ggml.pre = gpt-2`, gives the same ids at inference.
"""

import re

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from .render import CONTROL, MARKERS

VOCABULARY = 2048
# The punctuation that JSON and signatures put together; any other stays apart, so that a value's own punctuation is cut
# the same way whatever stands beside it.
PUNCTUATION = ['"}}', '"}', "}}", '{"', ' {"', " {", '":', ' "', '",', '"],', '"]', " [", ' ["', "?:", "):"]


def train(texts, path):
    """Learns the merges from `texts` and writes the tokenizer to `path`."""
    added = len(CONTROL) + len(MARKERS)
    tokenizer = Tokenizer(BPE())
    together = "|".join(re.escape(piece) for piece in sorted(PUNCTUATION, key=len, reverse=True))
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(r"'(?:s|t|re|ve|m|ll|d)|\p{L}+|" + together + r"|[^\p{L}]"), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - added,
        initial_alphabet=ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    # Markers are cut out first: their text is a token of its own, never learned from.
    pieces = (piece for text in texts for piece in cut(text))
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKERS])
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(f"{tokenizer.get_vocab_size()} tokens instead of {VOCABULARY}: too little text to learn from")
    tokenizer.save(str(path))
    return tokenizer


def cut(text):
    for token in CONTROL + MARKERS:
        text = text.replace(token, "\0")
    return [piece for piece in text.split("\0") if piece]


def load(path):
    return Tokenizer.from_file(str(path))
