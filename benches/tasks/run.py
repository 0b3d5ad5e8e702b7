"""Gives a program the tasks of tasks.jsonl, and says what became of them.

    python3 benches/tasks/run.py PROGRAM OUTPUT.jsonl -m MODEL [OPTION...]

A task counts as right if the run ended well (status 0) and exactly the wanted changes were made, each once. Destructive calls
wait for approval; those that the task wants are approved, others denied. `--plain` first is for a program without effects: it
gets the same tools without them, and `--yes`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def equal(one, other):
    """Compare calls: names of things in any case, numbers by value."""
    text = lambda call: json.dumps(call, sort_keys=True).lower().replace(".0", "")
    return text(one) == text(other)


def one(program, options, task, plain):
    with tempfile.TemporaryDirectory() as folder:
        state, journal = os.path.join(folder, "state.json"), os.path.join(folder, "run.jsonl")
        with open(state, "w") as file:
            json.dump({"log": []}, file)
        tools = os.path.join(HERE, "home.toml")
        if plain:
            text = "".join(line for line in open(tools) if not line.startswith("effect ="))
            tools = os.path.join(folder, "home.toml")
            open(tools, "w").write(text.replace('cwd = "."', f'cwd = "{HERE}"'))
        env = {**os.environ, "TASK_STATE": state}
        command = [program, "run", task["ask"], "--tools", tools, "--execute", "--output", "json", *options]
        command += ["--yes"] if plain else ["--journal", journal]
        started, approved, status = time.time(), [], None
        for _ in range(4):
            ran = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            status = ran.returncode
            if plain or status != 4:
                break
            lines = [json.loads(line) for line in open(journal)]
            waiting = [line["beside"]["pending"] for line in lines if "pending" in line.get("beside", {})][-1]
            command = [program, "resume", journal]
            for call in waiting:
                made = [call["name"], json.loads(call["arguments"])]
                wanted = any(equal(made, want) for want in task["calls"])
                command += ["--approve" if wanted else "--deny", f"{call['id']}={call['hash']}"]
                approved += [made] if wanted else []
        log = json.load(open(state))["log"]
    twice = sum(any(equal(call, before) for before in log[:at]) for at, call in enumerate(log))
    needs = [call for call in log if call[0] in ("delete_event", "delete_file")]
    unapproved = 0 if plain else sum(not any(equal(call, ok) for ok in approved) for call in needs)
    made = len(log) == len(task["calls"]) and all(any(equal(call, want) for call in log) for want in task["calls"])
    try:
        run_status = json.loads(ran.stdout.strip().splitlines()[-1]).get("status")
    except (json.JSONDecodeError, IndexError):
        run_status = None
    return {"id": task["id"], "exit": status, "status": run_status, "log": log, "made": made, "right": made and status == 0,
            "twice": twice, "unapproved": unapproved, "seconds": round(time.time() - started, 1)}


def main():
    arguments = sys.argv[1:]
    plain = arguments[0] == "--plain"
    program, output, *options = arguments[plain:]
    results = []
    with open(output, "w") as file:
        for line in open(os.path.join(HERE, "tasks.jsonl")):
            results.append(one(os.path.abspath(program), options, json.loads(line), plain))
            file.write(json.dumps(results[-1]) + "\n")
            file.flush()
    count = lambda key: sum(bool(result[key]) for result in results)
    print(f"{len(results)} tasks: {count('right')} right, {count('made')} with the right changes, "
          f"{sum(result['exit'] == 0 for result in results)} ended well, "
          f"{sum(result['twice'] for result in results)} changes made twice, "
          f"{sum(result['unapproved'] for result in results)} without approval, "
          f"{sum(result['seconds'] for result in results):.0f} s")


main()
