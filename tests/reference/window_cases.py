"""Reference values: encodings of all kinds with an attention mask, `name[window=W,chunk=C,first=n]`."""

from contextual_cases import bend_within
from reference_case import CASES, Case, cope_options

STICK = {"remainder": "value", "attend-current": "false"}

CASES += [
    Case("none-window", "none[window=3]"),
    Case("none-chunk", "none[chunk=3]"),
    Case("none-window-chunk-first", "none[window=3,chunk=5,first=1]"),
    Case("none-window-1", "none[window=1]"),
    Case("alibi+rope-window-first", "alibi+rope[window=3,first=2]", {"alibi.learned": "true", "rope.layout": "half"}),
    Case("relative-window", "relative[window=3]", {"far": "refuse"}),
    Case("cope-window-first", "cope[window=4,first=1]", cope_options(3)),
    Case("cope-chunk-sep-keys", "cope[chunk=4]", cope_options(2, gates="sep-keys")),
    Case("cope-mlp-window", "cope-mlp[window=4]",
         {"hidden": "3", "layers": "all", "gates": "values", "rotated-query": "false"}, adjust=bend_within),
    Case("fox-chunk", "fox[chunk=3]"),
    Case("fox-pro-window-first", "fox-pro[window=3,first=1]"),
    Case("stick-breaking-window", "stick-breaking[window=3]", STICK),
    Case("stick-breaking-window-first", "stick-breaking[window=3,first=2]", STICK | {"attend-current": "true"}),
    Case("hard-window", "hard[window=3]"),
    Case("sink-window", "sink[window=3]", {"remainder": "value"}),
    Case("sigmoid-visible-window", "sigmoid[window=3]", {"visible": "true", "remainder": "bias"}),
    Case("softpick-window", "softpick[window=3]", {"remainder": "value"}),
    Case("ssmax-window", "ssmax[window=3]", {"bias": "true"}),
    Case("ssmax-window-first", "ssmax[window=2,first=1]", {"bias": "false"}),
]
