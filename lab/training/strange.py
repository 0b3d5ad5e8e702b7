"""Words that no list foresees, drawn evenly from everything a tokenizer can cut.

A network copies only tokens that it has seen copied. Frequent words take care of themselves; these take care of the
rest: real words whatever their frequency, pieces of words, letters, digits, mixed case, other scripts, punctuation.
"""

import re
import string
import unicodedata

from . import pools

SCRIPTS = [
    "абвгдежзийклмнопрстуфхцчшщыьэюяАБВГДЕЖЗИКЛМНОПРСТУ",
    "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΘΛΞΠΣΩάέήίό",
    "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœšžłąęćńśźżřěůğışőűÀÉÖÜØÅÇŠŽ",
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをんアイウエオカキクケコサシスセソタチツテトナニノハヒフホマミムメモヤユヨラリルレロワン",
    "日月火水木金土人大小中上下左右山川田口目手足力車行見学生先年時分国語東西南北京都市町村会社長新古高安食飲本店駅電話道花雨雪天気空海家族友名前お元気你好吗是不我们在有这他来到说要就出会可也对能子那得着过",
    "가나다라마바사아자차카타파하고노도로모보소오조초기니디리미비시이지안녕세요감사합니다서울",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "אבגדהוזחטיכלמנסעפצקרשת",
    "अआइईउऊएकखगघचजटडतथदधनपबभमयरलवशसहािीुूेो",
]
# So many words are put together from tokens: most tokens are words of the tables, which are rare, and what is rarely shown
# as a piece of another word is not copied as one.
OF_TOKENS = 0.6
# So many sentences are divided by a comma or the like.
DIVIDED = 0.35
EMOJI = ["👍", "🎉", "🙂", "❤️", "🚀", "🔥", "😀", "🍕", "✅", "🌧", "🎂", "🐕"]


class Strange:
    def __init__(self, rng, texts, tokens=()):
        """`texts`: where the real words are taken from; `tokens`: those of the tokenizer that are letters."""
        self.rng = rng
        self.tokens = tokens
        self.words = sorted({word.lower() for text in texts for word in re.findall(r"[A-Za-z]{2,}", text)})

    def fragment(self):
        word = self.rng.choice(self.words)
        size = self.rng.randint(1, 5)
        at = self.rng.randint(0, max(0, len(word) - size))
        return word[at : at + size]

    def letters(self):
        """A word of letters, in lower case where it is not made of tokens."""
        rng = self.rng
        if self.tokens and rng.random() < OF_TOKENS:
            return "".join(rng.choice(self.tokens) for _ in range(rng.choice((1, 1, 2))))
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(self.words)
        if kind < 0.75:
            return "".join(self.fragment() for _ in range(rng.choice((1, 2, 2, 3))))
        if kind < 0.85:
            return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 7)))
        return pools.invented(rng, rng.choice((1, 2, 2)))

    def script(self):
        if self.rng.random() < 0.15:
            return "".join(self.character() for _ in range(self.rng.randint(1, 3)))
        letters = self.rng.choice(SCRIPTS)
        if letters is SCRIPTS[2]:
            return "".join(
                self.rng.choice(letters) if self.rng.random() < 0.4 else self.fragment()
                for _ in range(self.rng.randint(2, 4))
            ).capitalize()
        return "".join(self.rng.choice(letters) for _ in range(self.rng.randint(1, 7)))

    def character(self):
        """Any letter or sign of Unicode's first plane that is printed, whatever bytes it is cut into."""
        while True:
            character = chr(self.rng.randrange(0xA1, 0xFFE0))
            if unicodedata.category(character)[0] in "LNPS":
                return character

    def identifier(self):
        rng = self.rng
        digits = "".join(rng.choice(string.digits) for _ in range(rng.randint(1, 5)))
        letters = rng.choice((self.fragment().upper(), self.letters(), self.letters().capitalize()))
        joint = rng.choice(("", "-", "-", "_", ".", "/", "#", ":"))
        parts = [letters, digits] if rng.random() < 0.7 else [digits, letters]
        if rng.random() < 0.3:
            parts.append(rng.choice((self.fragment(), digits[::-1], self.fragment().upper())))
        return joint.join(parts)

    def word(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.40:
            return self.letters()
        if kind < 0.70:
            return self.letters().capitalize()
        if kind < 0.76:
            return self.letters().upper()
        if kind < 0.80:
            return "".join(letter.upper() if rng.random() < 0.5 else letter for letter in self.letters())
        if kind < 0.90:
            return self.identifier()
        return self.script()

    def name(self):
        """One to five words, joined as names are."""
        rng = self.rng
        count = rng.choices((1, 2, 3, 4, 5), (46, 30, 14, 6, 4))[0]
        kind = rng.random()
        if kind < 0.3:
            words = [self.letters() for _ in range(count)]
        elif kind < 0.6:
            words = [self.letters().capitalize() for _ in range(count)]
        else:
            words = [self.word() for _ in range(count)]
        joint = " " if rng.random() < 0.86 else rng.choice(("-", "_", "'", "/", " & ", " of the ", " de ", "."))
        text = joint.join(words)
        if rng.random() < 0.06:
            text = (
                rng.choice(('"%s"', "(%s)", "%s (%s)", "%s 'n' Co", 'the "%s" one', "#%s", "@%s", "%s*", "%s+"))
                .replace("%s", text, 1)
                .replace("%s", self.letters())
            )
        return text

    def sentence(self):
        """Free text, with any punctuation, several lines, or another script."""
        rng = self.rng
        words = []
        for _ in range(rng.randint(2, 8)):
            word = (
                rng.choice(pools.COMMON if rng.random() < 0.35 else self.words) if rng.random() < 0.7 else self.word()
            )
            mark = rng.random()
            if mark < 0.08:
                word += rng.choice((",", ";", ":", ".", "!", "?", " -", " —", "...", "%", "*"))
            elif mark < 0.13:
                left, right = rng.choice(('""', "()", "[]", "{}", "<>", "''", "**", "«»", "“”"))
                word = left + word + right
            elif mark < 0.16:
                word = rng.choice(("C:\\", "\\", "/", "#", "$", "~/", "<", "&", "=", "+")) + word
            elif mark < 0.18:
                word = rng.choice(EMOJI)
            elif mark < 0.21:
                word = str(rng.randint(0, 2000)) + rng.choice(("", "%", "°C", " €", "th", "x", " km"))
            words.append(word)
        if rng.random() < DIVIDED:
            # Elsewhere such signs mostly stand between two values; that they can be part of one is shown here.
            words[rng.randrange(len(words) - 1)] += rng.choice((",", ",", ",", ";", ":", "."))
        text = words[0]
        for word in words[1:]:
            text += ("\n" if rng.random() < 0.03 else "\t" if rng.random() < 0.01 else " ") + word
        if rng.random() < 0.7:
            text = text[0].upper() + text[1:]
        return text + rng.choice(("", "", "", "", ".", "!", "?"))

    def key(self):
        """A name for a tool or a parameter: letters, in words."""
        return " ".join(self.letters() for _ in range(self.rng.choices((1, 2, 3), (55, 35, 10))[0]))
