"""Reference values: RoPE with its stretched forms and other frequencies, xPos, and rotations by content."""

from reference_case import CASES, T, Case, cope_options


def stretched(name, layout="half", trained=None, **more):
    options = {"layout": layout, "stretch": name, "factor": "4"}
    return options | ({"trained-length": str(trained)} if trained else {}) | more


CASES += [
    Case("rope-half", "rope", {"layout": "half"}),
    Case("rope-interleaved", "rope", {"layout": "interleaved"}),
    Case("rope-base", "rope", {"layout": "half", "base": "100"}),
    Case("rope-half-rotary-dims", "rope", {"layout": "half", "rotary-dims": "4"}, d=6),
    Case("rope-interleaved-rotary-dims", "rope", {"layout": "interleaved", "rotary-dims": "4"}, d=6),
    Case("rope-pi", "rope", stretched("pi")),
    Case("rope-ntk", "rope", stretched("ntk", "interleaved"), d=6),
    Case("rope-ntk-rotary-dims", "rope", stretched("ntk", **{"rotary-dims": "4"}), d=6),
    # The ramp over the pairs: 0, 0, 1/5, 2/5; then 0, 1/2, 1, 1.
    Case("rope-yarn", "rope", stretched("yarn", trained=2000, base="100"), d=8),
    Case("rope-yarn-interleaved", "rope", stretched("yarn", "interleaved", trained=64), d=8),
    Case("rope-pi-factor", "rope", stretched("pi", factor="2.5")),
    Case("rope-ntk-factor", "rope", stretched("ntk", factor="2.5"), d=6),
    Case("rope-yarn-factor", "rope", stretched("yarn", trained=64, factor="2.5"), d=8),
    # A text of T tokens, longer than L0, just as long, and fewer dims.
    Case("rope-dynamic", "rope", stretched("dynamic", trained=T - 4), d=8),
    Case("rope-dynamic-within", "rope", stretched("dynamic", "interleaved", trained=T, base="100"), d=6),
    Case("rope-dynamic-rotary-dims", "rope", stretched("dynamic", trained=2, factor="2.5", **{"rotary-dims": "4"}), d=6),
    # Other bounds: a ramp of 0, 0, 1/2, 1 that begins and ends within a plane without truncate.
    Case("rope-yarn-betas", "rope",
         stretched("yarn", trained=64, base="100", **{"beta-fast": "4", "beta-slow": "0.5", "attention-factor": "0.8"}), d=8),
    Case("rope-yarn-truncate", "rope",
         stretched("yarn", "interleaved", trained=64, base="100", truncate="false", **{"beta-fast": "6"}), d=8),
    Case("rope-longrope-attention-factor", "rope",
         stretched("longrope", trained=T, **{"short-factors": "1/1.25/2.5/3", "attention-factor": "1.25"}), d=8),
    # Two planes that stay, one between, one that is interpolated; then other bounds.
    Case("rope-llama3", "rope", stretched("llama3", trained=1000), d=8),
    Case("rope-llama3-factors", "rope",
         stretched("llama3", "interleaved", trained=64, factor="8", base="100",
                   **{"low-freq-factor": "0.5", "high-freq-factor": "6"}), d=8),
    # A text of T tokens, longer than L0 and just as long; a list that is not given; fewer dims.
    Case("rope-longrope-long", "rope",
         stretched("longrope", trained=T - 1, **{"short-factors": "1/1.25/2.5/3", "long-factors": "1.5/2/4.75/6"}), d=8),
    Case("rope-longrope-short", "rope",
         stretched("longrope", "interleaved", trained=T, factor="2.5",
                   **{"short-factors": "1/1.25/2.5/3", "long-factors": "1.5/2/4.75/6"}), d=8),
    Case("rope-longrope-no-short", "rope",
         stretched("longrope", trained=T, base="100", **{"rotary-dims": "4", "long-factors": "1.5/2"}), d=6),
    Case("rope-fastest", "rope", {"layout": "half", "base": "100", "frequencies": "fastest", "fastest": "0.7"}, d=8),
    Case("rope-fastest-rotary-dims", "rope",
         {"layout": "interleaved", "rotary-dims": "4", "frequencies": "fastest", "fastest": "0.5"}, d=6),
    # The factors of the four angles: 1, 1, 1/2, 0; then 1, 3/4, 1/4, 0; 1, 1, 1, 0; 1, 1, 0, 0.
    Case("rope-clip", "rope", {"layout": "half", "base": "100", "frequencies": "clip", "clipped": "3"}, d=8),
    Case("rope-clip-all", "rope", {"layout": "half", "base": "100", "frequencies": "clip"}, d=8),
    Case("rope-clip-one", "rope", {"layout": "half", "base": "100", "frequencies": "clip", "clipped": "1"}, d=8),
    Case("rope-clip-hard", "rope",
         {"layout": "interleaved", "base": "100", "frequencies": "clip-hard", "clipped": "2"}, d=8),
    Case("carope", "carope", {"layout": "half", "start": "rope"}),
    Case("carope-interleaved", "carope", {"layout": "interleaved", "start": "rope", "base": "100"}, d=6),
    Case("carope-random", "carope", {"layout": "half", "start": "random"}, d=6),
    Case("carope+fox-pro", "carope+fox-pro", {"carope.layout": "half", "carope.start": "rope"}),
    Case("selective-rope", "selective-rope", {"temperature": "fixed", "phase-gate": "true"}),
    Case("selective-rope-base", "selective-rope", {"temperature": "fixed", "phase-gate": "true", "base": "100"}, d=6),
    Case("selective-rope-no-gate", "selective-rope", {"temperature": "fixed", "phase-gate": "false", "base": "20"}),
    Case("selective-rope-learned", "selective-rope", {"temperature": "learned", "phase-gate": "true"}, d=6),
    Case("cope+selective-rope-rotated-query", "cope+selective-rope",
         {**cope_options(3, "cope.", gates="sep-keys"), "cope.rotated-query": "true",
          "selective-rope.temperature": "fixed", "selective-rope.phase-gate": "true"}),
    Case("xpos-half", "xpos", {"layout": "half"}),
    Case("xpos-interleaved", "xpos", {"layout": "interleaved"}, d=6),
    Case("alibi+xpos", "alibi+xpos", {"alibi.learned": "false", "xpos.layout": "half"}),
]
