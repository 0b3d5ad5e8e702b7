"""A LoRA adapter that teaches SmolLM2-135M-Instruct to call tools: its data, its training, its GGUF.

The scenes are those of the bundled model, in the words of the tables alone, and written as callwright writes them for SmolLM2.
Loss is taken on calls; of an answer without a call only on whether it begins with one, so that the model's own
words stay as they are.
"""

import json
import math
import random
import subprocess
import time

import numpy as np
import torch

from .render import MARKERS, call_text, tojson
from .sampler import Sampler
from .scenes import Mix, Scenes, leave_out
from .train import sees

RANK, ALPHA = 8, 16.0
# A few scenes have no branch that fits.
SCENES, SEQUENCES = 1250, 1200
METADATA = {
    "general.name": "SmolLM2 135M Instruct, tool calls",
    "general.license": "apache-2.0",
    "general.base_model.0.name": "SmolLM2 135M Instruct",
    "general.base_model.0.organization": "HuggingFaceTB",
    "general.description": "Calls tools in callwright's format delimited.",
}
LENGTH = 1024
# What is predicted at a place: nothing, the next token, or that no call begins.
NOTHING, WRITTEN, NO_CALL = 0, 1, 2
# Whether a call begins is one token of forty, and decides about the rest.
DECISION = 3.0
MIX = Mix(
    (30, 26, 18, 12, 8, 6),
    (7, 10),
    {
        "simple": 100,
        "parallel_same": 9,
        "parallel_two": 9,
        "unfit": 60,
        "talk": 6,
        "answered": 8,
        "corrected": 3,
        "again": 6,
    },
    (0.97, 1.0),
)
# So many values are strange words, which a network of this size copies already.
STRANGE = 0.1


class Told(Scenes):
    """Scenes whose prompts show what the parameters mean."""

    def concrete(self, tool, style, needed=(), lean=None):
        return Sampler.concrete(self, tool, style, needed, lean)

    def draw(self, parameter):
        return (Scenes if self.rng.random() < STRANGE else Sampler).draw(self, parameter)

    def reworded(self, tool):
        return tool

    def akin(self, flat):
        return flat

    def foreign(self, flat):
        return flat


def scenes(tools, count, seed, barred):
    maker = Told(tools, random.Random(seed))
    while count:
        scene = maker.scene(MIX)
        if leave_out(scene, barred):
            count -= 1
            yield scene


class Prompts:
    """Writes scenes as the program writes them for SmolLM2; `written` of the program is compared in `check`."""

    def __init__(self, program, model):
        self.command = [str(program), "render", "-m", str(model), "--format", "delimited"]
        tool = {"type": "function", "function": {"name": "PLACE", "parameters": {"type": "object", "properties": {}}}}
        whole = self.written([{"role": "user", "content": "x"}], [tool])
        self.head, self.tail = whole[: whole.index("<|im_start|>user")].split(self.line(tool))

    def written(self, messages, tools):
        """What the program makes of it."""
        given = json.dumps({"messages": messages, "tools": tools})
        ran = subprocess.run([*self.command, "--messages", "-"], input=given, capture_output=True, text=True)
        if ran.returncode:
            raise ValueError(ran.stderr)
        return ran.stdout

    def line(self, tool):
        function = tool["function"]
        parts = {
            "name": function["name"],
            "description": function.get("description", ""),
            "parameters": function["parameters"],
        }
        return tojson(parts)

    def prefix(self, scene):
        text = self.head + "\n".join(map(self.line, scene.tools)) + self.tail
        start = "<|im_start|>system\n"
        return text.replace(start, f"{start}{scene.system}\n\n", 1) if scene.system else text

    def turns(self, messages):
        """Pieces of text, and for each what is predicted in it: its tokens, or that no call begins."""
        for message in messages:
            role, content = message["role"], message["content"]
            yield f"<|im_start|>{role}\n", NOTHING
            if role != "assistant":
                yield f"{content}<|im_end|>\n", NOTHING
            elif message.get("tool_calls"):
                yield "\n".join(map(call_text, message["tool_calls"])) + "<|im_end|>", WRITTEN
                yield "\n", NOTHING
            else:
                yield f"{content}<|im_end|>\n", NO_CALL

    def check(self, scenes):
        """Whether the program writes the same."""
        for scene in scenes:
            for _, messages in scene.branches:
                asked = messages[:-1]
                system = [{"role": "system", "content": scene.system}] if scene.system else []
                told = self.written(system + asked, scene.tools)
                mine = self.prefix(scene) + "".join(text for text, _ in self.turns(asked)) + "<|im_start|>assistant\n"
                if told.rstrip("\n") != mine.rstrip("\n"):
                    raise ValueError(f"the program writes another prompt:\n{told}\n--- and here ---\n{mine}")


