"""The tools of a fake home. The state is a JSON file; each call that changes something is in its log."""

import json
import os
import sys

PATH = os.environ["TASK_STATE"]
READS = ("get_room", "list_events", "read_file")

tool, arguments = sys.argv[1], json.load(sys.stdin)
with open(PATH, encoding="utf-8") as file:
    state = json.load(file)
if tool not in READS:
    state["log"].append([tool, arguments])
    with open(PATH, "w", encoding="utf-8") as file:
        json.dump(state, file)
match tool:
    case "get_room":
        changes = [entry for entry in state["log"] if entry[1].get("room") == arguments["room"]]
        print(f"changed so far: {json.dumps(changes)}" if changes else "the light is off, 16 degrees")
    case "list_events":
        print("meeting on tuesday; holiday on friday")
    case "read_file":
        print("(empty)")
    case "delete_event" | "delete_file":
        print("deleted")
    case _:
        print("ok")
