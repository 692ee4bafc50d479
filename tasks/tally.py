"""Reads what the program `tally` writes, for notebooks and scripts: one file, with NumPy alone.

    import tally
    run = tally.Run("runs/cope")                       # one run folder
    run.steps["step"], run.steps["loss"]               # two arrays, one number a line of metrics.jsonl
    run.evaluations("ood-sparse")["token_error"]       # measured on the way, and at the end
    runs = tally.Runs("runs/grid")                     # all runs below a folder, grouped as `tally report` groups them
    for group in runs.groups:
        print(group.label, group.final("ood-sparse"))  # mean, deviation and n over seeds
    dump = tally.Tensors("dump.safetensors")           # by name; bytes are read when they are used
    dump["blocks.0.weights"]                           # [N, H, T, T]

Files are never trusted: what is damaged raises TallyError naming file and location. Runs goes on without a run that cannot
be read, lists it in `problems` and warns of it; nothing is left out silently.
"""

import collections.abc
import json
import math
import os
import re
import stat
import warnings

import numpy as np


class TallyError(ValueError):
    """A file that is missing, damaged or of another kind; the message names it."""


# ----------------------------------------------------------------------------------------------------------------------
# JSON, as strict as in the program


def _object(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name stands there twice")
    return value


def _refuse(text):
    raise ValueError(f"{text} is no number of JSON")


def _parse(content, where):
    """A JSON object from bytes in UTF-8; `where` goes before what an error says."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse)
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # rejects lone surrogates
    except (ValueError, RecursionError) as why:
        raise TallyError(f"{where}: is no JSON: {why}") from None
    return _is(dict, value, where)


_LARGEST = {int: 2**63 - 1, float: np.finfo(np.float64).max}


def _is(kind, value, where):
    """The value, which must be of this kind: dict, list, str, int of 64 bits, or float, finite and of either type."""
    right = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
    if not right or (kind in _LARGEST and not abs(value) <= _LARGEST[kind]):
        raise TallyError(f"{where}: must be {kind.__name__}, not {value!r:.80}")
    return value


def _get(value, name, kind, where):
    """A member of a JSON object, of this kind."""
    if name not in value:
        raise TallyError(f"{where}: has no {name!r}")
    return _is(kind, value[name], f"{where}: {name!r}")


def _open(path):
    """An ordinary file for reading, and its size: a pipe would have one wait for ever."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise TallyError(f"{path}: is not an ordinary file")
        return open(path, "rb"), status.st_size
    except OSError as why:
        raise TallyError(f"{path}: cannot be read: {why.strerror}") from None


def _content(path):
    file, _ = _open(path)
    with file:
        return file.read()


# ----------------------------------------------------------------------------------------------------------------------
# Tensors

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "u1", "I64": "<i8", "I32": "<i4",
           "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
           "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1"}
_MOST_HEADER_BYTES, _MOST_TENSORS, _MOST_AXES, _MOST_SIZE = 16 << 20, 100_000, 8, 1 << 31