def encode(scenes, prompts, tokenizer):
    """Packed sequences: (ids, scene, branch, place, wanted), each of the length of a sequence."""
    ids_of = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    for scene in scenes:
        prefix = ids_of(prompts.prefix(scene))
        tokens = [(id, 1, 0, place, NOTHING) for place, id in enumerate(prefix)]
        for branch, (_, messages) in enumerate(scene.branches, 1):
            said, place = [], len(prefix)
            for text, what in prompts.turns(messages):
                for at, id in enumerate(ids_of(text)):
                    said.append((id, 1, branch, place, NOTHING if what == NO_CALL and at else what))
                    place += 1
            if len(tokens) + len(said) <= LENGTH:
                tokens += said
        if any(wanted for *_, wanted in tokens):
            tokens += [(0,) * 5] * (LENGTH - len(tokens))
            yield np.array(tokens, np.int32).T


def batch(arrays):
    ids, scene, branch, place, wanted = torch.from_numpy(np.stack(arrays, axis=1).astype(np.int64))
    length = int((scene > 0).sum(1).max())
    length = -(-length // 128) * 128
    ids, scene, branch, place, wanted = (each[:, :length] for each in (ids, scene, branch, place, wanted))
    return ids, place, sees(scene, branch)[1], wanted, int((scene > 0).sum())


def loss_of(model, made, start):
    """The loss, and shares: of calls begun where one is due, of none begun where none is, and of tokens foreseen."""
    ids, place, mask, wanted, _ = made
    states = model(ids, place, mask)
    rows, columns = (wanted[:, 1:] > 0).nonzero(as_tuple=True)
    logits = model.logits(states[rows, columns])
    what, target = wanted[rows, columns + 1], ids[rows, columns + 1]
    first = (what == WRITTEN) & (wanted[rows, columns] == NOTHING)
    none = what == NO_CALL
    likely = logits.log_softmax(1)
    begins = likely[:, start].clamp(max=-1e-6)
    each = torch.where(none, -torch.log1p(-begins.exp()), -likely.gather(1, target[:, None])[:, 0])
    weight = torch.where(first | none, DECISION, 1.0)
    guessed = logits.argmax(1)
    shares = {
        "called": (guessed == start)[first],
        "left": (guessed != start)[none],
        "foreseen": (guessed == target)[(what == WRITTEN) & ~first],
    }
    return (each * weight).sum() / weight.sum(), shares


def train(model, tokenizer, data, dev, keep, *, size=2, lr=1e-3, threads=2, say=print):
    """Trains once over the data, `size` sequences a step; `keep`s the adapter now and then."""
    torch.set_num_threads(threads)
    start = tokenizer.encode(MARKERS[0], add_special_tokens=False).ids[0]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
    cast = torch.autocast("cpu", dtype=torch.bfloat16)
    began, seen, done, sums = time.time(), 0, 0, {}
    while done * size < len(data):
        progress = done * size / len(data)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (done + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * progress))
        made = batch(data[done * size : (done + 1) * size])
        with cast:
            loss, shares = loss_of(model, made, start)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done, seen = done + 1, seen + made[-1]
        add(sums, shares, loss)
        if done % 10 == 0:
            say(json.dumps({"step": done, "tokens": seen, "rate": round(seen / (time.time() - began)), **means(sums)}))
            sums = {}
        if done % 100 == 0:
            say(json.dumps({"step": done, "dev": watch(model, dev, start, cast)}))
            keep()
    say(json.dumps({"step": done, "tokens": seen, "dev": watch(model, dev, start, cast)}))
    keep()


@torch.no_grad()
def watch(model, dev, start, cast):
    sums = {}
    for arrays in dev:
        with cast:
            loss, shares = loss_of(model, batch([arrays]), start)
        add(sums, shares, loss)
    return means(sums)


def add(sums, shares, loss):
    for name, values in (*shares.items(), ("loss", loss.detach()[None])):
        sums.setdefault(name, []).append(values.float())


def means(sums):
    return {name: round(float(torch.cat(values).mean()), 4) for name, values in sums.items()}
