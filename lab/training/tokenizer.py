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

# Most words of the tables are one token of so many: what a word means then need not be put together from its pieces.
VOCABULARY = 8192
# `stationName` is cut before its capital, so that its words are those of other names.
WORD = r"\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{L}"
# The punctuation that JSON and signatures put together; any other stays apart, so that a value's own punctuation is cut
# the same way whatever stands beside it.
PUNCTUATION = ['"}}', '"}', "}}", '{"', ' {"', " {", '":', ' "', '",', '"],', '"]', " [", ' ["', "?:", "):"]


def train(texts, path, size=VOCABULARY):
    """Learns the merges of `size` tokens from `texts` and writes the tokenizer to `path`."""
    added = len(CONTROL) + len(MARKERS)
    tokenizer = Tokenizer(BPE())
    together = "|".join(re.escape(piece) for piece in sorted(PUNCTUATION, key=len, reverse=True))
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(r"'(?:s|t|re|ve|m|ll|d)|" + WORD + "|" + together + r"|[^\p{L}]"), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = BpeTrainer(
        vocab_size=size - added,
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
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"{tokenizer.get_vocab_size()} tokens instead of {size}: too little text to learn from")
    tokenizer.save(str(path))
    return tokenizer


def cut(text):
    for token in CONTROL + MARKERS:
        text = text.replace(token, "\0")
    return [piece for piece in text.split("\0") if piece]


def load(path):
    return Tokenizer.from_file(str(path))


def pieces(new, old):
    """For each token of the tokenizer `new`, the tokens that `old` cuts it into."""
    known = old.get_vocab()
    words = sorted(new.get_vocab().items(), key=lambda item: item[1])
    return [[known[word]] if word in known else [token.id for token in old.model.tokenize(word)] for word, _ in words]


def letters(tokenizer):
    """The tokens that are letters, as text."""
    texts = (tokenizer.decode([place]) for place in range(tokenizer.get_vocab_size()))
    return sorted({text for text in texts if text.isalpha()})
