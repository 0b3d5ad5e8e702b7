"""Greedy answers to the benchmark's suite, compared with what was expected; shares with 95% Wilson intervals."""

import json
import math
import random
import re
import sys
import time

import torch

from . import export
from .generate import CURRICULUM, Conversations
from .render import END, STYLES, render

MOST_TOKENS = 320


def run(model_path, suite_path, limit=None, style="delimited", answers=None):
    torch.set_num_threads(1)
    model, tokenizer = export.read(model_path)
    cases = [json.loads(line) for line in suite_path.read_text().splitlines()]
    if limit:
        seen = {}
        cases = [
            case
            for case in cases
            if seen.setdefault(case["category"], []).append(0) or len(seen[case["category"]]) <= limit
        ]
    log = open(answers, "w") if answers else None
    records, tokens, began = [], 0, time.time()
    for case in cases:
        text, ended, count = answer(model, tokenizer, case["messages"], case["tools"], style)
        tokens += count
        record = {
            "id": case["id"],
            "category": case["category"],
            "text": text,
            **judge(text, ended, case["expected"], style),
        }
        records.append(record)
        if log:
            print(json.dumps({**record, "expected": case["expected"]}, ensure_ascii=False), file=log, flush=True)
    report(records, sys.stdout)
    print(f"{len(cases)} cases, {tokens} tokens generated in {time.time() - began:.0f} s", file=sys.stderr)
    return records


def run_seen(model_path, tools, count, seed=991):
    """New conversations of the training domains: how far the model is from what it was taught."""
    torch.set_num_threads(1)
    model, tokenizer = export.read(model_path)
    conversations = Conversations(tools, random.Random(seed))
    records = []
    for _ in range(count):
        row = conversations.row(CURRICULUM[-1])
        *before, last = row.messages
        expected = [call["function"] for call in last.get("tool_calls", [])]
        text, ended, _ = answer(model, tokenizer, before, row.tools, row.style)
        records.append({"category": row.category, **judge(text, ended, expected, row.style)})
    for category in dict.fromkeys(record["category"] for record in records):
        chosen = [record["exact"] for record in records if record["category"] == category]
        share, low, high = wilson(sum(chosen), len(chosen))
        print(f"| {category} | {sum(chosen)}/{len(chosen)} | {share:.1%} | {low:.1%} – {high:.1%} |")


def answer(model, tokenizer, messages, tools, style="delimited"):
    prompt = tokenizer.encode(render(messages, tools, style, add_generation_prompt=True)).ids
    ids, ended = model.generate(prompt, tokenizer.token_to_id(END), MOST_TOKENS)
    return tokenizer.decode(ids, skip_special_tokens=False), ended, len(ids)


def calls_of(text, style):
    """The calls in `text`, or None if it tries to call and is not well-formed."""
    start, end = STYLES[style]
    at = text.find(start)
    if at < 0:
        return [] if end not in text else None
    calls, rest = [], text[at:]
    pattern = re.compile(re.escape(start) + r"\n(.*?)\n" + re.escape(end) + r"\n?", re.S)
    while rest:
        found = pattern.match(rest)
        if not found:
            return None
        try:
            call = json.loads(found[1])
        except ValueError:
            return None
        if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["arguments"], dict):
            return None
        calls.append(call)
        rest = rest[found.end() :]
    return calls


def same(a, b):
    """JSON equality: 2 is 2.0, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def judge(text, ended, expected, style):
    calls = calls_of(text, style)
    attempted = any(marker in text for marker in STYLES[style])
    formed = calls is not None and ended
    names = formed and [call["name"] for call in calls] == [call["name"] for call in expected]
    return {"attempted": attempted, "formed": formed, "names": names, "exact": formed and same(calls, expected)}


def wilson(hits, total, z=1.96):
    if not total:
        return 0.0, 0.0, 0.0
    share = hits / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return share, max(0.0, centre - half), min(1.0, centre + half)


def report(records, out):
    def row(name, chosen, key):
        hits = sum(record[key] for record in chosen)
        share, low, high = wilson(hits, len(chosen))
        print(f"| {name} | {hits}/{len(chosen)} | {share:.1%} | {low:.1%} – {high:.1%} |", file=out)

    of = lambda *names: [record for record in records if record["category"] in names]
    single = of("simple", "multiple", "nested", "awkward", "long")
    print("| | cases | share | 95% interval |\n|---|---|---|---|", file=out)
    row("well-formed among attempted calls", [record for record in records if record["attempted"]], "formed")
    row(
        "right tools among cases that need one",
        of("simple", "multiple", "nested", "awkward", "long", "parallel"),
        "names",
    )
    row("exact call, one call", single, "exact")
    row("all calls exact, parallel", of("parallel"), "exact")
    row("no call where no tool fits", of("irrelevance"), "exact")
    for category in dict.fromkeys(record["category"] for record in records):
        row(f"exact: {category}", of(category), "exact")
