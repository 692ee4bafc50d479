#!/usr/bin/env python3
"""Writes bpe.json: byte pair encodings that were trained and applied by a slow implementation of the definition, beside
which the library tokenizers (0.23, from PyPI) is run; they must agree.

Pieces come from tokenizers' Split; training and merging are computed here, every count anew at every step.

Usage: make_bpe.py [--check]
"""
import collections
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s",
}
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
ORDER = PLAIN + [byte for byte in range(256) if byte not in PLAIN]
ID_OF_BYTE = {byte: rank for rank, byte in enumerate(ORDER)}
CHARACTER = {byte: chr(byte) if rank < 188 else chr(0x100 + rank - 188) for rank, byte in enumerate(ORDER)}


def written(data):
    return "".join(CHARACTER[byte] for byte in data)


def pieces_of(pattern, text):
    step = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
    return [piece for piece, _ in step.pre_tokenize_str(text)]


def train(pieces, vocabulary, min_count):
    """Merges as pairs of ids, and the tokens."""
    words = collections.Counter(pieces)
    split = {piece: [ID_OF_BYTE[byte] for byte in piece.encode()] for piece in words}
    tokens = [bytes([byte]) for byte in ORDER]
    merges = []
    while len(tokens) < vocabulary:
        counts = collections.Counter()
        for piece, ids in split.items():
            for pair in zip(ids, ids[1:]):
                counts[pair] += words[piece]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < min_count:
            break
        joined = tokens[best[0]] + tokens[best[1]]
        if joined in tokens:
            result = tokens.index(joined)
        else:
            result = len(tokens)
            tokens.append(joined)
        merges.append((*best, result))
        for piece, ids in split.items():
            split[piece] = merge_all(ids, best, result)
    return merges, tokens


def merge_all(ids, pair, result):
    merged, at = [], 0
    while at < len(ids):
        if tuple(ids[at:at + 2]) == pair:
            merged.append(result)
            at += 2
        else:
            merged.append(ids[at])
            at += 1
    return merged


def encode_piece(piece, merges):
    ids = [ID_OF_BYTE[byte] for byte in piece.encode()]
    rank = {(left, right): (rank, result) for rank, (left, right, result) in enumerate(merges)}
    while True:
        found = [(rank[pair][0], at) for at, pair in enumerate(zip(ids, ids[1:])) if pair in rank]
        if not found:
            return ids
        at = min(found)[1]
        ids[at:at + 2] = [rank[ids[at], ids[at + 1]][1]]


def compare_with_library(pattern, corpus, vocabulary, min_count, merges, tokens, samples, ids):
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    library.decoder = decoders.ByteLevel()
    library.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=min_count, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(library.to_str())["model"]
    assert [tuple(pair) for pair in model["merges"]] == [(written(tokens[a]), written(tokens[b])) for a, b, _ in merges]
    assert model["vocab"] == {written(token): rank for rank, token in enumerate(tokens)}
    for sample, wanted in zip(samples, ids):
        assert library.encode(sample).ids == wanted, (pattern, sample)


def corpora():
    generator = random.Random(5)
    yield ["aaa aaaa aaaaa abab ababab", "banana bandana \u00e9t\u00e9 \u00e9t\u00e9 na\u00efve"]
    yield ["".join(generator.choice("ab ") for _ in range(400)) for _ in range(3)]  # rich in ties
    yield ["".join(generator.choice("\u0430\u0431\u3042\u3044 12") for _ in range(200)) for _ in range(2)]
    yield ["func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(i, \"it's\", 12345)\n\t}\n}\n\n"] * 3


def samples():
    return ["", " ", "\n\n  a", "I'll SAY'S  \"x12345\"\r\n\r\n \tok \n", "aaaaaaa abababa", "banana  bandanas",
            "\u0130'\u017f \u00e9te\u0301 \ud55c\uad6d\uc5b4 \U0001f600\u200d\u3000x", "\u180e \u2028\u0085\u00a0",
            "\u0661\u0662\u0663\u0664 \u2167\u00bd", "a\r ", "  \n \n", "func f(){return 1234567}", "x" * 40 + "ab" * 40]


def main():
    cases = []
    for corpus in corpora():
        for pattern in PATTERNS:
            for vocabulary, min_count in ((300, 2), (272, 3)):
                pieces = [piece for text in corpus for piece in pieces_of(pattern, text)]
                merges, tokens = train(pieces, vocabulary, min_count)
                ids = [[i for piece in pieces_of(pattern, sample) for i in encode_piece(piece, merges)]
                       for sample in samples()]
                compare_with_library(pattern, corpus, vocabulary, min_count, merges, tokens, samples(), ids)
                cases.append({"pattern": pattern, "vocabulary": vocabulary, "min_count": min_count, "corpus": corpus,
                              "merges": merges, "ids": ids})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    text = f'{{"samples":{json.dumps(samples())},\n"cases":[\n{lines}\n]}}\n'
    path = pathlib.Path(__file__).with_name("bpe.json")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if path.read_text() == text else f"make_bpe.py: {path.name} is not what it gives")
    path.write_text(text)


if __name__ == "__main__":
    main()
