"""An error that planted.py plants."""
from typing import NamedTuple


class Planted(NamedTuple):
    """`find` occurs exactly once in the file (white space counts as one blank, so that wrapping a line changes
    nothing) and is replaced by `replace`. `found_by` are the tests that find it, folder/GoogleTest filter, the
    quickest first. `survived` marks an error that no test found at first: its test was written for it."""
    id: str
    file: str
    find: str
    replace: str
    what: str
    found_by: list
    survived: bool = False
