#!/usr/bin/env python3
"""Writes published.json: small tokenizers whose tokenizer.json has the members of published ones (GPT-2, GPT-NeoX,
LLaMA 1 to 3, SmolLM2, Qwen2.5, DeepSeek, Gemma), others with steps that drop text and with flags of added tokens, and
the ids that the library tokenizers (0.23, from PyPI) gives to texts of many scripts, with its special tokens.

Usage: make_published.py [--check]
"""
import itertools
import json
import pathlib
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

BLANK = "\u2581"
HINDI, BENGALI = "\u0939\u093f\u0928\u094d\u0926\u0940", "\u09ac\u09be\u0982\u09b2\u09be"
TAMIL, THAI = "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"
HEBREW = "\u05d1\u05bc\u05b0\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea"
ARABIC = "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u0627\u064b"
KOREAN, CHINESE, JAPANESE = "\ud55c\uad6d\uc5b4", "\u4e2d\u6587\u5206\u8bcd", "\u3053\u3093\u306b\u3061\u306f"
CORPUS = ["the cat sat on the mat, the hat that sat;  a cat's hat 1234 1234 \u00e9t\u00e9 \u00e9t\u00e9",
          "func main() {\n    for i := 0; i < 10; i++ {\n        fmt.Println(i)\n    }\n}\n", "banana bandana banana",
          f"{HINDI} {HINDI} {HEBREW} {CHINESE}{CHINESE} {KOREAN} {KOREAN} {THAI}"] * 3
TEXTS = ["", " ", "  ", "the cat", " the cat", "the  cat  ", "a\n\n  b \r\n\tc  \n", "I'll say 12345 they'RE 1 23",
         "func f() {\n        return i\n    }", f"{HINDI} {BENGALI} {TAMIL}", f"{THAI} {HEBREW} {ARABIC}",
         f"{KOREAN} {CHINESE}{JAPANESE}, {CHINESE}abc12",
         "na\u00efve e\u0301te\u0301 \u212b \ufb01x a\u0323\u0307 \u0307\u0323",
         "\u1112\u1161\u11ab\uac00\u11a8 \u304b\u3099 \u0915\u093c \u0958",
         "\U0001f468\u200d\U0001f469 \u0661\u0662 \u216b \u00bd\u3000x\u00a0y\u2028",
         f"a{BLANK}b {BLANK} on", "<s>a</s> b </s><unk>", "a cat<new> the<new>cat <new>",
         "x<|endoftext|>  <|endoftext|> y",
         "<think>ok</think> <tool_call>{}</tool_call>", "<m><m <|reserved_1|><|reserved_12|>",
         "hat chat hat, ahat\nhat",
         "bananas  ban\u00e9t e\u0301ta  !  cat", "thecatsatonthematthehatthatsatabananabandana" * 3,
         "{}[]$^.*+?|\\ x.y"]


def byte_model():
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=380, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    model = json.loads(library.to_str())["model"]
    return {"vocab": model["vocab"], "merges": model["merges"]}


def fallback_model():
    """Special tokens, bytes, merged tokens and characters, in LLaMA's order; some tokens are two words."""
    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
    library.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=130, show_progress=False))
    model = json.loads(library.to_str())["model"]
    results = ["".join(pair) for pair in model["merges"]]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + results
    names += [token for token in model["vocab"] if token not in results]
    return {"vocab": {name: rank for rank, name in enumerate(dict.fromkeys(names))}, "merges": model["merges"]}


def token(number, content, special=True, normalized=False, lstrip=False, rstrip=False):
    return {"id": number, "content": content, "single_word": False, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


def byte_level(use_regex, add_prefix_space=False, trim_offsets=True):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets,
            "use_regex": use_regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"Regex": pattern},
            "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def begins_with(name, number):
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}}}


def shape(added, normalizer, pre_tokenizer, post_processor, decoder):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder}


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
BYTES = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
         "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
