"""Reference values: RoPE and its stretched forms, xPos."""

import math

from reference_case import CASES, T, Case, encoding


def pairs(layout, r):
    """The dims (a, b) of every pair i."""
    return [(i, i + r // 2) if layout == "half" else (2 * i, 2 * i + 1) for i in range(r // 2)]


def turned(x, layout, r, angle, factor):
    """x [T][d], pair i of token t turned by angle(t, i) and multiplied by factor(t, i)."""
    result = [list(row) for row in x]
    for t in range(T):
        for i, (first, second) in enumerate(pairs(layout, r)):
            a, b, phi, c = x[t][first], x[t][second], angle(t, i), factor(t, i)
            result[t][first] = c * (a * math.cos(phi) - b * math.sin(phi))
            result[t][second] = c * (a * math.sin(phi) + b * math.cos(phi))
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

    def by_parts(t, i):
        trained = int(options["trained-length"])

        def dim(turns):
            return r * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base))
        low, high = max(math.floor(dim(32)), 0), min(math.ceil(dim(1)), r - 1)
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

    return {"none": plain, "pi": interpolated, "ntk": other_base, "yarn": by_parts, "llama3": by_wavelength}[stretch]


@encoding("rope", "rotate")
def rope(head, q, k, v):
    options = head.options
    r = int(options.get("rotary-dims", head.d))
    factor = 1
    if options.get("stretch") == "yarn" and float(options["factor"]) > 1:
        factor = 0.1 * math.log(float(options["factor"])) + 1
    angle = rope_angle(options, r)
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
    # Two planes that stay, one between, one that is interpolated; then other bounds.
    Case("rope-llama3", "rope", stretched("llama3", trained=1000), d=8),
    Case("rope-llama3-factors", "rope",
         stretched("llama3", "interleaved", trained=64, factor="8", base="100",
                   **{"low-freq-factor": "0.5", "high-freq-factor": "6"}), d=8),
    Case("xpos-half", "xpos", {"layout": "half"}),
    Case("xpos-interleaved", "xpos", {"layout": "interleaved"}, d=6),
    Case("alibi+xpos", "alibi+xpos", {"alibi.learned": "false", "xpos.layout": "half"}),
]
