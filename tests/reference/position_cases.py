"""Reference values: no encoding, absolute, sinusoidal, relative, ALiBi, CoPE, and combinations of these."""

import numpy as np

from reference_case import CASES, Case, cope_options


def components_near(a):
    """Components of q and k near a: s near a² d scale, so gates of 0.95 (a = 1.25, s = 3) or 1 to the last bit (5, 50)."""
    def adjust(inputs):
        for name in "qk":
            inputs[name] = a + np.round(inputs[name] * 128) / 1024
    return adjust


CASES += [
    Case("none", "none"),
    Case("absolute", "absolute", max_length=9),
    Case("sinusoidal", "sinusoidal"),
    Case("relative", "relative", {"far": "refuse"}),
    Case("relative-far-cap", "relative", {"far": "cap"}, max_length=4),
    Case("relative-far-none", "relative", {"far": "none"}, max_length=4),
    Case("relative-share-model", "relative", {"far": "refuse", "share": "model"}),
    Case("relative-distances", "relative", {"far": "cap", "distances": "3"}),
    Case("alibi", "alibi", {"learned": "false"}),
    Case("alibi-learned", "alibi", {"learned": "true"}),
    Case("cope-unsaturated", "cope", cope_options(8)),
    Case("cope-saturated", "cope", cope_options(2)),
    Case("cope-p-max-1", "cope", cope_options(1)),
    Case("cope-sqrt-d", "cope", cope_options(8, position_scale="sqrt-d")),
    Case("cope-sqrt-d-saturated", "cope", cope_options(2, position_scale="sqrt-d")),
    Case("cope-gates-large", "cope", cope_options(8), adjust=components_near(1.25)),
    Case("cope-gates-large-saturated", "cope", cope_options(3), adjust=components_near(1.25)),
    Case("cope-gates-one", "cope", cope_options(7), adjust=components_near(5.0), at_kinks=True),
    Case("cope-sep-keys", "cope", cope_options(8, gates="sep-keys")),
    Case("cope-sep-keys-saturated", "cope", cope_options(2, gates="sep-keys")),
    Case("cope-values", "cope", cope_options(8, gates="values")),
    Case("cope-values-saturated", "cope", cope_options(2, gates="values")),
    Case("cope-share-layers", "cope", cope_options(3, share="layers")),
    Case("cope-share-none", "cope", cope_options(3, share="none")),
    Case("cope-share-none-sqrt-d-sep-keys", "cope",
         cope_options(3, share="none", position_scale="sqrt-d", gates="sep-keys")),
    Case("cope+rope", "cope+rope", {**cope_options(3, "cope."), "rope.layout": "half"}),
    Case("cope+rope-sep-keys", "cope+rope", {**cope_options(3, "cope.", gates="sep-keys"), "rope.layout": "half"}),
    Case("cope+rope-rotated-query", "cope+rope",
         {**cope_options(3, "cope.", gates="sep-keys"), "cope.rotated-query": "true", "rope.layout": "half"}),
    Case("relative+rope", "relative+rope", {"relative.far": "refuse", "rope.layout": "half"}),
    Case("relative+rope-rotated-query", "relative+rope",
         {"relative.far": "refuse", "relative.rotated-query": "true", "rope.layout": "half"}),
    Case("cope+relative", "cope+relative", {**cope_options(3, "cope."), "relative.far": "refuse"}),
    Case("alibi+cope", "alibi+cope", {"alibi.learned": "false", **cope_options(3, "cope.")}),
    Case("alibi+rope", "alibi+rope", {"alibi.learned": "true", "rope.layout": "interleaved"}),
]
