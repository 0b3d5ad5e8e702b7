"""The training loop: seeded, ended by a number of tokens, resumable from its last checkpoint."""

import json
import math
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from . import related
from .encode import ASKED, CATEGORIES, SPOKEN
from .hints import NO_VALUE, NONE, number
from .model import Model, Shape
from .reword import stem

# The learning rate is constant at first, so that a run can be cut short or prolonged until then, and falls to nothing
# over this share at the end.
DECAY = 0.7
WARMUP = 40
# Far above the usual 1e-8: a token that is hardly ever said has small gradients, nearly all of them the softmax's push away
# from what is said instead, and by steps of full size such tokens come to lie where all of them lie.
EPSILON = 1e-4
# The weight of each of the hints at first; it falls to nothing, as in the end it is what is said that counts.
HINTED = 0.3
# For each hint on where to look the trace whose heads are told, and which of these. The layer that finds the same word finds, by
# two heads more, those that have to do with it; the layer that links values, what is said already.
FIRST, LAST = slice(2), slice(-2, None)
LOOKS = {
    "found": ("found", FIRST),
    "near": ("found", LAST),
    "linked": ("linked", FIRST),
    "said": ("linked", LAST),
    "labelled": ("labelled", FIRST),
    "copied": ("copied", FIRST),
}
# So many pairs of words that have to do with one another are shown by themselves in each step.
PAIRS = 256


def halved(device):
    """Whether `device` multiplies in bfloat16 faster: a processor without instructions for it is slower."""
    return device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal (Jordan et al., https://kellerjordan.github.io/posts/muon/)."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.01):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            alike = {}
            for parameter in group["params"]:
                gradient = parameter.grad
                buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(gradient))
                buffer.lerp_(gradient, 1 - group["momentum"])
                alike.setdefault(parameter.shape, []).append((parameter, gradient.lerp(buffer, group["momentum"])))
            # All matrices of one shape at once: small products cost more to start than to compute.
            for (rows, columns), pairs in alike.items():
                steps = orthogonal(torch.stack([step for _, step in pairs]))
                scale = max(1.0, rows / columns) ** 0.5
                for (parameter, _), step in zip(pairs, steps):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(step.to(parameter.dtype), alpha=-group["lr"] * scale)


def orthogonal(x):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = x.bfloat16() if halved(x.device) else x
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x.mT if tall else x


def sees(scene, branch):
    """Which tokens (columns) each token (row) sees, of its own conversation alone; and the same, to be added to the scores."""
    same = scene[:, :, None] == scene[:, None, :]
    seen = (branch[:, None, :] == 0) | (branch[:, :, None] == branch[:, None, :])
    allowed = (same & seen).tril()
    return allowed, torch.zeros(allowed.shape, device=scene.device).masked_fill_(~allowed, float("-inf"))[:, None]


class Data:
    """Packed sequences, and what a batch of them needs."""

    def __init__(self, folder, device):
        stored = np.load(Path(folder) / "data.npz")
        self.arrays = {name: stored[name] for name in stored.files}
        self.device = device

    def __len__(self):
        return len(self.arrays["ids"])

    def tensors(self, chosen, *names):
        return (torch.from_numpy(self.arrays[name][chosen].astype(np.int64)).to(self.device) for name in names)

    def batch(self, chosen, hints=True):
        """The sequences `chosen`; their hints take most of the time, and are not always wanted."""
        ids, scene, branch, place, told = self.tensors(chosen, "ids", "scene", "branch", "place", "told")
        allowed, mask = sees(scene, branch)
        # What follows a branch's last token is another branch, which cannot be foreseen.
        follows = (scene[:, 1:] == scene[:, :-1]) & (branch[:, 1:] == branch[:, :-1])
        says = torch.where(follows, told[:, 1:], -1)
        says = torch.where(scene[:, 1:] == 0, -1, says)
        return Batch(
            ids=ids,
            places=place,
            mask=mask,
            targets=ids[:, 1:],
            says=says,
            size=int((scene > 0).sum()),
            **(self.hints(chosen, branch, told, allowed) if hints else {}),
        )

    def hints(self, chosen, branch, told, allowed):
        points, words, source, part, link = self.tensors(chosen, "points", "words", "source", "part", "link")
        asked = told == ASKED
        alike = (words[:, :, None] == words[:, None, :]) & (words > 0)[:, :, None]
        # A user's words are looked for in the tools, and what is said for a call in what the user said.
        alike &= (asked[:, :, None] & (branch == 0)[:, None, :]) | ((told == SPOKEN)[:, :, None] & asked[:, None, :])
        near = torch.zeros_like(allowed)
        near[related_places(*(self.arrays[name][chosen] for name in ("words", "told", "branch")))] = True
        return dict(
            found=alike & allowed,
            near=near & allowed,
            linked=to(torch.where(told == SPOKEN, 0, link)),
            labelled=to(torch.where(told == SPOKEN, link, 0)),
            copied=to(source),
            said=said(source, told, branch) & allowed,
            told=torch.where(asked, points, 0),
            decided=torch.where(asked, 0, points),
            valued=part,
        )


