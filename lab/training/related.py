"""Words that have to do with one another: what a question and the tool for it share where they have no word in common.

`related.tsv` has them for the words of the tables, as `wordnet.py` found them.
"""

from functools import cache
from pathlib import Path

from . import keywords
from .reword import stem

FILE = Path(__file__).parent / "related.tsv"


@cache
def read():
    """For each word's stem its related words."""
    found = {}
    for line in FILE.read_text().splitlines():
        if line[0] != "#":
            word, others = line.split("\t")
            found.setdefault(stem(word), []).extend(others.split())
    return found


def words(text):
    """What the words of `text` have to do with, by their stems."""
    return {stem(other): other for key in sorted(keywords.stems([text])) for other in read().get(key, ())}


def known(texts):
    """The stems of all their words, and of what these have to do with."""
    return keywords.stems(texts).union(*map(words, texts))


def near(texts):
    """For each text the words, by their stems, that have to do with it alone and stand in none."""
    said = keywords.stems(texts)
    found = [words(text) for text in texts]
    return [
        {
            key: word
            for key, word in mine.items()
            if key not in said and not any(key in other for other in found if other is not mine)
        }
        for mine in found
    ]
