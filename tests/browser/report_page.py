#!/usr/bin/env python3
"""Opens a page of tally report in a headless Chromium and uses it as a reader would.

    report_page.py TALLY [options of unittest]

TALLY is the program. Exit code 0: all is well, 1: not, 77: there is no Chromium (nothing was checked).
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import chromium

TINY = ["--task=flip-flop", "--preset=quick", "--quiet", "--length=16", "--model.width=8", "--model.heads=2", "--batch=4",
        "--steps=4", "--eval-every=2", "--save-every=2", "--optimiser.warmup=0", "--task.eval-count=6",
        "--task.sparse-count=5", "--task.dense-count=4", "--eval-count=0", "--threads=1"]


class ReportPage(unittest.TestCase):
    tally = None

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.browser = chromium.Browser(chromium.find())
        self.addCleanup(self.temporary.cleanup)
        self.addCleanup(self.browser.__exit__)

    def run_tally(self, *words):
        done = subprocess.run([self.tally, *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_shows_the_report_and_the_runs_behind_it(self):
        runs, path = self.folder / "runs 50% #1?", self.folder / "page.html"  # in an address these mean something else
        self.run_tally("sweep", runs, "--pe=cope,rope,none", "--seeds=1..2", *TINY)
        run = runs / "cope-seed1"
        self.run_tally("inspect", run, "--count", "1", "--out", run / "inspect.html")
        self.run_tally("report", runs, "--out", path)
        report = json.loads(self.run_tally("report", runs, "--json"))
        for width in (360, 400, 768):
            page = self.browser.open(path.as_uri(), width, 1000)
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
            right = "Math.max(...[...document.querySelectorAll('svg *')].map(shape => shape.getBoundingClientRect().right))"
            self.assertLessEqual(page.evaluate(right), width, "no picture is cut")
        page = self.browser.open(path.as_uri(), 1280, 1000)

        # Six seeds of three encodings on three splits, and the means that the text form prints.
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 18)
        page.evaluate("page.sequences = false; page.draw()")
        for row in report["tables"][1]["rows"]:
            mean = page.evaluate(f"meanOf(page.finals(page.here.groups.find(g => g.pe === '{row['encoding']}'), '{row['split']}')"
                                 ".map(final => final.share))")
            error = row["wrong tokens"]
            self.assertAlmostEqual(mean, error["mean"], places=12)

        # An encoding is switched off and on; a point names its run and links to its page.
        page.click("#groups button:nth-child(3)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 12)
        page.click("#groups button:nth-child(3)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 18)
        page.evaluate("document.querySelector('#dots .hit[aria-label^=\"cope, seed 1,\"]').dispatchEvent(new MouseEvent('click'))")
        self.assertIn("cope-seed1", page.evaluate("document.querySelector('#run h2').textContent"))
        self.assertEqual(page.evaluate("document.querySelector('#run a').href"), (run / "inspect.html").as_uri())
        self.assertEqual(page.evaluate("document.querySelector('#run a').textContent"), f"{runs.name}/cope-seed1/inspect.html")
        self.assertIn("1 thread,", page.evaluate("document.getElementById('run').textContent"))

        # It opens out of distribution. A copy of the address opens the page at the same place.
        self.assertEqual(page.evaluate("page.split"), "ood-sparse")
        before = page.evaluate("document.getElementById('curves').innerHTML")
        page.click("#scale button:not([aria-pressed=true])")
        self.assertNotEqual(page.evaluate("document.getElementById('curves').innerHTML"), before)
        page.click("#groups button:nth-child(3)")
        page.click("#split button:nth-child(3)")
        place = "[page.split, page.sequences, page.logarithmic, ...page.off].join()"
        copy = self.browser.open(page.evaluate("location.href"), 1280, 1000)
        self.assertEqual(copy.evaluate(place), page.evaluate(place))
        page.click("#split button:nth-child(1)")
        self.assertIn("in-distribution", page.evaluate("document.getElementById('curvetitle').textContent"))
        self.assertFalse(page.evaluate("/NaN|undefined/.test(document.body.innerHTML)"))
        self.assertEqual(page.problems, [])

    def test_more_than_six_encodings_are_a_chart_each(self):
        names = ["cope", "rope", "none", "absolute", "alibi", "kerple", "fox"]
        self.run_tally("sweep", self.folder / "runs", "--pe=" + ",".join(names), "--seeds=1", *TINY)
        self.run_tally("sweep", self.folder / "words", "--task=group-word", "--preset=quick", "--pe=cope,rope", "--seeds=1", "--quiet",
                       "--steps=2", "--batch=2", "--model.width=8", "--model.layers=1", "--optimiser.warmup=0", "--eval-every=1",
                       "--save-every=2", "--eval-count=2", "--task.eval-count=2", "--threads=1")
        self.run_tally("report", self.folder / "runs", self.folder / "words", "--out", self.folder / "page.html")
        page = self.browser.open((self.folder / "page.html").as_uri(), 1280, 1000)
        charts = "[...document.querySelectorAll('#curves .chart')]"
        self.assertEqual(page.evaluate(f"{charts}.length"), 7)
        self.assertEqual(sorted(page.evaluate(f"{charts}.map(chart => chart.querySelector('figcaption').textContent)")), sorted(names))
        best = page.evaluate("page.groups[0].label")
        # Each chart has its own line, and in grey the lines of the best encoding and of none, except in the charts of
        # these two.
        for name, own, muted in page.evaluate(f"{charts}.map(chart => [chart.querySelector('figcaption').textContent, "
                                              "chart.querySelectorAll('.line:not(.muted)').length, chart.querySelectorAll('.muted').length])"):
            self.assertEqual(own, 1, name)
            self.assertEqual(muted, len({best, "none"} - {name}), name)
        self.assertEqual(page.evaluate("document.querySelectorAll('#curves .hit').length"), 14)
        self.assertIn(best, page.evaluate("document.getElementById('compared').textContent"))

        # Encodings and tasks in two tables, of the numbers that the text form prints; a task's name leads there.
        self.assertEqual(page.evaluate("document.querySelectorAll('#overviewtable tr').length"), 2 * (1 + len(names)))
        shown = page.evaluate("[...document.querySelectorAll('#overviewtable td')].map(cell => cell.textContent)")
        self.assertEqual(shown.count("-"), 2 * (len(names) - 2))  # words: two encodings
        self.assertTrue(page.evaluate("document.getElementById('bykey').hidden"), "flip-flop is not broken down")
        page.click("#overviewtable th:nth-child(3) button")
        self.assertEqual(page.evaluate("page.here.name"), "group-word")

        # By t; every t has the same weight in the table.
        self.assertIn("by t, ood-long", page.evaluate("document.getElementById('keytitle').textContent"))
        self.assertEqual(page.evaluate("document.querySelectorAll('#keys .line').length"), 2)
        # Names of lines that end at the top are listed below each other, none of them above the chart.
        self.assertGreaterEqual(page.evaluate("Math.min(...[...document.querySelectorAll('#keys svg > text, #curves svg > text')]"
                                              ".map(text => Number(text.getAttribute('y'))))"), 12)
        run = json.loads((self.folder / "words/cope-seed1/results.json").read_text())
        by = next(e["by"] for e in run["evaluations"] if e["split"] == "ood-long")
        self.assertEqual(page.evaluate("page.here.groups.find(g => g.pe === 'cope').runs[0].keys['ood-long'].map(k => k[0])"), by["keys"])
        self.assertIn(page.evaluate(f"percent({by['mean_sequence_error']})"), page.evaluate("document.getElementById('table').textContent"))
        page.click("#overviewtable th:nth-child(2) button")
        self.assertEqual(page.evaluate("page.here.name"), "flip-flop")

        # One encoding less is six lines in one panel; the other task has two.
        page.click("#groups button:nth-child(3)")
        self.assertEqual(page.evaluate(f"{charts}.length"), 0)
        self.assertEqual(page.evaluate("document.querySelectorAll('#curves .line').length"), 6)
        self.assertEqual(page.evaluate("document.getElementById('compared').textContent"), "")
        page.click("#tasks button:nth-child(2)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#curves .line').length"), 2)
        page.click("#tasks button:nth-child(1)")
        page.click("#scale button:nth-child(2)")
        self.assertEqual(page.evaluate(f"{charts}.length"), 7)
        self.assertFalse(page.evaluate("/NaN|undefined/.test(document.body.innerHTML)"))
        self.assertEqual(page.problems, [])
        if os.environ.get("TALLY_SCREENSHOT"):
            page.screenshot(os.environ["TALLY_SCREENSHOT"], 1400)


if __name__ == "__main__":
    chromium.run_tests(ReportPage, __doc__)
