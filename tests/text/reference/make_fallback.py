#!/usr/bin/env python3
"""Writes fallback.json: byte pair encodings with byte fallback in the form of LLaMA's tokenizer.json, as the library
tokenizers (0.23, from PyPI) writes them, and the ids that it gives to texts.

Usage: make_fallback.py [--check]
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BLANK = "\u2581"
CORPUS = ["the cat sat on the mat, the hat that sat;  a cat's hat 1234 1234 \u00e9t\u00e9 \u00e9t\u00e9",
          "func main() {\n    for i := 0; i < 10; i++ {\n        fmt.Println(i)\n    }\n}\n", "banana bandana banana"] * 2
TEXTS = ["", " ", "  ", "the cat", " the cat", "the  cat ", "\n", "a\n\tb\r\n", "na\u00efve \u00e9t\u00e9 e\u0301",
         "\U0001f600 \ud55c\uad6d\uc5b4 \u3000x", f"a{BLANK}b {BLANK} c", "I'll say 12345 \x00\x7f", "<0x41> <0x0A>",
         "func f() { return i }", "thecatsatonthematthehatthatsatabananabandana" * 3,
         "    for the mat on the cat that sat on a hat, 1234 times;  and on" * 4, "ab" * 40 + " " * 40]


def trained(split):
    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
    if split:  # no token has a blank after another character
        library.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme="never", split=True)
    library.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=110, show_progress=False))
    return json.loads(library.to_str())["model"]


def with_fallback(split, leading_blank):
    """Special tokens, bytes, merged tokens and characters, in LLaMA's order."""
    model = trained(split)
    merges = [tuple(pair) for pair in model["merges"]]
    results = ["".join(pair) for pair in merges]
    characters = [token for token in model["vocab"] if token not in results]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + results + characters
    vocabulary = {name: rank for rank, name in enumerate(dict.fromkeys(names))}
    library = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    replace = normalizers.Replace(" ", BLANK)
    library.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), replace]) if leading_blank else replace
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if leading_blank else []))
    return library


def main():
    cases = []
    for name, split, leading_blank in (("llama", True, True), ("joined", False, True), ("gemma", True, False)):
        library = with_fallback(split, leading_blank)
        encoded = [library.encode(text) for text in TEXTS]
        for text, one in zip(TEXTS, encoded):
            assert library.decode(one.ids) == text.replace(BLANK, " "), (name, text)
        cases.append({"name": name, "tokenizer": json.loads(library.to_str()), "ids": [one.ids for one in encoded]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    text = f'{{"texts":{json.dumps(TEXTS)},\n"cases":[\n{lines}\n]}}\n'
    path = pathlib.Path(__file__).with_name("fallback.json")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if path.read_text() == text else f"make_fallback.py: {path.name} is not what it gives")
    path.write_text(text)


if __name__ == "__main__":
    main()