FALLBACK = {**BYTES, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
PREPEND = {"type": "Prepend", "prepend": BLANK}


def fallback_decoder(strip):
    steps = [{"type": "Replace", "pattern": {"String": BLANK}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}]
    return {"type": "Sequence",
            "decoders": steps + ([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else [])}


def published(n, fallback):
    """Name, members of the model beside vocabulary and merges, the rest; n: tokens of the byte-level model."""
    old = {key: value for key, value in BYTES.items() if key not in ("type", "byte_fallback", "ignore_merges")}
    yield "gpt2", {**old, "continuing_subword_prefix": "", "end_of_word_suffix": ""}, shape(
        [token(n, "<|endoftext|>", normalized=True)], None,
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True})
    runs = [token(n + 2 + index, " " * (24 - index), False, True) for index in range(23)]
    yield "neox", BYTES, shape([token(n, "<|endoftext|>"), token(n + 1, "<|padding|>")] + runs, {"type": "NFC"},
                               byte_level(True), byte_level(True), byte_level(True))
    yield "smollm2", BYTES, shape([token(n, "<|endoftext|>"), token(n + 1, "<repo_name>")], None,
                                  sequence({"type": "Digits", "individual_digits": True}, byte_level(True)), None,
                                  byte_level(True, True))
    tools = [token(n + 2, "<tool_call>", False), token(n + 3, "</tool_call>", False)]
    yield "qwen2.5", {**BYTES, "continuing_subword_prefix": "", "end_of_word_suffix": ""}, shape(
        [token(n, "<|endoftext|>"), token(n + 1, "<|im_start|>")] + tools, {"type": "NFC"},
        sequence(split(QWEN), byte_level(False, False, False)), byte_level(False, False, False),
        byte_level(False, False, False))
    reserved = [token(n + 2 + index, f"<|reserved_{index}|>") for index in range(14)]
    yield "llama3", {**BYTES, "ignore_merges": True}, shape(
        [token(n, "<|begin_of_text|>"), token(n + 1, "<|endoftext|>")] + reserved, None,
        sequence(split(LLAMA3), byte_level(False)),
        {"type": "Sequence", "processors": [byte_level(True, True, False), begins_with("<|begin_of_text|>", n)]},
        byte_level(True, True))
    marks = [token(n, f"<\uff5cbegin{BLANK}of{BLANK}sentence\uff5c>"),
             token(n + 1, f"<\uff5cend{BLANK}of{BLANK}sentence\uff5c>"),
             token(n + 2, "<think>", False, True), token(n + 3, "</think>", False, True)]
    empty = {"type": "Sequence", "normalizers": []}
    yield "deepseek-v3", BYTES, shape(
        marks, empty, sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                               split(DEEPSEEK), byte_level(False)),
        byte_level(False, True, False), byte_level(True, True))
    yield "deepseek-v2", BYTES, shape(
        marks, empty, sequence(split("[\r\n]"),
                               split("\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0410-\u044f]+"),
                               split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
                               split(r"\s+$"),
                               split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                               {"type": "Digits", "individual_digits": True}, byte_level(False)),
        byte_level(False, True, False), byte_level(True, True))
    size = len(fallback)
    for normalized in (False, True):
        # One of the added tokens is a token of the model too.
        added = [token(number, name, normalized=normalized) for number, name in enumerate(("<unk>", "<s>", "</s>"))]
        added += [token(size, "<new>", False, normalized), token(size + 1, "a cat", False, normalized)]
        word = next(name for name in fallback if name.startswith(BLANK) and len(name) > 2)
        added.append(token(fallback[word], word, False, normalized))
        ending = "-normalized" if normalized else ""
        yield "llama" + ending, FALLBACK, shape(added, {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}, None,
                                                begins_with("<s>", 1), fallback_decoder(True))
        yield "gemma" + ending, FALLBACK, shape(added, REPLACE, split({"String": " "}, "MergedWithPrevious"),
                                                begins_with("<s>", 1), fallback_decoder(False))
        for scheme, cut in itertools.product(("first", "always", "never"), (False, True)):
            metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": scheme, "split": cut}
            yield f"metaspace-{scheme}{'-split' if cut else ''}{ending}", FALLBACK, shape(
                added, None, metaspace, begins_with("<s>", 1), fallback_decoder(scheme != "never"))


def others(n, vocabulary):
    for invert in (False, True):
        step = split(r"a|\n| ?\p{N}", invert=invert)
        yield f"split-Isolated-{invert}", BYTES, shape([], None, sequence(step, byte_level(True)), None,
                                                         byte_level(True))
    steps = sequence(split({"String": " x."}), split({"String": "$^."}), byte_level(False))
    yield "strings", BYTES, shape([], None, steps, None, byte_level(True))
    steps = sequence({"type": "Digits", "individual_digits": False}, sequence(byte_level(False)))
    forms = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFKC"}]}
    yield "digits", BYTES, shape([], forms, steps, None, byte_level(True))
    names = ["hat", "the", "\u00e9t", "e\u0301", "at", " on", "on ", "  ", "nan", "banana", HINDI[:2], "\ufb01", "\n",
             "12", "!", "t a", "<m>", "<m", "\u00c5", "o"]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        flags = []
        for index, name in enumerate(names):
            number = vocabulary[name] if name in vocabulary else n + index
            flags.append(token(number, name, False, index // 2 % 2 == 1, index // 4 % 2 == 1, index % 3 == 1))
        for number, flag in enumerate(flag for flag in flags if flag["content"] not in vocabulary):
            flag["id"] = n + number
        yield "flags-" + form, BYTES, shape(flags, {"type": form}, sequence(split(QWEN), byte_level(False)), None,
                                            byte_level(True))


def main():
    model, fallback = byte_model(), fallback_model()
    cases = []
    size = len(model["vocab"])
    for name, options, rest in [*published(size, fallback["vocab"]), *others(size, model["vocab"])]:
        used = "fallback" if options.get("byte_fallback") else "bytes"
        parts = {"bytes": model, "fallback": fallback}[used]
        library = Tokenizer.from_str(json.dumps({**rest, "model": {**options, **parts}}))
        ids = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
        cases.append({"name": name, "uses": used, "tokenizer": {**rest, "model": options}, "ids": ids})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    made = json.dumps({"bytes": model, "fallback": fallback}, separators=(",", ":"))
    text = f'{{"texts":{json.dumps(TEXTS)},\n"models":{made},\n"cases":[\n{lines}\n]}}\n'
    path = pathlib.Path(__file__).with_name("published.json")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if path.read_text() == text else f"make_published.py: {path.name} is not what it gives")
    path.write_text(text)


if __name__ == "__main__":
    main()
