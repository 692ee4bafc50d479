"""Reference values: PaTH and Wall, whose keys are changed by every token between them and the query."""

from reference_case import CASES, SINK, STICK, Case, cope_options, within

PATH = {"rank": "2", "conv": "true", "qk-norm": "false", "forget": "false"}
WALL = {"scalar-gate": "false", "qk-norm": "false"}

CASES += [
    Case("path", "path", PATH),
    Case("path-full-rank", "path", PATH | {"rank": "0"}),
    Case("path-conv-size", "path", PATH | {"conv-size": "5"}, d=3),
    Case("path-no-conv", "path", PATH | {"conv": "false"}),
    Case("path-qk-norm", "path", PATH | {"qk-norm": "true", "conv-size": "1"}, d=6),
    Case("path-forget", "path", PATH | {"forget": "true", "gate-scale": "sqrt-d"}),
    Case("path-forget-gate-scale-none", "path", PATH | {"forget": "true", "gate-scale": "none", "qk-norm": "true"}),
    Case("path-window-first", "path[window=3,first=1]", PATH | {"forget": "true", "gate-scale": "none"}),
    Case("path+rope", "path+rope", within("path", PATH | {"qk-norm": "true"}) | {"rope.layout": "half"}),
    # The whole score is not divided by sqrt(d), including the changes by the matrices.
    Case("fox+path-score-scale-none", "fox+path",
         {"fox.sign": "plus", "fox.score-scale": "none"} | within("path", PATH)),
    # Gates use the plain product.
    Case("cope+path", "cope+path", cope_options(3, "cope.") | within("path", PATH)),
    Case("path+sink", "path+sink", within("path", PATH) | within("sink", SINK)),
    Case("path+stick-breaking", "path+stick-breaking", within("path", PATH | {"conv": "false"}) | STICK),
    Case("wall", "wall", WALL),
    Case("wall-qk-norm", "wall", WALL | {"qk-norm": "true"}, d=3),
    Case("wall-scalar-gate", "wall", WALL | {"scalar-gate": "true"}),
    Case("wall-window", "wall[window=3]", WALL | {"scalar-gate": "true", "qk-norm": "true"}),
    Case("rope+wall", "rope+wall", within("wall", WALL) | {"rope.layout": "interleaved"}),
    Case("fox+wall-score-scale-none", "fox+wall",
         {"fox.sign": "plus", "fox.score-scale": "none"} | within("wall", WALL | {"qk-norm": "true"})),
]
