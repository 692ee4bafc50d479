#!/usr/bin/env python3
"""Checks the outside check itself, without tally.

1. Gradients against central differences along a random direction: every primitive of the tape, and whole models.
   tests/reference/make_references.py does the same for every encoding and option.
2. check.py on a synthetic dump: accepts it, and rejects it after any small falsification.
3. The operations of the model agree with the plain loops that made tests/reference/ops.safetensors.
4. The file reader reads files of the writer.
"""

import contextlib
import io
import json
import math
import os
import pathlib
import sys
import tempfile
import types
import unittest

try:
    import numpy as np
except ImportError:
    print("selftest.py: numpy is missing (Debian: python3-numpy); nothing was checked", file=sys.stderr)
    sys.exit(77)

import central_differences
import check
import config as run_config
import model
import position_encodings as position
import tape
import tensor_file
from examples import ENCODINGS, GROUPED, HEADS, LAYERS, MODELS, T, V, WIDTH, example

FOLDER = pathlib.Path(__file__).resolve().parent.parent
ALL = position.Sight()


class Tape(unittest.TestCase):
    @staticmethod
    def product(make, by_output):
        tape.derivative_by_output = by_output
        try:
            return make()[1]
        finally:
            tape.derivative_by_output = False

    def test_primitives(self):
        index = np.array([[0, 2, 2], [1, 0, 3]])
        causal = position.distances(4) >= 0
        functions = {
            "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "subtract from": lambda x, y: 2.0 - x,
            "multiply": lambda x, y: x * y, "divide": lambda x, y: x / (y * y + 1.0),
            "broadcast": lambda x, y: x * y.sum(0) + y.sum(1) + y[0], "matmul": lambda x, y: x.swap_last() @ y,
            "shapes": lambda x, y: x.reshape(2, 3, 4).transpose(2, 0, 1).reshape(6, 4) * y,
            "mean": lambda x, y: x.mean(0), "slice": lambda x, y: x[1:5, ::2] * y[0:4, 1:3],
            "exp": lambda x, y: tape.exp(x), "log": lambda x, y: tape.log(x * x),
            "sqrt": lambda x, y: tape.sqrt(x * x), "tanh": lambda x, y: tape.tanh(x),
            "cos": lambda x, y: tape.cos(x), "sin": lambda x, y: tape.sin(x),
            "relu": lambda x, y: tape.relu(x), "sigmoid": lambda x, y: tape.sigmoid(x),
            "softplus": lambda x, y: tape.softplus(x), "erf": lambda x, y: tape.erf(x),
            "softmax": lambda x, y: tape.softmax(x), "causal softmax": lambda x, y: tape.softmax(x[:4], causal),
            "log softmax": lambda x, y: tape.log_softmax(x), "suffix sum": lambda x, y: tape.suffix_sum(x),
            "where": lambda x, y: tape.where(causal, x[2:], 3.0), "rows": lambda x, y: tape.rows(x, index),
            "pick": lambda x, y: tape.pick(x[:2], index), "concatenate": lambda x, y: tape.concatenate([x, y * 2.0]),
            "stack": lambda x, y: tape.stack_last([x, y, x]),
        }
        for title, by_output in (("product", False), ("product by output", True)):
            functions[f"softmax {title}"] = lambda x, y, by_output=by_output: self.product(
                lambda: tape.softmax_product(x[:4], causal, y[:4]), by_output)
            functions[f"quotient {title}"] = lambda x, y, by_output=by_output: self.product(
                lambda: tape.quotient_product(x, (x * x).sum(-1) + 1.0, y[:4]), by_output)
        for name, function in functions.items():
            with self.subTest(name):
                random = np.random.RandomState(3)
                arrays = {"x": random.normal(size=(6, 4)), "y": random.normal(size=(6, 4))}

                def value():
                    leaves = [tape.Node(array.copy()) for array in arrays.values()]
                    y = function(*leaves)
                    weights = np.random.RandomState(4).normal(size=y.shape)
                    return (y * weights).sum(), leaves

                total, leaves = value()
                tape.backward(total)
                self.assertGreater(np.abs(leaves[0].gradient).max(), 0)
                moved = {key: (array, random.normal(size=array.shape), 0.0 if leaf.gradient is None else leaf.gradient)
                         for (key, array), leaf in zip(arrays.items(), leaves)}
                self.assertEqual(central_differences.contradicted(lambda: value()[0].value, moved), [])