class Tensors(collections.abc.Mapping):
    """name -> array of a safetensors file (checkpoint, dump, export), in the order of the file.

    metadata is {key: text}. Arrays are read-only views of the mapped file, so that a large one costs memory only where
    it is looked at; BF16 comes as a copy in float32. The file must not be changed in place meanwhile (`tally` never
    does: it renames a new one).
    """

    def __init__(self, path):
        self.path, self._data = os.fspath(path), None
        file, size = _open(self.path)
        with file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(_MOST_HEADER_BYTES, size - 8):
                raise TallyError(f"{self.path}: is no safetensors file: a header of {length} bytes in one of {size}")
            header = _parse(file.read(length), f"{self.path}: header")
        self._begin, self._bytes = 8 + length, size - 8 - length
        where = f"{self.path}: metadata"
        self.metadata = _is(dict, header.pop("__metadata__", {}), where)
        for key in self.metadata:
            _get(self.metadata, key, str, where)
        if len(header) > _MOST_TENSORS:
            raise TallyError(f"{self.path}: more than {_MOST_TENSORS} tensors")
        self._entries = {name: self._entry(name, _get(header, name, dict, self.path)) for name in header}
        end = 0  # every byte belongs to exactly one tensor
        for name, (_, _, first, last) in sorted(self._entries.items(), key=lambda item: item[1][2:]):
            if first != end:
                raise TallyError(f"{self.path}: tensor {name!r} begins at byte {first} of the data, not {end}")
            end = last
        if end != self._bytes:
            raise TallyError(f"{self.path}: bytes {end} to {self._bytes} of the data belong to no tensor")

    def _entry(self, name, entry):
        where = f"{self.path}: tensor {name!r}"
        if set(entry) != {"dtype", "shape", "data_offsets"}:
            raise TallyError(f"{where}: has {sorted(entry)}, not dtype, shape and data_offsets")
        dtype = _get(entry, "dtype", str, where)
        if dtype not in _DTYPES:
            raise TallyError(f"{where}: unknown dtype {dtype!r}")
        shape, offsets = ([_is(int, number, f"{where}: {part}") for number in _get(entry, part, list, where)]
                          for part in ("shape", "data_offsets"))
        if len(shape) > _MOST_AXES or not all(0 <= size <= _MOST_SIZE for size in shape):
            raise TallyError(f"{where}: {shape} is no shape")
        if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= self._bytes:
            raise TallyError(f"{where}: data_offsets {offsets} are not two within the {self._bytes} bytes of data")
        needed = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if offsets[1] - offsets[0] != needed:
            raise TallyError(f"{where}: {dtype} {shape} takes {needed} bytes, not as many as data_offsets hold")
        return dtype, tuple(shape), *offsets

    def __len__(self):
        return len(self._entries)

    def __iter__(self):
        return iter(self._entries)

    def __contains__(self, name):
        return name in self._entries

    def describe(self, name):
        """(dtype, shape) as in the file, ("BF16", (2, 3)), without reading the tensor."""
        if name not in self._entries:
            raise KeyError(f"{self.path}: has no tensor {name!r}")
        return self._entries[name][:2]

    def _raw(self, first, last):
        """Bytes of the data, uint8 [last - first]."""
        if first == last:
            return np.zeros(0, np.uint8)
        if self._data is None:
            self._data = np.memmap(self.path, np.uint8, "r", self._begin, (self._bytes,))
        return self._data[first:last].view(np.ndarray)

    def __getitem__(self, name):
        dtype, shape = self.describe(name)
        if dtype.startswith("F8"):
            raise TallyError(f"{self.path}: tensor {name!r}: NumPy has no type for {dtype}")
        array = self._raw(*self._entries[name][2:]).view(_DTYPES[dtype]).reshape(shape)
        if dtype == "BOOL":
            if array.size and array.max() > 1:
                raise TallyError(f"{self.path}: tensor {name!r}: a byte of a bool is neither 0 nor 1")
            return array.view(np.bool_)
        if dtype == "BF16":  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def bad_checksums(self):
        """Names of the tensors whose CRC-32C is missing from the metadata or wrong, and "__metadata__" when that of the
        header is; empty for a checkpoint that is as it was written. Dumps and exports carry none."""
        bad = []
        lines = [(key, text) for key, text in sorted(self.metadata.items()) if key != "checksum"]
        for name, (dtype, shape, first, last) in self._entries.items():
            lines.append((name, f"{dtype} [{', '.join(map(str, shape))}]"))
            if self.metadata.get(f"checksum.{name}") != f"{_crc32c(self._raw(first, last)):08x}":
                bad.append(name)
        pairs = [(key.encode(), text.encode()) for key, text in lines]
        header = b"".join(b"%d %s %d %s\n" % (len(key), key, len(text), text) for key, text in pairs)
        if self.metadata.get("checksum") != f"{_crc32c(np.frombuffer(header, np.uint8)):08x}":
            bad.append("__metadata__")
        return bad


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (np.uint32(0x82F63B78) * (table & 1))
    return table


