"""Reference values: GRAPE in its additive and multiplicative forms, and BAM's prior of the distance."""

from reference_case import CASES, STICK, Case, cope_options, within

PATH = {"form": "turned", "width": "8"}
PER_ROW = PATH | {"form": "per-row"}
TURN = {"steps": "one", "share": "heads", "layout": "half"}
PRIOR = {"location": "false"}


def smaller(inputs):
    """Frequencies a of at most e^0.5, and exponents b below 1."""
    for name in inputs:
        if name.endswith(("frequencies", "shape")):
            inputs[name] = inputs[name] * 0.5


CASES += [
    Case("grape-a", "grape-a", {"gate": "key"}),
    Case("grape-a-query", "grape-a", {"gate": "query"}),
    Case("grape-a-both", "grape-a", {"gate": "both"}, d=3),
    Case("grape-a-window-first", "grape-a[window=3,first=1]", {"gate": "both"}),
    Case("grape-a+rope", "grape-a+rope", within("grape-a", {"gate": "both"}) | {"rope.layout": "half"}),
    Case("cope+grape-a", "cope+grape-a", cope_options(3, "cope.") | within("grape-a", {"gate": "key"})),
    Case("grape-ap", "grape-ap", PATH),
    Case("grape-ap-width", "grape-ap", PATH | {"width": "4"}, d=3),
    Case("grape-ap-per-row", "grape-ap", PER_ROW),
    Case("grape-ap-per-row-width", "grape-ap", PER_ROW | {"width": "3"}),
    Case("grape-ap-window-first", "grape-ap[window=3,first=1]", PATH),
    Case("grape-ap-per-row-chunk", "grape-ap[chunk=4]", PER_ROW),
    Case("grape-ap+rope", "grape-ap+rope", within("grape-ap", PATH) | {"rope.layout": "half"}),
    Case("grape-ap+stick-breaking", "grape-ap+stick-breaking", within("grape-ap", PER_ROW) | STICK),
    Case("grape-m", "grape-m", TURN, adjust=smaller),
    Case("grape-m-share-layers-base", "grape-m", TURN | {"share": "layers", "base": "100"}, d=6, adjust=smaller),
    Case("grape-m-share-none-interleaved", "grape-m", TURN | {"share": "none", "layout": "interleaved"}, d=6,
         adjust=smaller),
    Case("grape-m-softplus", "grape-m", TURN | {"steps": "softplus"}, adjust=smaller),
    Case("grape-m-sigmoid-share-none", "grape-m", TURN | {"steps": "sigmoid", "share": "none"}, d=6, adjust=smaller),
    Case("cope+grape-m-rotated-query", "cope+grape-m",
         {**cope_options(3, "cope.", gates="sep-keys"), "cope.rotated-query": "true"}
         | within("grape-m", TURN | {"steps": "sigmoid"}), adjust=smaller),
    Case("grape-a+grape-m", "grape-a+grape-m",
         within("grape-a", {"gate": "key"}) | within("grape-m", TURN | {"steps": "softplus"}), adjust=smaller),
    Case("bam", "bam", PRIOR | {"shape": "0.5"}, adjust=smaller),
    Case("bam-location", "bam", {"location": "true"}, adjust=smaller),
    Case("bam+ssmax-whole", "bam+ssmax",
         within("bam", PRIOR) | {"ssmax.bias": "false", "ssmax.whole": "true"}, adjust=smaller),
    Case("bam+rope", "bam+rope", within("bam", {"location": "true"}) | {"rope.layout": "half"}, adjust=smaller),
]
