#!/usr/bin/env python3
"""Opens the page of the live chapter in a headless Chromium, trains its models and uses it as a reader would.

    live_page.py PROGRAM [options of unittest]

PROGRAM is the same chapter for this machine, which prints the losses that the page must show. Exit code 0: all is well,
1: not, 77: there is no Chromium, or no page of the current sources (nothing was checked). tasks/course/live/build.sh
builds the page.
"""

import os
import pathlib
import subprocess
import sys
import unittest

import chromium

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build/live"
STEPS, ROUNDING = 20, 2e-5


def is_current():
    """Whether the page was built from the sources as they are now."""
    if not (BUILD / "live.html").exists():
        return False
    return "no work to do" in subprocess.run(["ninja", "-n", "-C", BUILD], capture_output=True, text=True).stdout


class LivePage(unittest.TestCase):
    tally = None

    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Browser(chromium.find())
        cls.page = cls.browser.open((BUILD / "live.html").as_uri(), 1280, 1000)
        cls.page.wait_for("page.firstCurve !== null")
        print(f"first curve after {cls.page.evaluate('page.firstCurve') / 1000:.2f} s", file=sys.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def tearDown(self):
        self.assertEqual(self.page.problems, [])
        self.assertFalse(self.page.evaluate("/NaN|undefined/.test(document.body.innerText)"))

    def restart(self, setting="", value=""):
        """Starts again, by a slider if one is named."""
        run = self.page.evaluate("page.run")
        if setting:
            self.set(setting, value, "change")
        else:
            self.page.click("#start")
        self.assertEqual(self.page.evaluate("page.run"), run + 1)
        self.page.wait_for("page.models.every(model => model.inside !== null && model.losses.length > 0)")

    def set(self, control, value, event="input"):
        self.page.evaluate(f"(() => {{ const e = document.getElementById('{control}'); e.value = '{value}';"
                           f"e.dispatchEvent(new Event('{event}')); }})()")

    def choose(self, encoding):
        self.page.evaluate(f"page.models[1].choice.value = '{encoding}'; page.models[1].choice.onchange()")

    def inside(self, number, selector):
        return self.page.evaluate(f"document.querySelectorAll('#inside-{number} {selector}').length")

    def test_curves_grow_and_losses_are_those_of_the_program(self):
        self.restart()
        lines = "[...document.querySelectorAll('#curves polyline')].map(line => line.points.length)"
        self.page.wait_for(f"{lines}.length === 4 && Math.min(...{lines}) >= 2")
        before = self.page.evaluate(lines)
        self.page.wait_for(f"page.models.every(model => model.losses.length >= {STEPS})")
        self.page.wait_for(f"{lines}.every((count, n) => count > {before}[n])")
        self.page.wait_for("page.models.every(model => model.step >= 60)")
        rows = "[...document.querySelectorAll('#models tr')]"
        self.page.wait_for(f"{rows}.every(row => Number(row.cells[2].textContent) > 0)")
        speeds = self.page.evaluate("page.models.map(model => Math.round(10 * model.speed) / 10)")
        print(f"steps a second: {speeds}", file=sys.stderr)
        self.page.click("#pause")
        for number, encoding in enumerate(("cope", "rope")):
            command = [self.tally, encoding, "16", "4", "64", "50", str(STEPS)]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            native = [float(line) for line in printed.splitlines()[:STEPS]]
            shown = self.page.evaluate(f"page.models[{number}].losses.slice(0, {STEPS})")
            for step, (here, there) in enumerate(zip(shown, native, strict=True), 1):
                self.assertAlmostEqual(here, there, delta=ROUNDING * there, msg=f"{encoding}, step {step}")

    def test_pause(self):
        self.restart()
        self.page.click("#pause")
        self.page.evaluate("new Promise(done => setTimeout(done, 500))")  # the steps under way
        before = self.page.evaluate("page.models.map(model => model.step)")
        self.page.evaluate("new Promise(done => setTimeout(done, 500))")
        self.assertEqual(self.page.evaluate("page.models.map(model => model.step)"), before)
        self.page.click("#pause")
        self.page.wait_for(f"page.models.every((model, n) => model.step > {before}[n])")

    def test_look_inside(self):
        self.restart("heads", "1")
        self.set("text", "")
        self.page.click("#text")
        for key in "w1i0r":
            self.page.key(key)
        self.page.wait_for("page.models.every(model => model.inside?.tokens?.join('') === 'w1i0r')")
        for number in (0, 1):
            self.page.wait_for(f"document.querySelectorAll('#inside-{number} .sequence span').length === 5")
        # Two layers of two heads: attention, and gates for CoPE.
        self.assertEqual([self.inside(n, "canvas") for n in (0, 1)], [8, 4])
        self.assertRegex(self.page.evaluate("document.getElementById('inside-0').innerText"),
                         "CoPE answers . – (right|wrong, it is 1)")
        # The first query can read only itself. Nothing is drawn above the diagonal.
        drawn = self.page.evaluate("""[...document.querySelectorAll(".heads canvas")].map(canvas => {
          const row = canvas.getContext("2d").getImageData(0, 20, canvas.width, 1).data;
          return [row[4 * 20 + 3], row[4 * 180 + 3]];
        })""")
        self.assertEqual([drawn[n] for n in (0, 1, 8, 9)], [[255, 0]] * 4)
        self.page.key("x")
        self.page.wait_for("document.querySelectorAll('.answer.error').length === 2")
        self.set("text", "")
        self.page.wait_for("document.getElementById('inside-0').innerText === 'Type a sequence.'")
        self.set("distance", "9")
        self.assertEqual(self.page.evaluate("document.getElementById('text').value"), "w0w1" + 8 * "i0" + "r")
        self.page.wait_for("document.querySelectorAll('#inside-0 .sequence span').length === 21")

    def test_sliders_and_choices(self):
        self.restart("heads", "0")
        self.page.wait_for("document.querySelectorAll('#inside-1 canvas').length === 2")
        self.restart("heads", "2")
        losses = "page.models.map(model => model.losses[0])"
        before = self.page.evaluate(losses)
        self.restart("pmax", "8")
        after = self.page.evaluate(losses)
        self.assertEqual(before[1], after[1])
        self.restart("pmax", "16")
        self.assertEqual(self.page.evaluate(losses), before)
        self.restart("ignored", "8")
        self.assertNotEqual(self.page.evaluate(losses), before)
        self.restart("ignored", "5")
        for encoding in ("alibi", "absolute", "none"):
            self.choose(encoding)
            self.page.wait_for("page.models[1].losses.length > 0")
            name = self.page.evaluate("page.models[1].name")
            self.page.wait_for(f"document.getElementById('inside-1').innerText.startsWith('{name} answers')")
        self.choose("rope")

    def test_no_window_scrolls_to_the_side(self):
        for width in (360, 768, 1280):
            for dark in (False, True):
                self.page.send("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1,
                               mobile=False)
                self.page.send("Emulation.setEmulatedMedia",
                               features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
                self.page.wait_for(f"innerWidth === {width} && document.querySelectorAll('polyline').length === 4")
                self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), width)
                if os.environ.get("TALLY_SCREENSHOT"):
                    height = self.page.evaluate("document.documentElement.scrollHeight")
                    self.page.screenshot(f"{os.environ['TALLY_SCREENSHOT']}-{width}{'-dark' * dark}.png", height)


if __name__ == "__main__":
    if not is_current():
        print(f"{sys.argv[0]}: {BUILD}/live.html is missing or older than its sources; build it by "
              "tasks/course/live/build.sh (installs emscripten); nothing was checked", file=sys.stderr)
        sys.exit(77)
    chromium.run_tests(LivePage, __doc__)
