"""The figures of the model card: the suite, answered greedily by callwright itself.

The program renders, tokenises, decodes and parses; here its events are compared with what was expected. Shares come with
95% Wilson intervals.
"""

import json
import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST_TOKENS = "320"


def run(program, model, suite, style="delimited", constrain="off", limit=None, answers=None, threads=2):
    if not program.exists():
        raise SystemExit(f"{program} is missing: `cargo build --release` makes it, or name another with --program")
    cases = [json.loads(line) for line in suite.read_text().splitlines()]
    if limit:
        cases = [case for case in cases if int(case["id"].rsplit("-", 1)[1]) <= limit]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--model", str(model), "--constrain", constrain, "--format", style]
        with ThreadPoolExecutor(threads) as pool:
            answered = list(pool.map(lambda case: answer(program, options, case, Path(folder)), cases))
    records = [{**case, **judge(events, case["expected"])} for case, events in zip(cases, answered)]
    if answers:
        lines = ({"id": r["id"], "exact": r["exact"], "said": r["said"], "calls": r["calls"]} for r in records)
        answers.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    report(records, sys.stdout)
    usage = [event for events in answered for event in events if event["type"] == "usage"]
    tokens = sum(event["completion_tokens"] for event in usage)
    seconds = sum(event["completion_seconds"] for event in usage)
    print(
        f"\n{tokens} tokens generated, {tokens / seconds:.0f} a second in each of {threads} processes with one thread"
    )


def answer(program, options, case, folder):
    """The events of one run. A failed run raises: its cause is no fault of the model."""
    messages, tools = folder / f"{case['id']}-messages.json", folder / f"{case['id']}-tools.json"
    messages.write_text(json.dumps(case["messages"]))
    tools.write_text(json.dumps(case["tools"]))
    command = [str(program), "run", *options, "--messages", str(messages), "--tools", str(tools)]
    command += ["--output", "events", "--temp", "0", "--threads", "1", "--max-tokens", MOST_TOKENS]
    ran = subprocess.run(command, capture_output=True, text=True)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    if not any(event["type"] == "usage" for event in events):
        raise RuntimeError(f"{case['id']}: {' '.join(command)}: {ran.stderr}")
    return events


def judge(events, expected):
    """What an answer is: tried to call, well-formed, right names, exact."""
    calls, formed, attempted, said = [], True, False, ""
    for event in events:
        kind = event["type"]
        if kind == "text":
            said += event["delta"]
        elif kind == "call_start":
            attempted = True
            calls.append({"name": event["name"], "arguments": ""})
        elif kind == "call_arguments":
            calls[-1]["arguments"] += event["delta"]
        elif kind == "call_end":
            # Whether the arguments suit the tool's schema, which `valid` tells, is no matter of form.
            formed &= event["complete"]
        elif kind in ("repair", "diagnostic", "invalid_call"):
            attempted, formed = True, False
        elif kind == "done":
            formed &= event["finish_reason"] != "length"
    for call in calls:
        try:
            call["arguments"] = json.loads(call["arguments"] or "{}")
        except ValueError:
            formed = False
        formed &= bool(call["name"]) and isinstance(call["arguments"], dict)
    names = [call["name"] for call in calls] == [call["name"] for call in expected]
    return {
        "attempted": attempted,
        "formed": formed,
        "names": names,
        "exact": formed and same(calls, expected),
        "said": said,
        "calls": calls,
    }


def same(a, b):
    """JSON equality: 2 is 2.0, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


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
    row("right tools among cases that need one", single + of("parallel"), "names")
    row("exact call, one call", single, "exact")
    row("all calls exact, parallel", of("parallel"), "exact")
    row("no call where no tool fits", of("irrelevance"), "exact")
    for category in dict.fromkeys(record["category"] for record in records):
        row(f"exact: {category}", of(category), "exact")
