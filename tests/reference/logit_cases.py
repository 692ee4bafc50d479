"""Reference values: rules that see the logits of all heads (DAPE, DAPE-V2), and of other queries and keys (multi-token
attention)."""

from bias_cases import positive
from reference_case import CASES, Case, within


def network_case(file, encoding_text, options):
    """Options of the part that is one of the two, in addition to those of rope."""
    name = next(part for part in encoding_text.partition("[")[0].split("+") if part.startswith("dape"))
    if "+" in encoding_text:
        rest = {"rope.layout": "half"} if "rope" in encoding_text else {"alibi.learned": "true"}
        options = within(name, options) | rest
    return Case(file, encoding_text, options, adjust=positive)


DAPE = {"bias": "kerple", "hidden": "4", "slope": "0.01"}
DAPE2 = DAPE | {"kernel": "3", "hidden": "3"}
MTA = {"queries": "3", "keys": "5", "mix": "both", "group": "0", "after": "true", "norm": "true", "gate": "true"}
PLAIN = {"norm": "false", "gate": "false"}

CASES += [
    network_case("dape", "dape", DAPE),
    network_case("dape-none", "dape", DAPE | {"bias": "none"}),
    network_case("dape-alibi", "dape", DAPE | {"bias": "alibi", "slope": "0.25"}),
    network_case("alibi+dape", "alibi+dape", DAPE | {"bias": "none"}),
    network_case("dape+rope", "dape+rope", DAPE),
    network_case("dape-window-first", "dape[window=3,first=1]", DAPE | {"slope": "0.25"}),
    network_case("dape2", "dape2", DAPE2),
    network_case("dape2-none", "dape2", DAPE2 | {"bias": "none", "slope": "0.25"}),
    network_case("dape2-alibi", "dape2", DAPE2 | {"bias": "alibi"}),
    network_case("dape2-five-keys", "dape2", DAPE2 | {"bias": "none", "kernel": "5", "hidden": "2"}),
    network_case("dape2-authors", "dape2", DAPE2 | {"edge": "authors"}),
    network_case("dape2-authors-five-keys", "dape2", DAPE2 | {"edge": "authors", "kernel": "5", "hidden": "2"}),
    network_case("dape2+rope", "dape2+rope", DAPE2),
    network_case("dape2-window-first", "dape2[window=3,first=1]", DAPE2 | {"slope": "0.25"}),
    Case("mta", "mta", MTA),
    Case("mta-published-size", "mta", MTA | PLAIN | {"queries": "6", "keys": "11", "mix": "none"}),
    Case("mta-before", "mta", MTA | {"mix": "before", "after": "false", "gate": "false"}),
    Case("mta-after", "mta", MTA | {"mix": "after", "norm": "false"}),
    Case("mta-groups-of-one", "mta", MTA | PLAIN | {"group": "1"}),  # a norm would hide M
    Case("mta+rope", "mta+rope", within("mta", MTA | {"group": "2"}) | {"rope.layout": "half"}),
    Case("mta-window-first", "mta[window=3,first=1]", MTA),
]