@cache
def related_pairs():
    """`paired` of the words that have to do with one another, in order."""
    pairs = {(number(stem(other)), number(key)) for key, others in related.read().items() for other in others}
    return np.sort([paired(*each) for pair in pairs for each in (pair, pair[::-1])])


def paired(one, other):
    """Two of the numbers that `hints.words` gives to words, as one."""
    return one * 65536 + other


def are_related(ones, others):
    """Whether each of `ones` (rows) has to do with each of `others` (columns)."""
    known, pairs = related_pairs(), paired(ones.astype(np.int64)[:, None], others.astype(np.int64))
    return known[np.searchsorted(known, pairs).clip(max=len(known) - 1)] == pairs


def related_places(words, told, branch):
    """(row, place, place in the prefix) of the words of users that have to do with a word of the tools."""
    found = []
    for row in range(len(words)):
        asked = np.flatnonzero((words[row] > 0) & (told[row] == ASKED))
        shown = np.flatnonzero((words[row] > 0) & (branch[row] == 0))
        ones, others = are_related(words[row, asked], words[row, shown]).nonzero()
        found.append((np.full(len(ones), row), asked[ones], shown[others]))
    return tuple(torch.from_numpy(np.concatenate(part)) for part in zip(*found))


def said(source, told, branch):
    """Where the token before a value is (rows) and a value of the same answer begins (columns): what is said already is hardly
    ever what is next."""
    # Values stand in what a user says, names and keys in the prefix.
    copies = (told == SPOKEN) & (source > 0) & (branch.gather(1, source) > 0)
    starts = copies & F.pad((source[:, 1:] != source[:, :-1] + 1) | ~copies[:, :-1], (1, 0), value=True)
    first = F.pad(starts[:, :-1], (1, 0))
    answer = (told != SPOKEN).cumsum(1)
    return starts[:, :, None] & first[:, None, :] & (answer[:, :, None] == answer[:, None, :])


def to(places):
    """For each token (row) the one place (column) that it is about; none for place 0."""
    return F.one_hot(places, places.shape[1]).bool() & (places > 0)[:, :, None]


@dataclass
class Batch:
    ids: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor
    # The tokens that follow, and who says them.
    targets: torch.Tensor
    says: torch.Tensor
    # Tokens that are no padding.
    size: int
    # The hints: for each token (row) where (columns) the same word stands, or one that has to do with it, what a value or a label
    # goes with, the label of the value that is next, what the next token is copied from, and the values that are said already;
    # the tool that it tells, the one that it decides for, and what it is to a value.
    found: torch.Tensor = None
    near: torch.Tensor = None
    linked: torch.Tensor = None
    labelled: torch.Tensor = None
    copied: torch.Tensor = None
    said: torch.Tensor = None
    told: torch.Tensor = None
    decided: torch.Tensor = None
    valued: torch.Tensor = None


class Hinted(nn.Module):
    """What the layers inside are to find, told by hints: used in training alone."""

    def __init__(self, shape):
        super().__init__()
        sizes = {"told": NONE + 1, "decided": NONE + 1, "valued": NO_VALUE + 1}
        self.classes = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(size, shape.width)) for name, size in sizes.items()}
        )

    def forward(self, batch, traces):
        """The loss, and for each hint the share that is found."""
        loss, shares = 0.0, {}
        for name, (layer, heads) in LOOKS.items():
            wanted = getattr(batch, name)
            at = wanted.any(2).nonzero(as_tuple=True)
            q, k = (x[:, heads].float() for x in getattr(traces, layer))
            scores = torch.einsum("nhd,nhkd->nhk", q[at[0], :, at[1]], k[at[0]]) * q.shape[-1] ** -0.5
            looks = (scores + batch.mask[at[0], 0, at[1]][:, None]).softmax(2)
            if len(looks):
                right = (looks * wanted[at][:, None]).sum(2)
                loss = loss - (right + 1e-6).log().mean()
                shares[name] = float(right.detach().mean())
        for name, classes in self.classes.items():
            wanted = getattr(batch, name)
            at = wanted.nonzero(as_tuple=True)
            states = getattr(traces, name)[at].float()
            if len(states):
                guess = F.linear(F.rms_norm(states, states.shape[-1:]), classes)
                loss = loss + F.cross_entropy(guess, wanted[at])
                shares[name] = float((guess.argmax(1) == wanted[at]).float().mean())
        return loss, shares


