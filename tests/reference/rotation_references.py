"""Reference values: RoPE with its stretched forms and other frequencies, xPos, and rotations by content."""

import cmath
import math

from classic_references import cope_options
from reference_case import CASES, H, T, Case, dot, encoding, sigmoid


def pairs(layout, r):
    """The dims (a, b) of every pair i."""
    return [(i, i + r // 2) if layout == "half" else (2 * i, 2 * i + 1) for i in range(r // 2)]


def turned(x, layout, r, angle, factor):
    """x [T][d], pair i of token t turned by angle(t, i) and multiplied by factor(t, i)."""
    result = [list(row) for row in x]
    for t in range(T):
        for i, (first, second) in enumerate(pairs(layout, r)):
            a, b, phi, c = x[t][first], x[t][second], angle(t, i), factor(t, i)
            functions = cmath if isinstance(phi, complex) else math
            cosine, sine = functions.cos(phi), functions.sin(phi)
            result[t][first] = c * (a * cosine - b * sine)
            result[t][second] = c * (a * sine + b * cosine)
    return result


def rope_angle(options, r):
    """angle(t, i): t theta_i, theta_i = base^(-2i/r), stretched by factor s."""
    base, stretch, s = float(options.get("base", 10000)), options.get("stretch", "none"), float(options.get("factor", 1))

    def plain(t, i):
        return t * base ** (-2 * i / r)

    def interpolated(t, i):
        return t / s * base ** (-2 * i / r)

    def other_base(t, i):
        return t * (base * s ** (r / (r - 2))) ** (-2 * i / r)

    def growing_base(t, i):
        trained = int(options["trained-length"])
        longer = s * max(T, trained) / trained - (s - 1)
        return t * (base * longer ** (r / (r - 2))) ** (-2 * i / r)

    def by_parts(t, i):
        trained = int(options["trained-length"])
        whole = options.get("truncate", "true") == "true"

        def dim(turns):
            return r * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base))
        first, last = dim(float(options.get("beta-fast", 32))), dim(float(options.get("beta-slow", 1)))
        low, high = (math.floor(first), math.ceil(last)) if whole else (first, last)
        low, high = max(low, 0), min(high, r - 1)
        if low == high:
            high += 0.001
        ramp = min(max((i - low) / (high - low), 0), 1)
        theta = base ** (-2 * i / r)
        return t * (theta / s * ramp + theta * (1 - ramp))

    def by_wavelength(t, i):
        theta = base ** (-2 * i / r)
        trained, wavelength = int(options["trained-length"]), 2 * math.pi / theta
        low, high = float(options.get("low-freq-factor", 1)), float(options.get("high-freq-factor", 4))
        if wavelength < trained / high:
            return t * theta
        if wavelength > trained / low:
            return t * theta / s
        smooth = (trained / wavelength - low) / (high - low)
        return t * ((1 - smooth) * theta / s + smooth * theta)

    def by_list(t, i):
        longer = T > int(options["trained-length"])
        given = options.get("long-factors" if longer else "short-factors", "")
        return t * base ** (-2 * i / r) / (float(given.split("/")[i]) if given else 1)

    return {"longrope": by_list, "none": plain, "pi": interpolated, "ntk": other_base, "dynamic": growing_base,
            "yarn": by_parts, "llama3": by_wavelength}[stretch]


def kept_part(options, pairs, i):
    """What the angle of pair i is multiplied by: 1, or less among the slower ones, which come last."""
    kind = options.get("frequencies", "all")
    if kind == "fastest":
        return 1 if i < math.floor(float(options["fastest"]) * pairs) else 0
    n = min(int(options.get("clipped", 20)), pairs)
    m = i - (pairs - n)  # 0 for the fastest of those that are clipped
    if kind == "all" or m < 0:
        return 1
    return 0 if kind == "clip-hard" or n == 1 else (1 + math.cos(math.pi * m / (n - 1))) / 2