_CRC_TABLE = _crc_table()


def _crc32c(data):
    """CRC-32C of bytes, uint8 [n], in about sqrt(n) steps: as many parts side by side, and 32 more that tell what a
    part of zeros makes of each bit. A checksum is linear over GF(2), which joins the parts."""
    # Four bytes in front replace the start value: their checksum from 0 is the start value of CRC-32C.
    data = np.concatenate([np.frombuffer(bytes.fromhex("54641f64"), np.uint8), data])
    parts = math.isqrt(len(data))
    length = -(-len(data) // parts)
    columns = np.zeros((length, parts + 32), np.uint8)
    padding = np.zeros(length * parts - len(data), np.uint8)  # zeros in front change nothing
    columns[:, :parts] = np.concatenate([padding, data]).reshape(parts, length).T
    sums = np.concatenate([np.zeros(parts, np.uint32), np.uint32(1) << np.arange(32, dtype=np.uint32)])
    for row in columns:
        sums = _CRC_TABLE[(sums ^ row) & 0xFF] ^ (sums >> 8)
    after_zeros, total = [int(one) for one in sums[parts:]], 0
    for own in sums[:parts]:
        moved = int(own)
        for bit in range(32):
            if total >> bit & 1:
                moved ^= after_zeros[bit]
        total = moved
    return total ^ 0xFFFFFFFF


def read_npy(path):
    """The array of a .npy file of numbers, mapped, not copied; Fortran order comes with its axes as written."""
    file, _ = _open(os.fspath(path))
    with file:
        if file.read(6) != b"\x93NUMPY":
            raise TallyError(f"{path}: is no .npy file")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as why:  # NumPy's reader has no common error type
        raise TallyError(f"{path}: is damaged, or holds no numbers: {why}") from None


# ----------------------------------------------------------------------------------------------------------------------
# Runs

_STEP_COLUMNS = {"step": int, "loss": float, "token_error": float, "sequence_error": float, "lr": float,
                 "grad_norm": float, "tokens": int, "seconds": float}
_EVALUATION_COLUMNS = {"step": int, "split": str, "loss": float, "token_error": float, "sequence_error": float,
                       "wrong": int, "scored": int, "wrong_sequences": int, "sequences": int}
_COUNTS = {"token_error": ("wrong", "scored"), "sequence_error": ("wrong_sequences", "sequences")}


def _columns(records, kinds):
    """(where, record) pairs as {name: array}, a number a record. NaN stands for null, which `tally` writes for a number
    that is not finite, and for the loss of generated answers, of which there is none."""
    rows = []
    for where, record in records:
        generated = record.get("generated") is True
        none = {name for name, kind in kinds.items() if kind is float and name in record and record[name] is None}
        rows.append([math.nan if name in none or (generated and name == "loss") else _get(record, name, kind, where)
                     for name, kind in kinds.items()])
    return {name: np.array([row[n] for row in rows], kind) for n, (name, kind) in enumerate(kinds.items())}


class Run:
    """What a run folder holds.

    path, config       the folder; config.json as it stands
    task, encoding, seed; the encoding of a model that has none is its kind: "lstm"
    settings           {name: value} of all options but the seed, named as on the command line: "model.width", "steps"
    state              "finished", "diverged", "unfinished"; from a sweep's list also "failed", and "waiting" for a run
                       that has no folder yet
    steps              {column: array} of training: step, loss, token_error, sequence_error, lr, grad_norm, tokens,
                       seconds
    starts             [{"step": ..., "device": ..., "commit": ...}], one each time it was started: what computed it
    results            results.json of a finished run, else None
    divergence         why it stopped, else None
    notes              what was found not as it should be, but to be expected: a last line that a kill has cut
    """

    def __init__(self, path):
        where = os.path.join(path, "config.json")
        if not os.path.isdir(path):
            raise TallyError(f"{path}: there is no such folder")
        if not os.path.exists(where):
            raise TallyError(f"{path}: holds no run: it has no config.json")
        self._begin(path, _parse(_content(where), where), where)
        self._read_metrics()
        where = os.path.join(path, "results.json")
        if os.path.lexists(where):
            self.results = _parse(_content(where), where)
            records = [(f"{where}: evaluations", _is(dict, record, f"{where}: evaluations"))
                       for record in _get(self.results, "evaluations", list, where)]
            self._final = _columns(records, _EVALUATION_COLUMNS)
            self.state = "finished"

    def _begin(self, path, config, where, state="unfinished"):
        """All but what the run has measured."""
        self.path, self.config, self.state = os.path.normpath(path), config, state
        self.notes, self.starts, self.divergence, self.results = [], [], None, None
        self.steps, self._evaluations, self._final = (_columns([], kinds) for kinds in (
            _STEP_COLUMNS, _EVALUATION_COLUMNS, _EVALUATION_COLUMNS))
        task = _get(config, "task", dict, where)
        model = _is(dict, config.get("model", {}), f"{where}: 'model'")
        self.task, self.encoding = _get(task, "name", str, where), _get(config, "pe", str, where)
        if model.get("kind", "transformer") != "transformer":
            self.encoding = _get(model, "kind", str, where)
        options = {"": config.get("run", {}), "task.": task, "model.": model, "optimiser.": config.get("optimiser", {})}
        for part, values in _is(dict, config.get("pe-options", {}), f"{where}: 'pe-options'").items():
            options[f"pe.{part}."] = values
        self.settings = {prefix + name: value for prefix, values in options.items()
                         for name, value in _is(dict, values, f"{where}: options '{prefix}'").items()}
        del self.settings["task.name"]
        self.seed = self.settings.pop("seed", 1)

    def _read_metrics(self):
        path = os.path.join(self.path, "metrics.jsonl")
        lines = (_content(path) if os.path.lexists(path) else b"").split(b"\n")
        if cut := lines.pop():  # complete lines end in a line break
            self.notes.append(f"{path}: the last line is cut, as a kill leaves it: {len(cut)} bytes left out")
        steps, evaluations = [], []
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            record = _parse(line, where)
            if "step" not in record:
                continue  # the description of the run, which repeats its configuration
            if "start" in record:
                self.starts.append({"step": _get(record, "step", int, where), **_get(record, "start", dict, where)})
            elif "diverged" in record:
                self.divergence = f"step {_get(record, 'step', int, where)}: {_get(record, 'diverged', str, where)}"
                self.state = "diverged"
            else:
                kind = steps if _get(record, "split", str, where) == "train" else evaluations
                kind.append((where, record))
        self.steps, self._evaluations = _columns(steps, _STEP_COLUMNS), _columns(evaluations, _EVALUATION_COLUMNS)

    @property
    def splits(self):
        """Names of the splits that were evaluated, in the order of the file."""
        return list(dict.fromkeys(self._evaluations["split"].tolist()))

    def evaluations(self, split=None):
        """{column: array} of what was measured on a split (on all): step, split, loss, token_error, sequence_error,
        wrong of scored tokens, wrong_sequences of sequences. Raises KeyError for a split that the run does not have."""
        return self._of_split(self._evaluations, split)

    def final(self, split=None):
        """The same at the end, of a finished run; no rows for any other."""
        return self._of_split(self._final, split)

    def _of_split(self, columns, split):
        known = list(dict.fromkeys([*self.splits, *self._final["split"].tolist()]))
        all_known = self.results is not None or len(set(self._evaluations["step"])) > 1  # else it may be the next one
        if split is not None and split not in known and all_known:
            raise KeyError(f"{self.path} has no split {split!r}; it has {known}")
        kept = np.ones(len(columns["split"]), bool) if split is None else columns["split"] == split
        return {name: column[kept] for name, column in columns.items()}

    @property
    def checkpoint_steps(self):
        """Steps of the checkpoints that are kept, rising."""
        folder = os.path.join(self.path, "checkpoints")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(int(name[5:-12]) for name in names if re.fullmatch(r"step-\d{8,}\.safetensors", name))

    def checkpoint(self, step=None):
        """Tensors "model.<parameter>" and "optimiser.<...>" of a step. Without one, of the newest whose checksums hold;
        those passed over are warned of. Raises TallyError for a step that is not kept or is damaged."""
        kept = self.checkpoint_steps
        if step is not None and step not in kept:
            raise TallyError(f"{self.path}: keeps no checkpoint of step {step}; it has {kept}")
        for number in kept[::-1] if step is None else [step]:
            try:
                tensors = Tensors(os.path.join(self.path, "checkpoints", f"step-{number:08d}.safetensors"))
                if bad := tensors.bad_checksums():
                    raise TallyError(f"{tensors.path}: checksums do not hold: {', '.join(bad)}")
                return tensors
            except TallyError as why:
                if step is not None:
                    raise
                warnings.warn(f"passed over a checkpoint: {why}", stacklevel=2)
        raise TallyError(f"{self.path}: has no checkpoint that can be read")

    def __repr__(self):
        return f"<tally run {self.path}: {self.task}, {self.encoding}, seed {self.seed}, {self.state}>"


class Spread:
    """mean, deviation (sample, n - 1; 0 for one value), n and the values themselves; the mean of none is NaN."""

    def __init__(self, values):
        self.values = np.asarray(values, np.float64)
        self.n = len(self.values)
        self.mean = float(np.mean(self.values)) if self.n else math.nan
        self.deviation = float(np.std(self.values, ddof=1)) if self.n > 1 else 0.0

    def __repr__(self):
        return f"{self.mean:.4g} (sd {self.deviation:.2g}, n {self.n})"


class Group:
    """`runs` that differ in nothing but the seed: task, encoding, `settings` in which groups of the task differ."""

    def __init__(self, run, settings):
        self.task, self.encoding, self.settings, self.runs = run.task, run.encoding, settings, [run]

    @property
    def label(self):
        """ "cope model.layers=2" """
        return " ".join([self.encoding] + [f"{name}={value}" for name, value in sorted(self.settings.items())])

    def count(self, state):
        """How many of the runs are "finished", "diverged", ..."""
        return sum(run.state == state for run in self.runs)

    def final(self, split, error="token_error"):
        """Spread over seeds of an error (or of any other column) at the end, of the finished runs."""
        return Spread([value for run in self.runs for value in run.final(split)[error]])

    def pooled(self, split, error="token_error"):
        """(wrong, of) of all finished runs together."""
        return tuple(int(sum(run.final(split)[name].sum() for run in self.runs)) for name in _COUNTS[error])

    def curve(self, split, error="token_error"):
        """{column: array} over the steps at which a split was evaluated: step, mean, deviation, low, high, n; of the
        finished runs, or of all where none is."""
        by_step = {}
        for run in [run for run in self.runs if run.state == "finished"] or self.runs:
            columns = run.evaluations(split)
            for step, value in zip(columns["step"].tolist(), columns[error]):
                by_step.setdefault(step, []).append(value)
        rows = [(step, s.mean, s.deviation, s.values.min(), s.values.max(), s.n)
                for step, s in ((step, Spread(by_step[step])) for step in sorted(by_step))]
        return dict(zip(("step", "mean", "deviation", "low", "high", "n"), np.array(rows).reshape(-1, 6).T))

    def __repr__(self):
        return f"<{self.task}, {self.label}: {len(self.runs)} runs>"


class Runs:
    """The runs of folders: each path is a run, or holds runs at any depth (those that --force moved aside left out).

    runs, groups   what a sweep's list says of runs that failed or have no folder yet is there too
    problems       texts: what could not be read, and why; each is warned of
    splits         names of all splits that were evaluated

    Raises TallyError for a path that holds no run.
    """

    def __init__(self, *paths):
        self.runs, self.problems, self._seen = [], [], set()
        for path in map(os.path.normpath, paths):
            if not os.path.isdir(path):
                raise TallyError(f"{path}: there is no such folder")
            if not self._visit(path):
                raise TallyError(f"{path}: holds no run: no config.json in it or below")
        self.groups = [group for task in dict.fromkeys(run.task for run in self.runs)
                       for group in _groups([run for run in self.runs if run.task == task])]
        self.splits = list(dict.fromkeys(split for run in self.runs for split in run.splits))
        for why in self.problems:
            warnings.warn(f"not read: {why}", stacklevel=2)

    def group(self, label):
        """The one group of this label ("cope", "cope model.layers=2"). Raises KeyError naming those that there are."""
        found = [group for group in self.groups if group.label == label]
        if len(found) != 1:
            raise KeyError(f"{len(found)} groups are {label!r}; there are {[group.label for group in self.groups]}")
        return found[0]

    def _visit(self, folder):
        """Takes the runs in a folder and below; whether there are any."""
        if os.path.realpath(folder) in self._seen:
            return True
        self._seen.add(os.path.realpath(folder))
        if os.path.exists(os.path.join(folder, "config.json")) and not _is_foreign_model(folder):
            self._or_problem(lambda: self.runs.append(Run(folder)))
            return True
        below = [name for name in sorted(os.listdir(folder)) if not re.search(r"\.old(-\d*)?$", name)]
        found = [self._visit(path) for path in (os.path.join(folder, name) for name in below) if os.path.isdir(path)]
        if not os.path.exists(os.path.join(folder, "sweep.json")):
            return any(found)
        self._or_problem(lambda: self._add_sweep(folder))
        return True

    def _or_problem(self, read):
        try:
            read()
        except TallyError as why:
            self.problems.append(str(why))

    def _add_sweep(self, folder):
        """What the runs' folders do not tell: which failed, and which have no folder yet."""
        where = os.path.join(folder, "sweep.json")
        sweep = _parse(_content(where), where)
        if _get(sweep, "format", int, where) != 1:
            raise TallyError(f"{where}: format {sweep['format']} is not one that is read here (1)")
        known = {run.path: run for run in self.runs}
        for entry in _get(sweep, "runs", list, where):
            name, state = (_get(_is(dict, entry, where), part, str, where) for part in ("name", "state"))
            path = os.path.normpath(os.path.join(folder, name))
            if path in known and known[path].state == "unfinished" and state in ("diverged", "failed"):
                known[path].state = state
            elif path not in known and not os.path.exists(os.path.join(path, "config.json")):  # otherwise it is a problem
                self.runs.append(Run.__new__(Run))
                self.runs[-1]._begin(path, _get(entry, "config", dict, where), where,
                                     "failed" if state == "failed" else "waiting")


def _is_foreign_model(folder):
    """Whether a folder holds a model of Hugging Face, which has a config.json but is no run."""
    where = os.path.join(folder, "config.json")
    try:
        config = _parse(_content(where), where)
    except TallyError:
        return False
    return isinstance(config, dict) and ("model_type" in config or "architectures" in config)


def _groups(runs):
    """Groups of the runs of one task, in the order of their first runs."""
    values = {}
    for run in runs:
        for name, value in run.settings.items():
            values.setdefault(name, set()).add(json.dumps(value, sort_keys=True))
    groups = []
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if len(values[name]) > 1}
        for group in groups:
            if group.encoding == run.encoding and group.settings == settings:
                group.runs.append(run)
                break
        else:
            groups.append(Group(run, settings))
    return groups
