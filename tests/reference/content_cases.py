"""Reference values: the relative bank, polar coordinates and RePo."""

from reference_case import CASES, Case, cope_options, within

BANK = {"width": "3", "extent": "16", "score-scale": "sqrt-d", "qk-norm": "false", "conv-size": "0"}
INKLING = BANK | {"score-scale": "d", "qk-norm": "true", "conv-size": "4", "log-length": "3"}
POPE = {"rotary-dims": "0", "start": "zero"}


def in_range(inputs):
    """Moves delta of PoPE to where it may be."""
    for name in inputs:
        if name.endswith("delta"):
            inputs[name] = -abs(inputs[name])


CASES += [
    Case("relative-bank", "relative-bank", BANK),
    Case("relative-bank-extent", "relative-bank", BANK | {"extent": "3"}),
    Case("relative-bank-score-scale-d", "relative-bank", BANK | {"score-scale": "d"}),
    Case("relative-bank-log-length", "relative-bank", BANK | {"log-length": "2", "log-scale": "0.5"}),
    Case("relative-bank-qk-norm", "relative-bank", BANK | {"qk-norm": "true"}, d=6),
    Case("relative-bank-conv-size", "relative-bank", BANK | {"conv-size": "3"}, d=3),
    Case("relative-bank-inkling", "relative-bank", INKLING),
    Case("relative-bank-inkling-window", "relative-bank[window=3]", INKLING | {"extent": "2"}),
    Case("relative-bank+rope", "relative-bank+rope", within("relative-bank", INKLING) | {"rope.layout": "half"}),
    Case("fox+relative-bank-score-scale-none", "fox+relative-bank",
         {"fox.sign": "plus", "fox.score-scale": "none"} | within("relative-bank", BANK)),
    Case("cope+relative-bank", "cope+relative-bank", cope_options(3, "cope.") | within("relative-bank", INKLING)),
    Case("pope", "pope", POPE, adjust=in_range),
    Case("pope-uniform", "pope", POPE | {"start": "uniform", "base": "100"}, d=3, adjust=in_range),
    Case("pope-rotary-dims", "pope", POPE | {"rotary-dims": "3"}, adjust=in_range),
    Case("cope+pope", "cope+pope", cope_options(3, "cope.") | within("pope", POPE), adjust=in_range),
    Case("fox-pro+pope", "fox-pro+pope", within("pope", POPE | {"rotary-dims": "2"}), adjust=in_range),
    Case("pope-window-first", "pope[window=3,first=1]", POPE, adjust=in_range),
    Case("repo", "repo", {"hidden": "0"}),
    Case("repo-hidden", "repo", {"hidden": "3", "base": "100"}, d=6),
    Case("repo-rope-layers", "repo", {"rope-layers": "1", "base": "100"}),
    Case("alibi+repo", "alibi+repo", {"alibi.learned": "true", "repo.hidden": "2"}),
    Case("cope+repo-rotated-query", "cope+repo",
         {**cope_options(3, "cope.", gates="sep-keys"), "cope.rotated-query": "true", "repo.hidden": "2"}),
]