@encoding("rope", "rotate")
def rope(head, q, k, v):
    options = head.options
    r = int(options.get("rotary-dims", head.d))
    factor = 1
    if options.get("stretch") == "yarn" and float(options["factor"]) > 1:
        factor = 0.1 * math.log(float(options["factor"])) + 1
    if options.get("stretch") == "longrope":
        factor = math.sqrt(1 + math.log(float(options["factor"]), int(options["trained-length"])))
    factor = float(options.get("attention-factor", factor))
    stretched_angle = rope_angle(options, r)

    def angle(t, i):
        return stretched_angle(t, i) * kept_part(options, r // 2, i)
    q, k = (turned(x, options["layout"], r, angle, lambda t, i: factor) for x in (q, k))
    return q, k, v


@encoding("xpos", "rotate")
def xpos(head, q, k, v):
    """RoPE, then q times zeta_i^(t/512) and k times zeta_i^(-t/512), zeta_i = (2i + 0.4d) / (1.4d)"""
    d, layout, angle = head.d, head.options["layout"], rope_angle({}, head.d)

    def zeta(i):
        return (2 * i + 0.4 * d) / (1.4 * d)
    q = turned(q, layout, d, angle, lambda t, i: zeta(i) ** (t / 512))
    k = turned(k, layout, d, angle, lambda t, i: zeta(i) ** (-t / 512))
    return q, k, v


def turned_by_sums(head, layout, turns, q, k, v):
    """q and k of token t turned by the sum of turns [T][d/2] of all tokens up to t."""
    def angle(t, i):
        return sum(turns[m][i] for m in range(t + 1))
    q, k = (turned(x, layout, head.d, angle, lambda t, i: 1) for x in (q, k))
    return q, k, v


@encoding("carope", "shapes")
def carope_shapes(case, options):
    return {"frequency.weight": (H, case.D), "frequency.bias": (H,)}


@encoding("carope", "rotate")
def carope(head, q, k, v):
    """Pair i turns by f_t^i at token t, f_t = 1 / (softplus(w . x_t + b) + 1)"""
    turns = []
    for x in head.x:
        content = dot(head.own["frequency.weight"][head.h], x) + head.own["frequency.bias"][head.h]
        f = 1 / (cmath.log(1 + cmath.exp(content)) + 1)
        turns.append([f ** i for i in range(head.d // 2)])
    return turned_by_sums(head, head.options["layout"], turns, q, k, v)


@encoding("selective-rope", "shapes")
def selective_rope_shapes(case, options):
    shapes = {"angle.weight": (H, case.d // 2, case.d), "conv.weight": (H, case.d // 2, 4)}
    if options["phase-gate"] == "true":
        shapes |= {"gate.weight": (H, case.D), "gate.bias": (H,)}
    return shapes | ({"temperature": (case.d // 2,)} if options["temperature"] == "learned" else {})


def of_length_one(x):
    length = cmath.sqrt(dot(x, x) + 1e-6)
    return [a / length for a in x]


@encoding("selective-rope", "rotate")
def selective_rope(head, q, k, v):
    """Pair p turns by tau_p g_t (conv(W q/|q|))_tp at token t, q as projected, g_t = sigmoid(w . x_t/|x_t| + b)"""
    own, options, turns = head.own, head.options, []
    seen = [[dot(row, of_length_one(one)) for row in own["angle.weight"][head.h]] for one in head.q]
    for t in range(T):
        gate = 1
        if options["phase-gate"] == "true":
            gate = sigmoid(dot(own["gate.weight"][head.h], of_length_one(head.x[t])) + own["gate.bias"][head.h])
        turn = []
        for p in range(head.d // 2):
            taps = own["conv.weight"][head.h][p]
            conv = sum(taps[3 - back] * seen[t - back][p] for back in range(4) if back <= t)
            tau = float(options.get("base", 500000)) ** (-2 * p / head.d)
            if options["temperature"] == "learned":
                tau = own["temperature"][p]
            turn.append(tau * gate * conv)
        turns.append(turn)
    return turned_by_sums(head, "interleaved", turns, q, k, v)


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
    # Of four planes the angles times 1, 1, 1/2, 0; then 1, 3/4, 1/4, 0; 1, 1, 1, 0; 1, 1, 0, 0.
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
