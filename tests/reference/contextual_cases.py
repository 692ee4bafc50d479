"""Reference values: CoPE with slopes and with a network, forgetting attention, stick-breaking."""

import numpy as np

from reference_case import CASES, Case


def bend_within(inputs):
    """Moves the kinks of cope-mlp's network to where positions are: -b/w at 0.6, 1.4 and 2.3."""
    prefix = "cope-mlp." if "cope-mlp.hidden.weight" in inputs else ""
    inputs[f"{prefix}hidden.bias"] = np.round(inputs[f"{prefix}hidden.weight"] * [-0.6, -1.4, -2.3] * 1024) / 1024


def cope_case(encoding, suffix="", rope=False, **changed):
    """A file of cope-alibi or cope-mlp, by itself or with rope."""
    options = {"cope-alibi": {"slopes": "halving", "sign": "plus", "first-slope": "1"},
               "cope-mlp": {"hidden": "3", "layers": "all"}}[encoding]
    options |= {"gates": "keys", "rotated-query": "false"}
    options |= {key.replace("_", "-"): value for key, value in changed.items()}
    adjust = bend_within if encoding == "cope-mlp" else None
    if not rope:
        return Case(encoding + suffix, encoding, options, adjust=adjust)
    in_sum = {f"{encoding}.{key}": value for key, value in options.items()}
    return Case(f"{encoding}+rope{suffix}", f"{encoding}+rope", {**in_sum, "rope.layout": "half"}, adjust=adjust)


CASES += [
    cope_case("cope-alibi"),
    cope_case("cope-alibi", "-minus", sign="minus", first_slope="0.75"),
    cope_case("cope-alibi", "-slopes-alibi", slopes="alibi"),
    cope_case("cope-alibi", "-slopes-alibi-minus", slopes="alibi", sign="minus"),
    cope_case("cope-alibi", "-learned", slopes="learned"),
    cope_case("cope-alibi", "-p-max", slopes="learned", p_max="2"),
    cope_case("cope-alibi", "-sep-keys", slopes="learned", gates="sep-keys"),
    cope_case("cope-alibi", "-values", gates="values"),
    cope_case("cope-alibi", rope=True, gates="values"),
    cope_case("cope-alibi", "-rotated-query", rope=True, gates="values", rotated_query="true"),
    cope_case("cope-mlp"),
    cope_case("cope-mlp", "-layers-first", layers="first"),
    cope_case("cope-mlp", "-sep-keys", gates="sep-keys"),
    cope_case("cope-mlp", "-values", gates="values"),
    cope_case("cope-mlp", rope=True, gates="sep-keys"),
    cope_case("cope-mlp", "-rotated-query", rope=True, gates="sep-keys", rotated_query="true"),
    Case("fox", "fox"),
    Case("fox+rope", "fox+rope", {"rope.layout": "half"}),
    Case("fox-minus", "fox", {"sign": "minus", "score-scale": "sqrt-d"}),
    Case("fox-minus-score-scale-none", "fox", {"sign": "minus", "score-scale": "none"}),
    Case("fox+relative-score-scale-none", "fox+relative",
         {"fox.sign": "plus", "fox.score-scale": "none", "relative.far": "refuse"}),
    Case("fox-pro", "fox-pro"),
    Case("fox-pro+rope", "fox-pro+rope", {"rope.layout": "half"}),
    Case("fox-pro+stick-breaking", "fox-pro+stick-breaking",
         {"stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
    Case("relative+stick-breaking", "relative+stick-breaking",
         {"relative.far": "refuse", "stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
]
CASES += [Case(f"stick-breaking-{remainder}{suffix}", "stick-breaking",
               {"remainder": remainder, "attend-current": current})
          for remainder in ("drop", "value", "bias")
          for suffix, current in (("", "false"), ("-attend-current", "true"))]
