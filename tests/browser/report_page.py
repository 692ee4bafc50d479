#!/usr/bin/env python3
"""Opens a page of tally report in a headless Chromium and uses it as a reader would.

    report_page.py TALLY [options of unittest]

TALLY is the program. Exit code 0: all is well, 1: not, 77: there is no Chromium (nothing was checked).
"""

import argparse
import json
import pathlib
import subprocess
import sys
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
        self.run_tally("sweep", self.folder / "runs", "--pe=cope,rope,none", "--seeds=1..2", *TINY)
        run, path = self.folder / "runs/cope-seed1", self.folder / "page.html"
        self.run_tally("inspect", run, "--count", "1", "--out", run / "inspect.html")
        self.run_tally("report", self.folder / "runs", "--out", path)
        report = json.loads(self.run_tally("report", self.folder / "runs", "--json"))
        page = self.browser.open(path.as_uri(), 1280, 1000)

        # Six seeds of three encodings on three splits, and the means that the text form prints.
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 18)
        page.evaluate("page.sequences = false; page.draw()")
        for group in report["groups"]:
            for split in group["splits"]:
                mean = page.evaluate(f"meanOf(page.finals(page.here.groups.find(g => g.pe === '{group['pe']}'), '{split['split']}')"
                                     ".map(final => final.share))")
                error = split["token_error"]
                self.assertAlmostEqual(mean, error["mean"], places=12)
                low, high = page.evaluate(f"wilson({error['wrong']}, {error['of']})")
                self.assertAlmostEqual(low, error["low"], places=12)
                self.assertAlmostEqual(high, error["high"], places=12)

        # An encoding is switched off and on; a point says its run, with the way to its page.
        page.click("#groups button:nth-child(1)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 12)
        page.click("#groups button:nth-child(1)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#dots .hit').length"), 18)
        page.evaluate("document.querySelector('#dots .hit[aria-label^=\"cope, seed 1,\"]').dispatchEvent(new MouseEvent('click'))")
        self.assertIn("cope-seed1", page.evaluate("document.querySelector('#run h2').textContent"))
        self.assertEqual(page.evaluate("document.querySelector('#run a').getAttribute('href')"), "runs/cope-seed1/inspect.html")
        self.assertIn("1 thread,", page.evaluate("document.getElementById('run').textContent"))

        before = page.evaluate("document.getElementById('curves').innerHTML")
        page.click("#scale button:nth-child(2)")
        self.assertNotEqual(page.evaluate("document.getElementById('curves').innerHTML"), before)
        page.click("#split button:nth-child(1)")
        self.assertIn("in-distribution", page.evaluate("document.getElementById('curvetitle').textContent"))
        self.assertFalse(page.evaluate("/NaN|undefined/.test(document.body.innerHTML)"))
        self.assertEqual(page.problems, [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tally")
    given, rest = parser.parse_known_args()
    if chromium.find() is None:
        print("report_page.py: there is no Chromium (Debian: chromium); nothing was checked", file=sys.stderr)
        sys.exit(77)
    ReportPage.tally = given.tally
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
