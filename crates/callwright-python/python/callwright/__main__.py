"""The program `callwright`, where the package has it."""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    name = "callwright.exe" if os.name == "nt" else "callwright"
    program = Path(__file__).parent / "program" / name
    if not program.exists():
        sys.exit(
            "error: this build of the Python package has the module, but not the program callwright\n"
            "hint: `make python-program` in a clone of callwright builds a package with both"
        )
    arguments = [str(program), *sys.argv[1:]]
    if os.name == "nt":
        # Windows has no exec that the calling shell waits for.
        sys.exit(subprocess.run(arguments).returncode)
    os.execv(program, arguments)


if __name__ == "__main__":
    main()
