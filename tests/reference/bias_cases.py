"""Reference values: T5, Transformer-XL, KERPLE, FIRE, nexus; hard attention."""

import numpy as np

from reference_case import CASES, Case, cope_options


def positive(inputs):
    """Moves r1 and r2 of KERPLE to where they may be."""
    for name in inputs:
        if name.endswith(("r1", "r2")):
            inputs[name] = 0.25 + np.minimum(np.abs(inputs[name]), 1.5)


def short_threshold(inputs):
    """L = |512 m| of 3.5 tokens."""
    inputs["m"] = np.array([-7 / 1024])


def ties(inputs):
    """Keys that repeat: several logits of a row are the largest."""
    inputs["k"][:, :, 3:] = inputs["k"][:, :, :4]


CASES += [
    Case("t5", "t5"),
    Case("transformer-xl", "transformer-xl"),
    Case("transformer-xl-odd-width", "transformer-xl", d=3),
    Case("rope+transformer-xl", "rope+transformer-xl", {"rope.layout": "half"}),
    Case("kerple-log", "kerple", {"kernel": "log"}, adjust=positive),
    Case("kerple-power", "kerple", {"kernel": "power"}, adjust=positive),
    Case("fire-below-threshold", "fire"),
    Case("fire-beyond-threshold", "fire", adjust=short_threshold),
    Case("nexus", "nexus", {"p-max": "8"}),
    Case("nexus-saturated", "nexus", {"p-max": "2"}, d=3),
    Case("cope+nexus", "cope+nexus", {**cope_options(3, "cope."), "nexus.p-max": "8"}),
    Case("hard", "hard"),
    Case("hard-ties", "hard", adjust=ties),
    Case("alibi+hard", "alibi+hard", {"alibi.learned": "true"}),
]
