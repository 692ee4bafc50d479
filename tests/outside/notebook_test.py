#!/usr/bin/env python3
"""tasks/tally.py compared with the program itself, and with damaged files.

Usage: notebook_test.py TALLY [SUITE...], TALLY being the program. Trains tiny runs, and compares the numbers of
tally.py with the output of `tally report`, `tally describe` and `tally inspect`.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

TASKS = pathlib.Path(__file__).resolve().parents[2] / "tasks"
sys.path[:0] = [str(TASKS), str(TASKS / "examples")]
import last_x
import tally

PROGRAM = ""
FOLDER = None
SETTINGS = ["--task", "flip-flop", "--preset", "quick", "--length=16", "--model.heads=2", "--batch=4", "--steps=4",
            "--eval-every=2", "--save-every=2", "--log-every=1", "--optimiser.warmup=0",
            "--task.eval-count=6", "--task.sparse-count=5", "--task.dense-count=4", "--threads=1", "--quiet",
            "--model.width=8"]


def program(*words):
    return subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True, text=True).stdout


def setUpModule():
    global FOLDER
    FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="tally_notebook_"))
    program("sweep", FOLDER / "grid", "--pe", "cope,none", "--seeds", "1..2", *SETTINGS)


def tearDownModule():
    shutil.rmtree(FOLDER)


class Agreement(unittest.TestCase):
    """With the program's output for the same files."""

    def test_groups_are_those_of_the_report(self):
        runs = tally.Runs(FOLDER / "grid")
        report = json.loads(program("report", FOLDER / "grid", "--json"))
        means, counts = (table["rows"] for table in report["tables"])
        self.assertEqual([group.encoding for group in runs.groups], [row["encoding"] for row in means])
        self.assertEqual(runs.problems, [])
        for group, row in zip(runs.groups, means):
            self.assertEqual([run.path for run in group.runs],
                             [run["path"] for run in report["runs"] if run["pe"] == group.encoding])
            self.assertEqual({state: group.count(state) for state in row["runs"]}, row["runs"])
        for row in counts:
            for error, numbers in (("token_error", row["wrong tokens"]), ("sequence_error", row["wrong sequences"])):
                group = runs.group(row["encoding"])
                spread = group.final(row["split"], error)
                self.assertEqual(spread.n, numbers["n"])
                self.assertAlmostEqual(spread.mean, numbers["mean"], delta=1e-15)
                self.assertAlmostEqual(spread.deviation, numbers["deviation"], delta=1e-15)
                self.assertEqual(group.pooled(row["split"], error), (numbers["wrong"], numbers["of"]))

    def test_settings_that_differ_make_groups(self):
        program("train", FOLDER / "more" / "wide", "--pe", "none", *SETTINGS[:-1], "--model.width=16")
        both = [FOLDER / "grid", FOLDER / "more"]
        labels = [group.label for group in tally.Runs(*both).groups]
        self.assertEqual(labels, ["cope model.width=8", "none model.width=8", "none model.width=16"])
        report = json.loads(program("report", *both, "--json"))
        self.assertEqual([row["model.width"] for row in report["tables"][0]["rows"]], ["8", "8", "16"])
        self.assertEqual(tally.Runs(*both).group("none model.width=16").runs[0].settings["model.width"], 16)

    def test_an_lstm_goes_by_its_kind(self):
        settings = [word for word in SETTINGS if not word.startswith("--model.heads")]
        for kind in ("transformer", "lstm"):
            program("train", FOLDER / "kinds" / kind, "--pe=none", f"--model.kind={kind}", *settings)
        means, counts = json.loads(program("report", FOLDER / "kinds", "--json"))["tables"]
        said = [(row["encoding"], set(row) - {"encoding"}) for row in counts["rows"][::3]]
        groups = tally.Runs(FOLDER / "kinds").groups
        others = {"split", "wrong tokens", "wrong sequences"}
        self.assertEqual([(group.encoding, set(group.settings) | others) for group in groups], said)
        self.assertEqual([group.encoding for group in groups], ["lstm", "none"])

    def test_metrics(self):
        run = tally.Run(FOLDER / "grid" / "cope-seed1")
        self.assertEqual((run.task, run.encoding, run.seed, run.state), ("flip-flop", "cope", 1, "finished"))
        self.assertEqual(run.steps["step"].tolist(), [1, 2, 3, 4])
        self.assertEqual(run.steps["tokens"].tolist(), [64, 128, 192, 256])
        lines = (FOLDER / "grid" / "cope-seed1" / "metrics.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in lines]
        self.assertEqual(run.steps["loss"].tolist(), [line["loss"] for line in lines if line.get("split") == "train"])
        sparse = run.evaluations("ood-sparse")
        self.assertEqual(sparse["step"].tolist(), [2, 4])
        self.assertEqual(sparse["sequences"].tolist(), [5, 5])
        self.assertEqual(run.splits, ["in-distribution", "ood-sparse", "ood-dense"])
        self.assertEqual(run.final("ood-dense")["wrong"][0], run.evaluations("ood-dense")["wrong"][-1])
        self.assertEqual(run.starts[0]["threads"], 1)
        self.assertEqual(run.notes, [])
        curve = tally.Runs(FOLDER / "grid").group("cope").curve("ood-sparse")
        other = tally.Run(FOLDER / "grid" / "cope-seed2").evaluations("ood-sparse")
        np.testing.assert_allclose(curve["mean"], (sparse["token_error"] + other["token_error"]) / 2)
        np.testing.assert_array_equal(curve["high"], np.maximum(sparse["token_error"], other["token_error"]))

    def test_checkpoint_is_what_show_says(self):
        run = tally.Run(FOLDER / "grid" / "cope-seed1")
        self.assertEqual(run.checkpoint_steps, [2, 4])
        tensors = run.checkpoint()
        self.assertEqual(tensors.bad_checksums(), [])
        shown = json.loads(program("describe", tensors.path, "--json"))
        self.assertEqual([(name, tensors.describe(name)) for name in tensors],
                         [(tensor["name"], (tensor["type"], tuple(tensor["shape"]))) for tensor in shown["tensors"]])
        self.assertEqual(tensors.metadata, shown["metadata"])
        self.assertEqual(run.checkpoint(2).metadata["step"], "2")

    def test_dump(self):
        out = FOLDER / "dump.safetensors"
        run = FOLDER / "grid" / "cope-seed1"
        said = json.loads(program("inspect", run, "--split", "ood-dense", "--count", "2", "--out", out, "--json"))
        dump = tally.Tensors(out)
        self.assertEqual(len(dump), said["tensors"])
        self.assertEqual(dump["tokens"].shape, (2, 16))
        text = program("describe", "flip-flop", "--length=16", "--split", "ood-dense", "--sequences", "2").split()
        self.assertEqual(["".join("wri01"[token] for token in row) for row in dump["tokens"]], text)
        logits, mask = dump["logits"].astype(np.float64), dump["loss_mask"]
        self.assertEqual(mask.dtype, np.bool_)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses = -np.take_along_axis(log_p, dump["targets"][..., None].astype(np.int64), -1)[..., 0]
        self.assertAlmostEqual(losses[mask].mean(), said["loss"], places=5)
        np.testing.assert_allclose(dump["blocks.0.weights"].sum(-1), 1, rtol=1e-5)
        gates = np.tril(dump["blocks.1.gates"]).astype(np.float64)
        positions = np.cumsum(gates[..., ::-1], -1)[..., ::-1]  # p_ij = sum_{k=j..i} g_ik
        np.testing.assert_allclose(np.tril(dump["blocks.1.positions"]), np.tril(positions), rtol=1e-5)

    def test_npy(self):
        out = FOLDER / "tokens.npy"
        program("describe", "flip-flop", "--length=16", "--split", "train", "--sequences", "3", "--out", out)
        tokens = tally.read_npy(out)
        self.assertEqual(tokens.shape, (3, 16))
        self.assertEqual(tokens[:, 0].tolist(), [0, 0, 0])  # a write comes first


class LastX(unittest.TestCase):
    """tasks/examples/last_x.py."""

    def test_content_and_step_of_known_logits(self):
        rng = np.random.default_rng(1)
        is_x = rng.random((60, 12)) < 0.5
        is_x[np.arange(60), 11 - np.arange(60) % 6] = True
        distance = np.arange(12, 0, -1)
        logits = np.where(is_x, 3.0, 0.0) - 0.5 * distance + rng.normal(size=(60, 1))
        weights = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        content, steps = last_x.content_and_steps(is_x, weights, 5)
        self.assertAlmostEqual(content, 3)
        np.testing.assert_allclose(steps, 0.5)
        questions = last_x.Questions.__new__(last_x.Questions)
        questions.is_x, questions.gap = is_x, np.argmax(is_x[:, ::-1], axis=1)
        over_y, over_x = last_x.margins(questions, weights)
        nearer = questions.gap > 0  # the nearest y is gap steps nearer
        np.testing.assert_allclose(over_y[nearer], 3 - 0.5 * questions.gap[nearer])
        self.assertTrue(np.isnan(over_y[~nearer]).all())
        earlier = [np.argmax(row[len(row) - gap - 2 :: -1]) + 1 for row, gap in zip(is_x, questions.gap)]
        np.testing.assert_allclose(over_x, 0.5 * np.array(earlier))

    def test_the_script(self):
        settings = ["--length=8", "--task.near-gap=2", "--task.far-gap=4", "--task.farther-gap=6", "--steps=4"]
        settings += ["--eval-every=4", "--task.eval-count=10", "--model.width=8", "--model.heads=2",
                     "--optimiser.warmup=0"]
        for encoding in ("relative", "cope"):
            run, dump = FOLDER / f"last-x-{encoding}", FOLDER / "last-x.safetensors"
            program("train", run, "--task=last-x", "--preset=quick", f"--pe={encoding}", "--quiet", "--threads=1",
                    *settings)
            program("inspect", run, "--split=in-distribution", "--count=10", "--out", dump)
            words = [sys.executable, "-B", TASKS / "examples" / "last_x.py", "--near-gap=2", dump]
            told = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout
            self.assertIn(f"{encoding}, 10 sequences", told)
            self.assertEqual(told.count("content D"), 4 if encoding == "relative" else 0)
            self.assertEqual(told.count("its position"), 4 if encoding == "cope" else 0)


class Damage(unittest.TestCase):
    """Runs that were killed, or whose files are not as they were written."""

    def setUp(self):
        self.run = FOLDER / "damaged" / "run"
        shutil.rmtree(self.run.parent, ignore_errors=True)
        shutil.copytree(FOLDER / "grid" / "cope-seed1", self.run)

    def change(self, name, change):
        path = self.run / name
        path.write_bytes(change(path.read_bytes()))
        return path

    def expect(self, part, read):
        with self.assertRaises(tally.TallyError) as caught:
            read()
        self.assertIn(part, str(caught.exception))

    def test_an_unknown_split_is_an_error(self):
        run, group = tally.Run(str(self.run)), tally.Runs(str(self.run)).groups[0]
        for read in (run.final, run.evaluations, group.final, group.pooled, group.curve):
            with self.assertRaisesRegex(KeyError, "ood-sprase.*ood-sparse"):
                read("ood-sprase")

    def test_a_foreign_model_below_is_no_run(self):
        other = self.run.parent / "hf"
        other.mkdir()
        (other / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
        runs = tally.Runs(str(self.run.parent))
        self.assertEqual((len(runs.runs), runs.problems), (1, []))

    def test_a_cut_last_line_is_left_out_and_noted(self):
        os.remove(self.run / "results.json")
        self.change("metrics.jsonl", lambda text: text[:-20])
        run = tally.Run(self.run)
        self.assertEqual(run.state, "unfinished")
        self.assertEqual(run.splits, ["in-distribution", "ood-sparse", "ood-dense"])
        self.assertEqual(run.evaluations("ood-dense")["step"].tolist(), [2])  # the evaluation of step 4 is cut off
        self.assertIn("the last line is cut", run.notes[0])
        self.assertEqual(len(run.final()["step"]), 0)

    def test_null_is_no_finite_number(self):
        line = {"step": 9, "split": "ood-dense", "loss": None, "token_error": 0.5, "sequence_error": 1, "wrong": 1,
                "scored": 2, "wrong_sequences": 1, "sequences": 1}
        self.change("metrics.jsonl", lambda text: text + json.dumps(line).encode() + b"\n")
        columns = tally.Run(self.run).evaluations("ood-dense")
        self.assertEqual(columns["step"].tolist(), [2, 4, 9])
        self.assertEqual(np.isnan(columns["loss"]).tolist(), [False, False, True])
        self.change("metrics.jsonl", lambda text: text.replace(b'"wrong": 1', b'"wrong": null'))
        self.expect("'wrong': must be int", lambda: tally.Run(self.run))

    def test_a_damaged_line_is_named(self):
        for damage in (b'{"step": 1', b'{"step": 1, "step": 1}', b'[1]', b'{"step": 1, "split": "train", "loss": NaN}',
                       b'{"step": 1.5, "split": "ood"}', b'{"step": true, "diverged": "x"}', b'\xff', b'[' * 100_000,
                       b'{"step": 1, "split": "\\ud800"}'):
            with self.subTest(damage[:40]):
                self.change("metrics.jsonl", lambda text: damage + b"\n" + text.split(b"\n", 1)[1])
                self.expect("metrics.jsonl, line 1", lambda: tally.Run(self.run))
        (self.run / "config.json").write_bytes(b"{")
        self.expect("config.json: is no JSON", lambda: tally.Run(self.run))

    def test_what_cannot_be_read_is_warned_of(self):
        self.change("config.json", lambda text: text[:40])
        shutil.copytree(FOLDER / "grid" / "none-seed1", self.run.parent / "other")
        shutil.copytree(FOLDER / "grid" / "none-seed1", self.run.parent / "other.old-2")
        with self.assertWarnsRegex(UserWarning, "not read: .*config.json"):
            runs = tally.Runs(self.run.parent)
        self.assertEqual([run.encoding for run in runs.runs], ["none"])
        self.assertEqual(len(runs.problems), 1)
        self.expect("holds no run", lambda: tally.Runs(FOLDER / "grid" / "cope-seed1" / "checkpoints"))
        self.expect("there is no such folder", lambda: tally.Runs(FOLDER / "nothing"))

    def test_a_sweep_says_what_has_no_folder_and_what_failed(self):
        config = json.loads((self.run / "config.json").read_text())
        os.remove(self.run / "results.json")
        entries = [{"name": name, "state": state, "config": config} for name, state in
                   (("run", "failed"), ("later", "waiting"), ("never", "failed"))]
        (self.run.parent / "sweep.json").write_text(json.dumps({"format": 1, "runs": entries}))
        runs = tally.Runs(self.run.parent)
        self.assertEqual([run.state for run in runs.runs], ["failed", "waiting", "failed"])
        said = json.loads(program("report", self.run.parent, "--json"))["tables"][0]["rows"][0]["runs"]
        self.assertEqual({state: runs.groups[0].count(state) for state in said}, said)

    def test_a_checkpoint_with_a_turned_bit_is_passed_over(self):
        self.change("checkpoints/step-00000004.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
        run = tally.Run(self.run)
        with self.assertWarnsRegex(UserWarning, "step-00000004.*checksums do not hold"):
            self.assertEqual(run.checkpoint().metadata["step"], "2")
        self.expect("checksums do not hold", lambda: run.checkpoint(4))
        self.expect("keeps no checkpoint of step 3; it has [2, 4]", lambda: run.checkpoint(3))


class Foreign(unittest.TestCase):
    """Files from elsewhere."""

    def file(self, header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = FOLDER / "foreign.safetensors"
        path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
        return path

    def refuse(self, *file, **more):
        with self.assertRaises(tally.TallyError) as caught:
            tally.Tensors(self.file(*file, **more))
        self.assertIn("foreign.safetensors", str(caught.exception))

    def test_headers(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        self.assertEqual(tally.Tensors(self.file({"a": entry}, bytes(8)))["a"].tolist(), [0, 0])
        for length in (0, 1, 1 << 20, (1 << 64) - 1, (1 << 64) - 8):
            self.refuse({"a": entry}, bytes(8), length=length)
        for header in (b"[]", b"{", b"\xef\xbb\xbf{}", b'{"a": {}, "a": {}}', b'{"a": "\\ud800"}', b"[" * 100_000,
                       b'{"a":' * 100_000, b"\xff\xff"):
            self.refuse(header, bytes(8))
        for change in ({"dtype": "F31"}, {"shape": [3]}, {"shape": [-2]}, {"shape": [2.0]}, {"shape": [True, 2]},
                       {"shape": [1 << 62, 1 << 62]}, {"shape": [10**400]}, {"shape": [1] * 9 + [2]}, {"shape": "2"},
                       {"data_offsets": [8, 0]}, {"data_offsets": [-8, 0]}, {"data_offsets": [0, 16]},
                       {"data_offsets": [0]}, {"more": 1}):
            with self.subTest(change):
                self.refuse({"a": {**entry, **change}}, bytes(8))
        self.refuse({"a": entry}, bytes(9))  # a byte that belongs to no tensor
        self.refuse({"a": entry, "b": entry}, bytes(8))  # overlap
        self.refuse({"a": entry, "b": {**entry, "data_offsets": [12, 20]}}, bytes(20))  # hole
        self.refuse({"__metadata__": {"a": 1}})
        for path in (FOLDER, FOLDER / "nothing"):
            self.assertRaises(tally.TallyError, tally.Tensors, path)
        os.mkfifo(FOLDER / "pipe")
        self.assertRaises(tally.TallyError, tally.Tensors, FOLDER / "pipe")  # without waiting for a writer
        self.assertRaises(tally.TallyError, tally.read_npy, FOLDER / "pipe")

    def test_types(self):
        values = np.array([1.0, -2.5, 0.15625], np.float32)
        upper = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        kinds = {"BF16": upper, "F16": values.astype("<f2").tobytes(), "F64": values.astype("<f8").tobytes()}
        for kind, data in kinds.items():
            header = {"x": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]},  # the next begins at an odd byte
                      "y": {"dtype": kind, "shape": [3, 1], "data_offsets": [1, 1 + len(data)]}}
            tensors = tally.Tensors(self.file(header, b"\1" + data))
            np.testing.assert_array_equal(tensors["y"][:, 0], values)
            self.assertEqual(tensors["x"].tolist(), [True])
            self.assertFalse(tensors["x"].flags.writeable)
        self.assertEqual(tally.Tensors(self.file({"e": {"dtype": "I64", "shape": [0, 3], "data_offsets": [0, 0]}}))
                         ["e"].shape, (0, 3))
        small = {"x": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
        with self.assertRaisesRegex(tally.TallyError, "no type for F8_E4M3"):
            tally.Tensors(self.file(small, b"\0"))["x"]
        with self.assertRaisesRegex(tally.TallyError, "neither 0 nor 1"):
            tally.Tensors(self.file({"x": {**small["x"], "dtype": "BOOL"}}, b"\2"))["x"]
        with self.assertRaisesRegex(KeyError, "has no tensor 'z'"):
            tally.Tensors(self.file(small, b"\0"))["z"]

    def test_checksum(self):
        checksum = lambda data: tally._crc32c(np.frombuffer(data, np.uint8))
        self.assertEqual(checksum(b"123456789"), 0xE3069283)  # RFC 3720's polynomial; its check value
        self.assertEqual(checksum(b""), 0)
        self.assertEqual(checksum(bytes(32)), 0x8A9136AA)  # RFC 3720, B.4
        self.assertEqual(checksum(b"\xff" * 32), 0x62A8AB43)
        self.assertEqual(checksum(bytes(range(32))), 0x46DD794E)

    def test_npy(self):
        path = FOLDER / "foreign.npy"
        np.save(path, np.asfortranarray(np.arange(6).reshape(2, 3)))
        self.assertEqual(tally.read_npy(path).tolist(), [[0, 1, 2], [3, 4, 5]])
        good = path.read_bytes()
        np.save(path, np.array([{}], object), allow_pickle=True)
        for damage in (path.read_bytes(), b"", good[:-1], good[:20], b"\x93NUMPX" + good[6:],
                       good[:8] + b"\xf0\xff" + good[10:], b"\x93NUMPY\x02\x00\xf0\xff\xff\xff{}"):
            path.write_bytes(damage)
            with self.subTest(damage[:16]), self.assertRaisesRegex(tally.TallyError, "foreign.npy"):
                tally.read_npy(path)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    warnings.simplefilter("always")
    unittest.main()
