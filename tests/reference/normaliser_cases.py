"""Reference values: sink, sigmoid, softpick, scalable softmax, gated attention."""

from reference_case import CASES, SINK, Case, cope_options, within

SIGMOID = {"length": "5", "visible": "false", "remainder": "drop"}

CASES += [
    Case("sink", "sink", SINK),
    Case("sink-value", "sink", SINK | {"remainder": "value", "deviation": "0.5"}),
    Case("sink-bias", "sink", SINK | {"remainder": "bias"}),
    Case("fox-pro+sink", "fox-pro+sink", within("sink", SINK | {"remainder": "value"})),
    Case("alibi+sink", "alibi+sink", {"alibi.learned": "true"} | within("sink", SINK)),
    Case("sigmoid", "sigmoid", SIGMOID),
    Case("sigmoid-value", "sigmoid", SIGMOID | {"remainder": "value"}),
    Case("sigmoid-bias", "sigmoid", SIGMOID | {"remainder": "bias", "length": "512"}),
    Case("sigmoid-visible", "sigmoid", {"visible": "true", "remainder": "drop"}),
    Case("cope+sigmoid", "cope+sigmoid",
         cope_options(3, "cope.") | within("sigmoid", {"visible": "true", "remainder": "value"})),
    # The rows of a gradient by logits do not sum to zero: both sums of forget gates count.
    Case("fox+sigmoid", "fox+sigmoid", within("sigmoid", SIGMOID)),
    Case("softpick", "softpick", {"remainder": "drop"}),
    Case("softpick-value", "softpick", {"remainder": "value"}),
    Case("softpick-bias", "softpick", {"remainder": "bias"}),
    Case("fox+softpick", "fox+softpick", {"softpick.remainder": "drop"}),
    Case("rope+softpick", "rope+softpick", {"rope.layout": "half", "softpick.remainder": "value"}),
    Case("ssmax", "ssmax", {"start": "0.43", "bias": "false"}),
    Case("ssmax-bias", "ssmax", {"start": "1.5", "bias": "true"}),
    Case("rope+ssmax", "rope+ssmax", {"rope.layout": "half", "ssmax.bias": "true"}),
    # All terms of the score are multiplied too: of a table, by distance, of columns, a product. Gates use only the
    # score.
    Case("ssmax-whole", "ssmax", {"bias": "true", "whole": "true"}),
    Case("cope+ssmax-whole", "cope+ssmax", cope_options(3, "cope.") | {"ssmax.bias": "true", "ssmax.whole": "true"}),
    Case("alibi+ssmax-whole", "alibi+ssmax",
         {"alibi.learned": "true", "ssmax.bias": "false", "ssmax.whole": "true"}),
    Case("fox+ssmax-whole-window", "fox+ssmax[window=4,first=1]", {"ssmax.bias": "true", "ssmax.whole": "true"}),
    Case("nexus+ssmax-whole", "nexus+ssmax", {"nexus.p-max": "8", "ssmax.bias": "true", "ssmax.whole": "true"}),
    # Gates use the score after ssmax's factor; the bias of the table is not multiplied.
    Case("cope+ssmax", "cope+ssmax", cope_options(3, "cope.") | {"ssmax.bias": "true"}),
    Case("gated", "gated", {"per": "element"}),
    Case("gated-per-head", "gated", {"per": "head"}),
    Case("fox-pro+gated", "fox-pro+gated", {"gated.per": "element"}),
    Case("gated+stick-breaking", "gated+stick-breaking",
         {"gated.per": "head", "stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
]