class Pairs:
    """Pairs of words that have to do with one another: what a question and a tool hardly ever share twice is learned from the
    words alone, each among those of other pairs."""

    def __init__(self, tokenizer):
        # Words are read as they stand in a text and in a name; of many tokens are those that are rare.
        self.tokens = {}
        for word in {word for key, others in related.read().items() for word in (key, *others)}:
            written = (tokenizer.encode(text).ids for text in (" " + word, word, " " + word.capitalize()))
            self.tokens[word] = [ids for ids in written if len(ids) < 3]
        pairs = ((other, key) for key, others in sorted(related.read().items()) for other in others)
        self.pairs = [pair for pair in pairs if all(self.tokens[word] for word in pair)]

    def loss(self, model, rng, device, cast):
        """The loss, and the share of the looks that are right."""
        chosen = [self.pairs[at] for at in rng.integers(len(self.pairs), size=PAIRS)]
        chosen = [pair[::-1] if rng.random() < 0.5 else pair for pair in chosen]
        written = [self.tokens[word] for pair in zip(*chosen) for word in pair]
        tokens = [ways[rng.integers(len(ways))] for ways in written]
        length = max(map(len, tokens))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in tokens], device=device)
        last = torch.tensor([len(row) - 1 for row in tokens], device=device)
        # A question stands somewhere after the tools.
        start = rng.integers(20, 200, size=len(tokens))
        start[:PAIRS] += 180
        places = torch.from_numpy(start).to(device)[:, None] + torch.arange(length, device=device)
        with cast:
            q, k = model.looks(ids, places)
        rows = torch.arange(len(tokens), device=device)
        q = q[rows[:PAIRS], LAST, last[:PAIRS]].float()
        k = k[rows[PAIRS:], LAST, last[PAIRS:]].float()
        scores = torch.einsum("nhd,mhd->nhm", q, k) * q.shape[-1] ** -0.5
        numbers = (np.array([number(stem(word)) for word in side]) for side in zip(*chosen))
        # Others of the words may have to do with it, too.
        right = torch.from_numpy(are_related(*numbers) | np.eye(PAIRS, dtype=bool)).to(device)
        looks = (scores.softmax(2) * right[:, None]).sum(2)
        return -(looks + 1e-6).log().mean(), float(looks.detach().mean())


def factor(step, progress):
    return min(1.0, (step + 1) / WARMUP) * min(1.0, (1.0 - progress) / DECAY)


