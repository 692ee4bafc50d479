"""Drives a headless Chromium by the DevTools protocol over a pair of pipes, with nothing but the standard library.

    with Browser(executable) as browser:
        page = browser.open("file:///tmp/page.html", 1440, 1000)
        page.evaluate("document.title")
        page.click("#button")
        page.key("ArrowLeft")
        page.screenshot("page.png")
        page.problems     # console errors, and exceptions that were not caught

As a program, a picture of the top of a page, with two pixels for each of its pixels:

    chromium.py PAGE.html[#PLACE] PICTURE.png WIDTH HEIGHT
"""

import argparse
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """A Chromium of this machine, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, executable, seconds=30):
        self.seconds, self.number, self.events, self.buffer = seconds, 0, [], b""
        self.profile = tempfile.mkdtemp(prefix="tally_browser_")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads file 3 and writes file 4. The shell puts the pipes there: their numbers here may be any.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", command, executable, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--no-first-run",
             "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, session=None, **parameters):
        """The result of a command; events that come meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        while True:
            answer = self.receive(time.monotonic() + self.seconds)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.events.append(answer)

    def receive(self, end):
        """The next message; messages end in a zero byte."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {self.seconds} s")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise RuntimeError("the browser is gone")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, url, width, height, dark=False, scale=1):
        return Page(self, url, width, height, dark, scale)


class Page:
    def __init__(self, browser, url, width, height, dark, scale):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        begin = time.monotonic()
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.load_seconds = time.monotonic() - begin

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of a JavaScript expression, awaited if it is a promise."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + self.browser.seconds
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.01)

    def click(self, selector):
        """A click with the mouse in the middle of the element."""
        x, y = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                             "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                             "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left",
                      clickCount=0 if kind == "mouseMoved" else 1)

    def key(self, name):
        """A key as `KeyboardEvent.key` calls it."""
        letter = {"text": name} if len(name) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=name, **letter)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name)

    def screenshot(self, path, height=None):
        clip = {}
        if height:
            width = self.evaluate("innerWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}, "captureBeyondViewport": True}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"]))

    @property
    def problems(self):
        """Errors and warnings of the console, exceptions, and all that was asked of a network."""
        self.evaluate("0")  # earlier events have arrived by now
        found = []
        for event in self.browser.events:
            parameters = event.get("params", {})
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
            elif event["method"] == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(
                    ("file:", "data:", "blob:", "about:")):
                found.append("asks for " + parameters["request"]["url"])
        return found


def run_tests(case, description):
    """The main program of a test whose first argument is the program to test; exits with 77 where there is no Chromium."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tally")
    given, rest = parser.parse_known_args()
    if find() is None:
        print(f"{sys.argv[0]}: there is no Chromium (Debian: chromium); nothing was checked", file=sys.stderr)
        sys.exit(77)
    case.tally = given.tally
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    address, picture, width, height = sys.argv[1:]
    path, _, place = address.partition("#")
    with Browser(find()) as opened:
        shown = opened.open(pathlib.Path(path).absolute().as_uri() + "#" + place, int(width), int(height), scale=2)
        shown.evaluate("new Promise(done => setTimeout(done, 1000))")
        shown.screenshot(picture)
