"""Reference values: threshold relative attention, selective attention and contextual rotary positions, which change logits
pair by pair."""

from reference_case import CASES, SINK, STICK, Case, cope_options, within

SELECTIVE = {"selector": "first", "bos": "true"}
ROTARY = {"layout": "half", "base": "10000", "rotary-dims": "0", "own": "true", "gates": "keys"}

CASES += [
    Case("tra", "tra"),
    Case("tra-window-first", "tra[window=3,first=1]", d=6),
    Case("rope+tra", "rope+tra", {"rope.layout": "half"}),
    Case("alibi+tra", "alibi+tra", {"alibi.learned": "true"}),
    # Rows without a key have no weight under any rule; a sink takes all of it.
    Case("sink+tra", "sink+tra", within("sink", SINK | {"remainder": "value"})),
    Case("softpick+tra", "softpick+tra", {"softpick.remainder": "drop"}),
    Case("contextual-rotary", "contextual-rotary", ROTARY),
    Case("contextual-rotary-interleaved", "contextual-rotary", ROTARY | {"layout": "interleaved", "base": "100"}, d=6),
    Case("contextual-rotary-dims", "contextual-rotary", ROTARY | {"rotary-dims": "2"}),
    Case("contextual-rotary-from-next", "contextual-rotary", ROTARY | {"own": "false"}),
    Case("contextual-rotary-sep-keys", "contextual-rotary", ROTARY | {"gates": "sep-keys"}),
    Case("contextual-rotary-values", "contextual-rotary", ROTARY | {"gates": "values"}),
    Case("contextual-rotary+rope-rotated-query", "contextual-rotary+rope",
         within("contextual-rotary", ROTARY | {"gates": "sep-keys", "rotated-query": "true"}) | {"rope.layout": "half"}),
    Case("contextual-rotary-window-first", "contextual-rotary[window=3,first=1]", ROTARY),
    Case("contextual-rotary+rope", "contextual-rotary+rope", within("contextual-rotary", ROTARY) | {"rope.layout": "half"}),
    Case("contextual-rotary+fox", "contextual-rotary+fox", within("contextual-rotary", ROTARY)),
    Case("selective", "selective", SELECTIVE),
    Case("selective-no-bos", "selective", SELECTIVE | {"bos": "false"}),
    Case("selective-own", "selective", SELECTIVE | {"selector": "own"}),
    Case("selective-projection", "selective", SELECTIVE | {"selector": "projection"}, d=3),
    Case("selective-window", "selective[window=4]", SELECTIVE | {"bos": "false"}),
    Case("rope+selective", "rope+selective", {"rope.layout": "half"} | within("selective", SELECTIVE)),
    Case("fox+selective", "fox+selective", within("selective", SELECTIVE | {"selector": "own"})),
    Case("cope+selective", "cope+selective", cope_options(3, "cope.") | within("selective", SELECTIVE)),
    Case("selective+stick-breaking", "selective+stick-breaking", within("selective", SELECTIVE) | STICK),
]
