"""Questions of which only a word or two tell the tool that is meant, as that tool alone has them.

What a question and a tool say can be matched by what the words mean, and a network that is shown real questions learns no
other way: asked for a word that one of six tools had and no other, it named that tool in one case of three. So here the
words around are anything, and mean nothing for the choice.
"""

import re

from .reword import COMMON, ENDING, stem

WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ENDINGS = ("", "s", "ing", "ed", "e", "es")
ASKS = [
    "{}", "{}?", "{}.", "{}!", "{} please", "{}, please.", "Please {}.", "I need {}.", "I need the {}.", "I want {}",
    "Something about {}.", "Is there anything about {}?", "What about {}?", "What about the {}?", "Any {} around?",
    "Can you do {}?", "Could you handle the {} for me?", "Help me with {}.", "Help with the {}", "How is the {}?",
    "How do we {}?", "How many {} are there?", "Which {} is it?", "Who is in charge of {}?", "When is the {}?",
    "Where can I {}?", "Where is the {}?", "Let's {}.", "Let me see the {}.", "Show {}.", "Show me {}", "Do the {}.",
    "Find out about the {}.", "It is time to {}.", "It's about my {}.", "We are out of {}.", "Tell me the {}.",
    "My {}, how does it look?", "Look into {}", "Look at the {}.", "The {} again.", "Has anyone seen to the {}?",
    "Sort out {}.", "Get the {}.", "Get me {}.", "Take care of {}.", "Make it {}.", "Do you have {}?", "Do we {} today?",
    "Should I {}?", "I'd like to {}.", "I would love a {}.", "Would you {}?", "Why the {}?", "Hi, {}.", "Hello! {}?",
]  # fmt: skip
JOINTS = [" ", " ", " and ", " for ", " of ", " with ", ", ", " in the ", " to ", " the ", " about ", " from "]


def words(text):
    """The words that say something: where each ends, itself, and its stem. `stationName` has two."""
    for found in WORD.finditer(text):
        word = found[0].lower()
        if len(word) > 2 and word not in COMMON:
            yield found.end(), word, stem(word)


def stems(texts):
    """Those of all words of `texts`; the words of a name are apart."""
    return {key for text in texts for _, _, key in words(text)}


def own(texts):
    """For each text, those of its words that no other has, by their stems."""
    found = [{key: word for _, word, key in words(text)} for text in texts]
    return [
        {key: word for key, word in mine.items() if not any(key in other for other in found if other is not mine)}
        for mine in found
    ]


def changed(rng, word):
    """The word in some inflection and case."""
    if rng.random() < 0.3:
        ending = ENDING.search(word)
        other = (word[: ending.start()] if ending else word) + rng.choice(ENDINGS)
        word = other if [key for _, _, key in words(other)] == [stem(word)] else word
    chance = rng.random()
    return word.capitalize() if chance < 0.3 else word.upper() if chance < 0.35 else word


def question(rng, mine, others, strange):
    """A text with one to three of the words `mine`, fewer of `others`, and words that mean nothing."""
    count = min(len(mine), rng.choices((1, 2, 3), (50, 35, 15))[0])
    said = [changed(rng, word) for word in rng.sample(sorted(mine), count)]
    if count > 1 and others and rng.random() < 0.2:
        said.append(changed(rng, rng.choice(sorted(others))))
    said += [strange() for _ in range(rng.choices((0, 1, 2), (50, 35, 15))[0])]
    rng.shuffle(said)
    text = said[0]
    for word in said[1:]:
        text += rng.choice(JOINTS) + word
    text = rng.choice(ASKS).format(text)
    return text[0].upper() + text[1:] if rng.random() < 0.5 else text
