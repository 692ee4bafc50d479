#!/usr/bin/env python3
"""transformers reads the files of `tally convert` and computes the same logits as tally.

Usage: check_exports.py TALLY. Imports the models of this folder, compares the logits of `tally inspect` with the
stored ones, trains the models for ten steps of a small text, and exports them before and after. transformers must
compute the logits of the model's own file from the first export, and the logits of `tally inspect` from the second.
The same for one model with every way of stretching rope. Skipped (exit status 77) without torch and transformers.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# Stretched rope for 14 tokens, as in config.json: tally reads it and writes it back, and transformers reads that.
STRETCHED = {
    "dynamic": (8, {"type": "dynamic", "factor": 2.0}),
    "linear": (64, {"rope_type": "linear", "factor": 2.5}),
    "yarn": (32, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}),
    "yarn-bounds": (32, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 4.0,
                         "beta_slow": 0.5, "truncate": False}),
    "yarn-attention": (32, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8,
                            "attention_factor": 0.8}),
    "yarn-at-trained-length": (8, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}),
    "llama3": (64, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16}),
}
HERE = pathlib.Path(__file__).resolve().parent
STEPS, LENGTH = 10, 16


def logits_of(folder, tokens):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64, output_loading_info=True)
    for what, names in report.items():
        assert not names, f"{folder}: {what}: {names}"
    with torch.no_grad():
        return model.eval()(tokens.long()).logits


def check_stretched(work, tally):
    """The logits of one model with each way of stretching: tally's compared with transformers', before and after an export."""
    tokens = torch.arange(14)[None] * 17 % 257
    numpy.save(work / "stretched.npy", tokens.int().numpy())
    for name, (positions, scaling) in STRETCHED.items():
        source = work / f"{name}-from"
        shutil.copytree(HERE / "llama", source)
        shutil.copy(work / "data/tokenizer.json", source)
        config = json.loads((source / "config.json").read_text())
        config.pop("rope_parameters", None)
        config |= {"max_position_embeddings": positions, "rope_theta": 100.0, "rope_scaling": scaling}
        (source / "config.json").write_text(json.dumps(config))
        tally("convert", source, name, "--length", "14")
        tally("inspect", name, "--tokens=stretched.npy", f"--out={name}.safetensors")
        own = load_file(work / f"{name}.safetensors")["logits"]
        theirs = logits_of(source, tokens)
        loaded = error(own, theirs)
        assert loaded < 3e-6, f"{name}: the logits differ by {loaded}"
        plain = error(theirs, logits_of(HERE / "llama", tokens))
        assert plain > 1e-3, f"{name}: stretching changed nothing"
        tally("convert", name, "--as", "llama", f"{name}-back")
        back = error(logits_of(work / f"{name}-back", tokens), theirs)
        assert back < 1e-6, f"{name}: what was written differs by {back}"
        print(f"{name}: loaded within {loaded:.1e}, written back within {back:.1e}; unlike the model without by {plain:.2f}")


def error(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def main():
    work, program = pathlib.Path(tempfile.mkdtemp()), pathlib.Path(sys.argv[1]).resolve()

    def tally(*words):
        finished = subprocess.run([program, *map(str, words), "--threads=2"], cwd=work, capture_output=True, text=True)
        assert finished.returncode == 0, f"tally {words}: {finished.stderr}"

    try:
        (work / "texts").mkdir()
        for file in range(12):
            lines = [f"func f{line}(x int) int {{ return x + {file * line} }}\n" for line in range(12)]
            (work / f"texts/{file}.go").write_text("".join(lines))
        tally("prepare", "data", "texts", "--vocabulary=257", "--validation-part=0.3", "--test-part=0")
        check_stretched(work, tally)
        for name in ["gpt2", "llama", "neox"]:
            source = work / f"{name}-from"
            shutil.copytree(HERE / name, source)
            shutil.copy(work / "data/tokenizer.json", source)
            tally("convert", source, name, "--data", "data")
            tally("convert", name, "--as", name, f"{name}-start")
            stored = load_file(source / "logits.safetensors")
            tokens, largest = stored["tokens"], stored["logits"].abs().max()
            numpy.save(work / "tokens.npy", tokens.numpy())
            tally("inspect", name, "--tokens=tokens.npy", f"--out={name}-start.safetensors")
            loaded = error(load_file(work / f"{name}-start.safetensors")["logits"], stored["logits"])
            rounding = (stored["error_f32"] / largest).item()
            assert loaded < 2 * rounding, f"{name}: the logits differ by {loaded}, in f32 those of transformers by {rounding}"
            same = error(logits_of(work / f"{name}-start", tokens), logits_of(source, tokens))
            assert same == 0, f"{name}: what was written differs by {same}"
            tally("train", name, f"--steps={STEPS}", "--batch=2", f"--length={LENGTH}")
            tally("convert", name, "--as", name, f"{name}-trained")
            tally("inspect", name, "--split=validation", "--count=1", f"--out={name}.safetensors")
            dumped = load_file(work / f"{name}.safetensors")
            trained = error(dumped["logits"], logits_of(work / f"{name}-trained", dumped["tokens"]))
            assert trained < 2e-6, f"{name}: after training the logits differ by {trained}"
            moved = error(logits_of(work / f"{name}-trained", tokens), logits_of(source, tokens))
            assert moved > 1e-3, f"{name}: training changed nothing"
            file = str(work / f"{name}-trained/tokenizer.json")
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
            assert tokenizer.encode("func")[0] == 69, "another tokenizer"  # f is byte 102, the 70th from '!' on
            print(f"{name}: loaded within {loaded:.1e} (transformers in f32: {rounding:.1e}); written back the same; after "
                  f"{STEPS} steps within {trained:.1e}, moved by {moved:.2f}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