def train(
    data,
    dev,
    out,
    *,
    shape=None,
    start=None,
    seed=1,
    batch=8,
    accumulate=1,
    total=None,
    pairs=None,
    lr=0.02,
    hints=True,
    threads=2,
    compile=False,
    every=150.0,
    say=print,
):
    """Trains on the sequences of `data` until `total` tokens are seen, writing `out`/last.pt now and then.

    Goes on with the model `start`, or begins with one of `shape`. Weights change by the mean gradient of `accumulate` batches.
    Without `hints`, and `pairs` of words, which are taught with them, it is told nothing but what is said.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = Path(out)
    model = (start or Model(shape)).to(device).train()
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk")]
    others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and name.startswith("blk"))]
    hinted = Hinted(model.shape).to(device)
    others += hinted.parameters()
    optimizers = [
        Muon([{"params": matrices}], lr=lr),
        torch.optim.AdamW([{"params": others}], lr=lr * 0.2, betas=(0.9, 0.95), eps=EPSILON, weight_decay=0.0),
    ]
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    done, seen, spent, average, found = 0, 0, 0.0, None, {}
    if (out / "last.pt").exists():
        state = torch.load(out / "last.pt", weights_only=False, map_location=device)
        model.load_state_dict(state["model"])
        hinted.load_state_dict(state["hinted"])
        for optimizer, kept in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
        done, seen, spent, average = state["done"], state["seen"], state["spent"], state["average"]
        say(f"resumed at batch {done}, {seen / 1e6:.2f} M tokens, {spent / 60:.1f} minutes")
    traced = model.traced

    def losses_of(states, targets):
        return F.cross_entropy(model.logits(states).float(), targets, reduction="none")

    if compile:
        traced, losses_of = torch.compile(traced, dynamic=False), torch.compile(losses_of, dynamic=True)
    data, dev = Data(data, device), Data(dev, device)
    began = time.time() - spent
    kept = time.time()
    cast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=halved(device))

    def save():
        state = {
            "model": model.state_dict(),
            "hinted": hinted.state_dict(),
            "optimizers": [o.state_dict() for o in optimizers],
            "shape": asdict(model.shape),
            "done": done,
            "seen": seen,
            "spent": time.time() - began,
            "average": average,
        }
        torch.save(state, out / "next.pt")
        (out / "next.pt").replace(out / "last.pt")

    # The first pass keeps the data's order, easy scenes first; later passes are shuffled.
    per_pass = len(data) // batch
    pass_number, order = -1, None
    while seen < total:
        if done // per_pass != pass_number:
            pass_number = done // per_pass
            order = (
                np.random.default_rng(seed + pass_number).permutation(len(data))
                if pass_number
                else np.arange(len(data))
            )
        at = done % per_pass * batch
        progress = seen / total
        for optimizer, starts in zip(optimizers, rates):
            for group, rate in zip(optimizer.param_groups, starts):
                group["lr"] = rate * factor(done // accumulate, progress)
        # What is taught on the side takes long, and of a step's batches one in four is enough for it.
        taught = hints and done % accumulate % 4 == 0
        made = data.batch(np.sort(order[at : at + batch]), hints=taught)
        says = made.says
        # A little of what people ask teaches which words go with which tools; much of it would drown the calls.
        luck = torch.from_numpy(np.random.default_rng((seed, done)).random(says.shape)).to(device)
        weight = (says == SPOKEN).float() + 0.1 * ((says == ASKED) & (luck < 0.3)) + 0.05 * ((says == 0) & (luck < 0.1))
        wanted = weight.flatten().nonzero().squeeze(1)
        with cast:
            states, traces = traced(made.ids, made.places, made.mask)
            losses = losses_of(states[:, :-1].flatten(0, 1)[wanted], made.targets.flatten()[wanted])
        weight = weight.flatten()[wanted]
        loss = (losses * weight).sum() / weight.sum()
        if taught:
            extra, shares = hinted(made, traces)
            if pairs:
                alone, shares["pairs"] = pairs.loss(model, np.random.default_rng((seed, done, 1)), device, cast)
                extra = extra + alone
            loss = loss + HINTED * (1 - progress) * extra
            found = {name: 0.98 * found.get(name, share) + 0.02 * share for name, share in shares.items()}
        (loss / accumulate).backward()
        # Batches at the end that make no whole step are left: the rate is next to nothing there.
        whole = (done + 1) % accumulate == 0
        if whole:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        value = float(losses.detach()[weight == 1.0].mean())
        if not math.isfinite(value):
            raise FloatingPointError(f"loss {value} at batch {done}")
        average = value if average is None else 0.98 * average + 0.02 * value
        done += 1
        seen += made.size
        now = time.time()
        if done % 20 == 0:
            record = {"batch": done, "tokens": seen, "minutes": round((now - began) / 60, 2), "loss": round(average, 4)}
            record |= {name: round(share, 3) for name, share in found.items()}
            record["tokens_per_second"] = round(seen / (now - began))
            if done % 250 == 0:
                record["dev"] = exact(model, dev, batch, cast)
            say(json.dumps(record))
        if whole and now - kept > every:
            save()
            kept = now
    save()
    say(
        f"done: {done} batches, {seen / 1e6:.2f} M tokens, {(time.time() - began) / 60:.1f} minutes, loss {average:.4f}"
    )
    say(json.dumps(exact(model, dev, batch, cast)))
    return model


@torch.no_grad()
def exact(model, data, batch, cast):
    """Shares of the branches whose every spoken token is the likeliest one, which greedy decoding then writes."""
    right = {}
    for at in range(0, len(data) // batch * batch, batch):
        chosen = np.arange(at, at + batch)
        made = data.batch(chosen, hints=False)
        with cast:
            states = model.hidden(made.ids, made.places, made.mask)[:, :-1]
        rows, columns = (made.says == SPOKEN).nonzero(as_tuple=True)
        guessed = model.logits(states[rows, columns]).argmax(1) == made.targets[rows, columns]
        rows, columns = rows.cpu().numpy(), columns.cpu().numpy() + 1
        told = [data.arrays[name][chosen][rows, columns].tolist() for name in ("scene", "branch", "kind")]
        for *key, good in zip(rows.tolist(), *told, guessed.tolist()):
            key = (at, *key)
            right[key] = right.get(key, True) and good
    shares = {}
    for key, good in right.items():
        shares.setdefault(key[-1], []).append(good)
    return {CATEGORIES[kind]: round(sum(values) / len(values), 3) for kind, values in sorted(shares.items())}


def load(path):
    state = torch.load(path, weights_only=False, map_location="cpu")
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model.eval()
