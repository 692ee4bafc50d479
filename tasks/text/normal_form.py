#!/usr/bin/env python3
"""Writes normal_form_ranges.inc: the code points from U+0300 on whose quick check for normal form C is not Yes or whose
combining class is not 0, as ranges, by Python's tables of Unicode 14 (Python 3.11).

Usage: normal_form.py > normal_form_ranges.inc
"""
import sys
import unicodedata


def is_unsafe(code):
    character = chr(code)
    if unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character):
        return True
    return code in second_of_pairs


# Quick check Maybe: what a composition can begin with another character and end with. Hangul vowels and finals too.
second_of_pairs = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
for code in range(0x110000):
    parts = unicodedata.decomposition(chr(code)).split()
    if len(parts) == 2 and not parts[0].startswith("<") and unicodedata.is_normalized("NFC", chr(code)):
        second_of_pairs.add(int(parts[1], 16))


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"normal_form.py: this Python has Unicode {unicodedata.unidata_version}; 14.0.0 is wanted")
    ranges = []
    for code in range(0x300, 0x110000):
        if 0xD800 <= code < 0xE000 or not is_unsafe(code):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    print("// Written by normal_form.py; do not edit.")
    line = ""
    for begin, end in ranges:
        entry = f"{{0x{begin:x}, 0x{end:x}}},"
        if len(line) + len(entry) + 1 > 118:
            print(line)
            line = ""
        line = f"{line} {entry}" if line else entry
    print(line)


main()
