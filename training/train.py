"""The training loop: seeded, on a clock or a number of tokens, and resumable from its last checkpoint."""

import json
import math
import random
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from .model import Model, Shape


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal (Jordan et al., https://kellerjordan.github.io/posts/muon/)."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(gradient))
                buffer.lerp_(gradient, 1 - group["momentum"])
                step = orthogonal(gradient.lerp(buffer, group["momentum"]))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(step, alpha=-group["lr"] * scale)


def orthogonal(matrix):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if tall else x).to(matrix.dtype)


def load_rows(folder):
    """The encoded rows in their order: ids, and where the assistant speaks."""
    ids, told = np.load(folder / "ids.npy"), np.load(folder / "told.npy")
    ends = np.load(folder / "ends.npy")
    starts = np.concatenate(([0], ends[:-1]))
    return ids, told, list(zip(starts.tolist(), ends.tolist()))


def batches(rows, tokens, rng, longest):
    """Cuts the rows into batches of about `tokens`, alike in length, keeping the curriculum's order in the large."""
    pool = 64 * tokens // 256
    for at in range(0, len(rows), pool):
        part = sorted(
            (row for row in rows[at : at + pool] if row[1] - row[0] <= longest), key=lambda row: row[1] - row[0]
        )
        cut, batch = [], []
        for row in part:
            # A multiple of 32 keeps the number of different shapes small.
            length = padded(row[1] - row[0])
            if batch and length * (len(batch) + 1) > tokens:
                cut.append(batch)
                batch = []
            batch.append(row)
        if batch:
            cut.append(batch)
        rng.shuffle(cut)
        yield from cut


def padded(length):
    return -(-length // 32) * 32


def make_batch(batch, ids, told, rng):
    length = padded(max(end - start for start, end in batch)) + 1
    x = np.zeros((len(batch), length), np.int64)
    weight = np.zeros((len(batch), length), np.float32)
    for row, (start, end) in enumerate(batch):
        size = end - start
        x[row, :size] = ids[start:end]
        spoken = told[start:end].astype(np.float32)
        # A little of the prompt's own text teaches what words follow what; all of it would drown the calls.
        rest = (rng.random(size) < 0.1) * 0.1
        weight[row, :size] = np.maximum(spoken, rest)
    x, weight = torch.from_numpy(x), torch.from_numpy(weight)
    return x[:, :-1], x[:, 1:], weight[:, 1:]


def train(
    data,
    out,
    *,
    shape=None,
    seed=1,
    tokens=8192,
    minutes=None,
    total=None,
    lr=0.02,
    threads=2,
    compile=False,
    every=180.0,
    longest=1024,
    say=print,
):
    """Trains on the rows of `data`, writing `out/last.pt`; ends after `minutes` of work or `total` tokens."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    shape = shape or Shape()
    model = Model(shape)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk")]
    others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and name.startswith("blk"))]
    optimizers = [
        Muon([{"params": matrices}], lr=lr, weight_decay=0.01),
        torch.optim.AdamW([{"params": others}], lr=lr * 0.2, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    done, seen, spent, average = 0, 0, 0.0, None
    if (out / "last.pt").exists():
        state = torch.load(out / "last.pt", weights_only=False)
        model.load_state_dict(state["model"])
        for optimizer, kept in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
        done, seen, spent, average = state["done"], state["seen"], state["spent"], state["average"]
        say(f"resumed at step {done}, {seen / 1e6:.2f} M tokens, {spent / 60:.1f} minutes")
    hidden = torch.compile(model.hidden, dynamic=True) if compile else model.hidden
    ids, told, rows = load_rows(Path(data))
    order, noise = random.Random(seed), np.random.default_rng(seed + done)
    began = time.time() - spent
    kept = time.time()

    def save():
        state = {
            "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in optimizers],
            "shape": asdict(shape),
            "done": done,
            "seen": seen,
            "spent": time.time() - began,
            "average": average,
        }
        torch.save(state, out / "next.pt")
        (out / "next.pt").replace(out / "last.pt")

    passes = 0
    step = 0
    while True:
        passes += 1
        for batch in batches(rows, tokens, order, longest):
            step += 1
            if step <= done:
                continue
            spent = time.time() - began
            progress = max(spent / (minutes * 60) if minutes else 0.0, seen / total if total else 0.0)
            if progress >= 1.0:
                save()
                say(f"done: {done} steps, {seen / 1e6:.2f} M tokens, {spent / 60:.1f} minutes, loss {average:.4f}")
                return model
            # Linear decay to nothing, after a short warm-up.
            factor = min(1.0, (step + 1) / 50) * (1.0 - progress)
            for optimizer, starts in zip(optimizers, rates):
                for group, rate in zip(optimizer.param_groups, starts):
                    group["lr"] = rate * factor
            x, y, weight = make_batch(batch, ids, told, noise)
            wanted = weight.flatten().nonzero().squeeze(1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model.logits(hidden(x).flatten(0, 1)[wanted])
            losses = F.cross_entropy(logits.float(), y.flatten()[wanted], reduction="none")
            weights = weight.flatten()[wanted]
            loss = (losses * weights).sum() / weights.sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                spoken = weights == 1.0
                value = float(losses[spoken].mean())
            if not math.isfinite(value):
                raise FloatingPointError(f"loss {value} at step {step}")
            average = value if average is None else 0.98 * average + 0.02 * value
            done = step
            seen += sum(end - start for start, end in batch)
            now = time.time()
            if done % 20 == 0:
                record = {
                    "step": done,
                    "tokens": seen,
                    "minutes": round((now - began) / 60, 2),
                    "loss": round(average, 4),
                    "tokens_per_second": round(seen / max(now - began, 1e-9)),
                    "pass": passes,
                }
                say(json.dumps(record))
            if now - kept > every:
                save()
                kept = now


def load(path):
    state = torch.load(path, weights_only=False)
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model.eval()
