#!/usr/bin/env python3
"""Makes the pictures of the documentation: the server's page after a question, and the report of a benchmark, as headless
Chromium shows them.

usage: pictures.py PROGRAM FOLDER
"""

import base64
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE = 120


class Browser:
    """Chromium, which reads commands from file 3 and writes answers to file 4."""

    def __init__(self, program, profile):
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        shell = ["sh", "-c", 'exec "$@" 3<&0 4>&1 >/dev/null 2>&1', "sh", program]
        self.process = subprocess.Popen(shell + flags, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.session, self.number = None, 0
        page = next(info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]

    def call(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        self.process.stdin.write(json.dumps(command).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            answer = bytearray()
            while (byte := self.process.stdout.read(1)) != b"\0":
                if not byte:
                    sys.exit("error: the browser has ended")
                answer += byte
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"error: {method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + PATIENCE
        while self.value(expression) is not True:
            if time.monotonic() > end:
                sys.exit(f"error: this never became true in the page: {expression}")
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def enter(self, text):
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", windowsVirtualKeyCode=13)

    def picture(self, file, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def page(browser, program, file):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port), "--no-auth"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/"
        for _ in range(PATIENCE):
            try:
                urllib.request.urlopen(url + "health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        browser.open(url)
        browser.wait("document.activeElement.id === 'message'")
        browser.value("document.getElementById('temperature').value = '0'")
        browser.enter("What's the weather in Beijing tomorrow?")
        browser.wait("document.activeElement.matches('.result textarea')")
        browser.enter("sunny, 21 degrees")
        browser.wait("document.querySelectorAll('article.assistant[aria-busy=false]').length === 2")
        browser.value("document.querySelector('.trace summary').click()")
        browser.wait("document.querySelectorAll('.trace .tokens').length === 2")
        browser.value("document.querySelector('article').scrollIntoView()")
        browser.picture(file, 1100, 900)
    finally:
        server.terminate()
        server.wait()


def report(browser, program, file, folder):
    command = [program, "bench", "--limit", "40", "--temp", "0", "--out", "first"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, cwd=folder, **quiet)
    browser.open((folder / "first" / "report.html").as_uri())
    browser.value("scrollTo(0, 0)")
    browser.picture(file, 1100, 900)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[-1])
    program, folder = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    names = ["chromium", "chromium-browser", "google-chrome"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        print(f"SKIPPED the pictures: none of {', '.join(names)} is installed", file=sys.stderr)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        # Neither this user's settings nor the measurements of this machine.
        os.environ.update(HOME=home, XDG_CONFIG_HOME=home, XDG_CACHE_HOME=home, CALLWRIGHT_CONFIG="")
        browser = Browser(found, f"{home}/profile")
        try:
            page(browser, program, folder / "page.png")
            report(browser, program, folder / "report.png", pathlib.Path(home))
        finally:
            browser.process.kill()
            browser.process.wait()
    for file in sorted(folder.glob("*.png")):
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
