#!/usr/bin/env python3
"""Lists the packages that are compiled into a program, from the answer of `cargo metadata`: as CycloneDX, and the texts of
their licences.

usage: bill.py METADATA PACKAGE --json FILE --licences FILE
"""

import argparse
import json
import pathlib
import sys


def compiled_in(metadata, name):
    """The packages that `name` needs to run; not what only its build or its tests need."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(id for id, package in packages.items() if package["name"] == name and package["source"] is None)
    seen, todo = {root}, [root]
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    seen.remove(root)
    return packages[root], sorted((packages[id] for id in seen), key=lambda package: (package["name"], package["version"]))


def component(package, kind="library"):
    url = f"pkg:cargo/{package['name']}@{package['version']}"
    entry = {"type": kind, "bom-ref": url, "name": package["name"], "version": package["version"], "purl": url}
    if package["description"]:
        entry["description"] = " ".join(package["description"].split())
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def texts(package):
    """The files of a package that have its licence, also those of code from others that it carries."""
    folder = pathlib.Path(package["manifest_path"]).parent
    words = ("license", "licence", "copying", "notice", "unlicense")
    found = [path for path in sorted(folder.rglob("*")) if path.name.lower().startswith(words) and path.is_file()]
    return [(path.relative_to(folder), path.read_text(errors="replace")) for path in found]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("metadata", type=pathlib.Path)
    arguments.add_argument("package")
    arguments.add_argument("--json", type=pathlib.Path, required=True)
    arguments.add_argument("--licences", type=pathlib.Path, required=True)
    given = arguments.parse_args()
    root, packages = compiled_in(json.loads(given.metadata.read_text()), given.package)
    without = [package["name"] for package in packages if not package["license"] and not package["license_file"]]
    if without:
        sys.exit(f"error: no licence is known of: {', '.join(without)}")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, "application")},
        "components": [component(package) for package in packages],
    }
    given.json.write_text(json.dumps(bill, indent=1, ensure_ascii=False) + "\n")
    # Many packages have the same text.
    users = {}
    for package in packages:
        title = f"{package['name']} {package['version']} ({package['license']})"
        found = texts(package) or [(None, "The package carries no text of its licence.")]
        for path, text in found:
            inner = "" if path is None or len(path.parts) == 1 else f", {path}"
            users.setdefault(text.strip(), []).append(title + inner)
    parts = ["\n".join(dict.fromkeys(names)) + "\n\n" + text for text, names in users.items()]
    given.licences.write_text(f"\n\n{'=' * 80}\n\n".join(parts) + "\n")
    print(f"{len(packages)} packages, {len(parts)} texts of licences")


if __name__ == "__main__":
    main()
