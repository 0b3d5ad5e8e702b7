"""Prints runs of the leaderboard's cases of several turns, and what its own checker says of each: all gold paths, and as
many with one call dropped, doubled, moved or changed.

usage: bfcl_turns.py FOLDER SEED        FOLDER: where the package bfcl_eval is
"""

import ast
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING as DESCRIBED
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

DATA = Path(sys.argv[1]) / "bfcl_eval" / "data"
CATEGORIES = ["multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"]
KINDS = ["dropped", "doubled", "moved", "changed"]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def decoded(call, parameters):
    """The name and the arguments of a call that is written in Python."""
    tree = ast.parse(call, mode="eval").body
    names = parameters[tree.func.id]
    arguments = {names[at]: ast.literal_eval(value) for at, value in enumerate(tree.args)}
    return tree.func.id, {**arguments, **{word.arg: ast.literal_eval(word.value) for word in tree.keywords}}


def other(value, random):
    match value:
        case bool():
            return not value
        case int() | float():
            return value + random.choice([-1, 1, 2])
        case str():
            return random.choice([value + "x", value.upper(), ""])
        case list():
            return value[:-1] if value else ["x"]
        case dict():
            return {**value, "x": 1}
    return "x"


def mutated(turns, random, kind):
    """The same calls but for one; None where there is none to do this with."""
    turns = [list(turn) for turn in turns]
    fitting = {"moved": lambda turn: len(turn) > 1, "changed": lambda turn: any(call[1] for call in turn)}.get(kind, len)
    places = [at for at, turn in enumerate(turns) if fitting(turn)]
    if not places:
        return None
    turn = turns[random.choice(places)]
    at = random.randrange(len(turn))
    match kind:
        case "dropped":
            del turn[at]
        case "doubled":
            turn.insert(at, turn[at])
        case "moved":
            call = turn.pop(at)
            turn.insert(random.choice([place for place in range(len(turn) + 1) if place != at]), call)
        case "changed":
            at = random.choice([place for place, call in enumerate(turn) if call[1]])
            name, arguments = turn[at]
            key = random.choice(sorted(arguments))
            turn[at] = name, {**arguments, key: other(arguments[key], random)}
    return turns


def main():
    chance, count = random.Random(int(sys.argv[2])), 0
    for category in CATEGORIES:
        answers = lines(DATA / "possible_answer" / f"BFCL_v4_{category}.json")
        for entry, answer in zip(lines(DATA / f"BFCL_v4_{category}.json"), answers):
            parameters = {
                tool["name"]: list(tool["parameters"]["properties"])
                for name in entry["involved_classes"]
                for tool in lines(DATA / "multi_turn_func_doc" / DESCRIBED[name])
            }
            gold = [[decoded(call, parameters) for call in turn] for turn in answer["ground_truth"]]
            at = count // 2 % len(KINDS)
            for kind in ["gold", *KINDS[at:], *KINDS[:at]]:
                turns = gold if kind == "gold" else mutated(gold, chance, kind)
                if turns is None:
                    continue
                written = lambda name, arguments: f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
                steps = [[[written(*call)] for call in turn] for turn in turns]
                if kind == "gold":
                    steps = [[turn] if turn else [] for turn in answer["ground_truth"]]
                verdict = multi_turn_checker(steps, answer["ground_truth"], entry, category, f"run{count}")
                calls = [[{"name": name, "arguments": arguments} for name, arguments in turn] for turn in turns]
                print(json.dumps({"id": entry["id"], "kind": kind, "turns": calls, "error_type": verdict.get("error_type", "")}))
                count += 1
                if kind != "gold":
                    break


main()
