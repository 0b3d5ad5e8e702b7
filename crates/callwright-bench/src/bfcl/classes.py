"""The classes of the leaderboard's cases of several turns, for another process: a line of JSON in, a line out.

Arguments: the folder with the package bfcl_eval, and the seconds that a request may take.
"""

import json
import os
import signal
import sys

MOST = 8  # differences that are shown


def plain(value):
    """A value as JSON has it; an object is what it has, without its parent."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(inner) for inner in value]
    if hasattr(value, "__dict__"):
        return {key: plain(inner) for key, inner in vars(value).items() if key != "parent" and key[:1] != "_"}
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def differences(model, gold, at, found):
    if isinstance(model, dict) and isinstance(gold, dict):
        for key in {**gold, **model}:
            differences(model.get(key), gold.get(key), f"{at}/{key}", found)
    elif model != gold:
        short = lambda value: text if len(text := json.dumps(value, default=repr)) <= 120 else text[:117] + "…"
        found.append(f"{at} is {short(model)}; expected {short(gold)}")
    return found


def why(verdict, entry, turn):
    kind, details = verdict["error_type"], verdict.get("details", {})
    gold = "; ".join(entry["ground_truth"][turn])
    if kind.endswith("empty_turn_model_response"):
        return f"no call was executed; the gold path has {gold}"
    if kind.endswith("execution_response_mismatch"):
        missing = ", ".join(map(repr, details["missing_items"][:MOST]))
        return f"no result is {missing[:600]}; the gold path has {gold}"
    found = []
    for name, two in details["differences"].items():
        differences(plain(two["model"]), plain(two["ground_truth"]), f"/{name}", found)
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return "; ".join(found[:MOST] + more or ["the state differs"]) + f"; the gold path has {gold}"


def main():
    folder, seconds = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # A class may print.
    sys.path.insert(0, folder)
    entry, turns = None, []
    for line in sys.stdin.buffer:
        if hasattr(signal, "alarm"):
            signal.alarm(seconds + 5)  # Whoever started this may be gone.
        try:
            from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
            from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

            request = json.loads(line)
            run = lambda calls, name: execute_multi_turn_func_call(
                calls, entry["initial_config"], entry["involved_classes"], name, entry["id"], "long_context" in entry["id"]
            )[0]
            if "case" in request:
                entry, turns = request["case"], []
                for turn, calls in enumerate(entry["ground_truth"]):
                    for call, result in zip(calls, run(calls, "gold")):
                        if result.startswith("Error during execution"):
                            raise ValueError(f"turn {turn + 1} of the gold path: {call}: {result}")
                answer = {}
            elif "call" in request:
                name, arguments = request["call"], request["arguments"]
                if not all(key.isidentifier() for key in (name, *arguments)):
                    answer = {"result": f"Error during execution: {name} has an argument that is no name"}
                else:
                    call = f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"
                    turns[-1].append([call])
                    answer = {"result": run([call], "model")[0]}
            elif "turn" in request:
                turns.append([])
                answer = {}
            elif "verdict" in request:
                if not request["verdict"] or len(turns) != len(entry["ground_truth"]):
                    answer = {
                        "error_type": "multi_turn:force_terminated",
                        "turn": len(turns) - 1,
                        "detail": "the model still called tools in the last answer that it may give",
                    }
                else:
                    category = entry["id"].rsplit("_", 1)[0]
                    checked = [len(turns)]
                    verdict = multi_turn_checker(turns, Counted(entry["ground_truth"], checked), entry, category, "checked")
                    answer = {"error_type": ""}
                    if not verdict["valid"]:
                        turn = checked[0]
                        answer = {"error_type": verdict["error_type"], "turn": turn, "detail": why(verdict, entry, turn)}
            else:
                import mpmath  # noqa: F401, which a class needs

                answer = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if hasattr(signal, "alarm"):
            signal.alarm(0)


class Counted(list):
    """The gold path, which notes the turn that the checker is at."""

    def __init__(self, turns, at):
        super().__init__(turns)
        self.at = at

    def __iter__(self):
        for turn, calls in enumerate(super().__iter__()):
            self.at[0] = turn
            yield calls


main()