class WholeModel(unittest.TestCase):
    def check_gradients(self, model_options, pe, options, sequences=1):
        config, arrays, batch = example(model_options, pe, options, sequences)
        result, used, _ = model.run(config, arrays, batch, np.float64)
        self.assertEqual(used, arrays.keys())
        random = np.random.RandomState(2)
        moved = {name: (array, random.normal(size=array.shape), result[f"gradients.{name}"])
                 for name, array in arrays.items()}
        self.assertEqual(central_differences.contradicted(
            lambda: model.run(config, arrays, batch, np.float64, gradients=False)[0]["loss"], moved), [])

    def test_models(self):
        for title, options in MODELS.items():
            with self.subTest(title):
                self.check_gradients(options, "cope", {"p-max": 2, "gates": "sep-keys"}, sequences=2)

    def test_encodings(self):
        for pe, options in ENCODINGS:
            with self.subTest(f"{pe} {options}"):
                self.check_gradients({}, pe, options)

    def test_heads_of_keys(self):
        for pe, options in GROUPED:
            with self.subTest(f"{pe} {options}"):
                self.check_gradients({"kv-heads": 1}, pe, options)

    def test_hard_attention_has_the_gradients_of_the_softmax(self):
        random = np.random.RandomState(6)
        arrays = [random.normal(size=(1, HEADS, T, 4)) for _ in range(4)]
        gradients = {}
        for name in ("none", "hard"):
            q, k, v = leaves = [tape.Node(array) for array in arrays[:3]]
            layer = position.Layer(0, name, {}, {})
            output = model.attend([layer], q, k, v, tape.Node(np.zeros((1, T, WIDTH))), lambda key, node: None)
            tape.backward((output * arrays[3]).sum())
            gradients[name] = [leaf.gradient for leaf in leaves]
            weights = layer.weights.value
        for soft, hard in zip(gradients["none"][:2], gradients["hard"][:2]):
            self.assertLess(np.abs(soft - hard).max(), 1e-13)
        self.assertLess(np.abs(np.swapaxes(weights, -1, -2) @ arrays[3] - gradients["hard"][2]).max(), 1e-13)

    def test_causality(self):
        """Two sequences that differ in token 4."""
        for pe, options in ENCODINGS:
            config, arrays, batch = example({}, pe, options, sequences=2)
            batch["tokens"][1] = batch["tokens"][0]
            batch["tokens"][1, 4] = (batch["tokens"][0, 4] + 1) % V
            logits = model.run(config, arrays, batch, np.float64, gradients=False)[0]["logits"]
            self.assertEqual(np.abs(logits[1] - logits[0])[:4].max(), 0, pe)
            self.assertGreater(np.abs(logits[1] - logits[0])[4:].max(), 0, pe)

    def test_every_head_of_every_layer_is_named_once(self):
        self.assertEqual(run_config.groups_of_layers("0:rope,1-2:cope@0-1,alibi+none@2", 3, 3),
                         [[(0, 3, ["rope"], ALL)]] + [[(0, 2, ["cope"], ALL), (2, 3, ["alibi", "none"], ALL)]] * 2)
        self.assertEqual(run_config.groups_of_layers("0:alibi+rope[window=3,first=1]@0,cope@1,1:none[chunk=4]", 2, 2),
                         [[(0, 1, ["alibi", "rope"], (3, 0, 1)), (1, 2, ["cope"], ALL)], [(0, 2, ["none"], (0, 4, 0))]])
        for text in ("0:cope", "cope@0", "rope[window=3,first=1]@0", "0:cope,1:rope@0", "cope@0-1,rope@1",
                     "0-1:cope,1:rope"):
            with self.assertRaisesRegex(ValueError, "does not name every head of layer"):
                run_config.groups_of_layers(text, 2, 2)

    def test_published_slopes(self):
        self.assertEqual(list(position.alibi_slopes(3)), [2 ** -4, 2 ** -8, 2 ** -2])
        self.assertEqual(list(position.alibi_slopes(12)[8:]), [2 ** -0.5, 2 ** -1.5, 2 ** -2.5, 2 ** -3.5])

    def test_relative_refuses_what_its_table_does_not_reach(self):
        config, arrays, batch = example({}, "relative", {"distances": 4})
        with self.assertRaisesRegex(ValueError, "distance 5 with 4 rows"):
            model.run(config, arrays, batch, np.float64)

    def test_gates_one_is_relative_shifted_by_one_row(self):
        random = np.random.RandomState(5)
        q, table = random.normal(size=(1, 2, T, 4)), random.normal(size=(T, 4))
        ones = tape.Node(np.tril(np.ones((T, T)))[None, None])
        z = tape.Node(q @ np.vstack([np.zeros(4), table]).T)
        cope = position.interpolate(z, tape.suffix_sum(ones)).value
        layer = position.Layer(0, "relative", {"far": "refuse"}, {"model.position.relative.table": tape.Node(table)})
        layer.q, layer.s = tape.Node(q), tape.Node(np.zeros((1, 2, T, T)))
        difference = np.tril(cope * 0.5 - position.HOOKS["score"]["relative"](layer).value)
        self.assertLess(np.abs(difference).max(), 1e-14)

    def difference(self, pe, options, changed=None, **other):
        """The difference of the logits if the groups of the model are changed so; parameters are `changed` first."""
        config, arrays, batch = example({}, pe, options)
        for name, array in arrays.items():
            for ending, value in (changed or {}).items():
                array[...] = value if name.endswith(ending) else array
        logits = model.run(config, arrays, batch, np.float64, gradients=False)[0]["logits"]
        config.groups = [[group._replace(**other) for group in groups] for groups in config.groups]
        config.options |= {name: run_config.ENCODING_DEFAULTS.get(name, {}) for name in other.get("names", [])}
        return np.abs(model.run(config, arrays, batch, np.float64, gradients=False)[0]["logits"] - logits).max()

    def test_what_queries_see(self):
        self.assertEqual(position.mask_tensor(5, position.Sight(2, 3, 1)).astype(int).tolist(),
                         [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 1]])
        for pe in ("cope", "fox", "softpick", "sink", "ssmax", "stick-breaking"):
            for sight in (position.Sight(window=T), position.Sight(chunk=T), position.Sight(window=1, first=T)):
                self.assertLess(self.difference(pe, {}, sight=sight), 1e-13, f"{pe} {sight}")
            self.assertGreater(self.difference(pe, {}, sight=position.Sight(window=3)), 1e-3, pe)

    def test_reductions(self):
        """New formulas that equal old ones in a special case."""
        slowest = 10000 ** (2 / (WIDTH // HEADS))
        for pe, options, changed, other in (
                ("sink", {}, {"sink.logit": -60}, "none"),
                ("gated", {}, {"gated.gate.weight": 0, "gated.gate.bias": 50}, "none"),
                ("rope", {"frequencies": "clip-hard"}, {}, "none"),
                ("carope", {}, {"frequency.weight": 0, "frequency.bias": math.log(math.expm1(slowest - 1))}, "rope"),
                ("ssmax", {"bias": True}, {"ssmax.factor": 0, "ssmax.bias": 1}, "none"),
                ("selective-rope", {}, {"conv.weight": 0}, "none"),
                ("path", {"conv": False}, {"strength.bias": -60}, "none"),
                ("fox+path", {}, {"strength.bias": -60}, "fox"),
                ("wall", {}, {"decay.bias": 60}, "none"),
                ("grape-a", {"gate": "both"}, {"grape-a.rate": -60}, "none"), ("bam", {}, {"bam.scale": -60}, "none"),
                ("grape-m", {}, {"frequencies": np.log([1, 0.01])}, "rope"),
                ("grape-m", {"steps": "sigmoid"}, {"frequencies": np.log([2, 0.02]), "step.weight": 0, "step.bias": 0},
                 "rope"),
                ("relative-bank", {}, {"bank": 0}, "none"),
                ("repo", {}, {"position.weight": 0}, "none"),
                ("repo", {"rope-layers": 2, "base": 10000}, {}, "rope")):
            self.assertLess(self.difference(pe, options, changed, names=[other]), 1e-12, pe)

    def test_branch_at_an_integer_is_the_programs(self):
        slopes = []
        for own in (0.99999, 1.00001):
            z, p = tape.Node(np.array([[0.0, 1.0, 5.0]])), tape.Node(np.array([[1.0]]))
            tape.backward(position.interpolate(z, p, np.array([[own]])).sum())
            slopes.append(p.gradient.item())
        self.assertEqual(slopes, [1.0, 4.0])


class Operations(unittest.TestCase):
    def test_operations(self):
        tensors, _ = tensor_file.read(FOLDER / "reference/ops.safetensors")

        def norm(kind):
            def apply(x, *parameters):
                named = dict(zip(("norm.weight", "norm.bias"), parameters))
                return model.normalise(types.SimpleNamespace(norm=kind, norm_eps=0), named, "norm", x)
            return apply

        functions = {
            "layer_norm": norm("layer"), "rms_norm": norm("rms"), "gelu": model.gelu,
            "gelu_tanh": model.gelu_tanh, "softmax": tape.softmax, "log_softmax": tape.log_softmax, "sigmoid": tape.sigmoid, "softplus": tape.softplus,
            "interpolate": position.interpolate, "silu": lambda x: x * tape.sigmoid(x),
            "cross_entropy": lambda x, targets, mask: model.loss(x, targets.value, mask.value, mask.value.sum()),
        }
        for name in sorted({name.rsplit(".", 1)[0] for name in tensors}):
            if name.split(".")[0] in functions:
                with self.subTest(name):
                    inputs = [tape.Node(tensors[key]) for key in sorted(tensors) if key.startswith(f"{name}.in")]
                    out, expected = functions[name.split(".")[0]](*inputs).value, tensors[f"{name}.out"]
                    self.assertLess(np.abs(out - expected).max(), 1e-13 * max(1, np.abs(expected).max()))


class Check(unittest.TestCase):
    def setUp(self):
        self.config, self.arrays, batch = example({}, "cope", {"p-max": 2})
        self.arrays = {name: array.astype(np.float32) for name, array in self.arrays.items()}
        self.dump = {**model.run(self.config, self.arrays, batch, np.float32)[0], **batch}
        self.terms = model.run(self.config, self.arrays, batch, np.float64)[2]

    def complaints(self):
        return check.check(self.arrays, self.config, self.dump, io.StringIO())

    def test_accepts(self):
        self.assertEqual(self.complaints(), [])

    def test_rejects_any_falsified_tensor(self):
        names, kept = sorted(self.dump.keys() - check.INPUTS), self.dump
        for chosen in (names[::2], names[1::2]):
            for share in (1e-4, np.nan):
                self.dump = {name: array.copy() for name, array in kept.items()}
                for name in chosen:
                    scale = self.terms.get(name, np.abs(kept[name]).max())
                    self.dump[name].flat[-1] += np.float32(share) * scale
                self.assertEqual([line.split()[0] for line in self.complaints()], chosen)

    def test_rejects_missing_and_unknown(self):
        self.dump["gradients.model.norm.gain"] = self.dump.pop("gradients.model.norm.weight")
        self.arrays["model.blocks.2.mlp.up.bias"] = np.zeros(3, np.float32)
        text = " ".join(self.complaints())
        for name in ("no gradients.model.norm.weight", "gradients.model.norm.gain, which",
                     "model.blocks.2.mlp.up.bias is"):
            self.assertIn(name, text)

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("weights", "config", "dump")]
            given = {"model": {"layers": LAYERS, "width": WIDTH, "heads": HEADS}, "pe": "cope"}
            with open(paths[1], "w", encoding="utf-8") as file:
                json.dump(given, file)
            tensor_file.write(paths[0], {**self.arrays, "optimiser.step": np.zeros(1)}, {})
            tensor_file.write(paths[2], self.dump, {})
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(check.main(paths), 0)
                self.dump["loss"] = self.dump["loss"] * 2
                tensor_file.write(paths[2], self.dump, {})
                self.assertEqual(check.main(paths), 1)


class TensorFile(unittest.TestCase):
    def test_round_trip(self):
        tensors = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False, True]), "c": np.float32(2.5),
                   "d": np.zeros((0, 4), np.int64), "e": np.arange(3, dtype=np.int32)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            tensor_file.write(path, tensors, {"key": "text"})
            back, metadata = tensor_file.read(path)
        self.assertEqual(metadata, {"key": "text"})
        for name, array in tensors.items():
            self.assertEqual(back[name].dtype, np.asarray(array).dtype)
            np.testing.assert_array_equal(back[name], array)


if __name__ == "__main__":
    unittest.main()
