"""Reads and writes safetensors: 8-byte little-endian header length, JSON header, raw little-endian tensors."""

import json

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "BOOL": "?"}


def read(path):
    """Returns ({name: array}, {metadata key: text})."""
    with open(path, "rb") as file:
        content = file.read()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError(f"{path}: header of {length} bytes in a file of {len(content)}")
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(content[8 + length + begin:8 + length + end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def write(path, tensors, metadata):
    """Tensors in the order of their names; the same content gives the same bytes."""
    names = {np.dtype(text): name for name, text in DTYPES.items()}
    header, offset, chunks = {"__metadata__": metadata}, 0, []
    for name in sorted(tensors):
        array = np.asarray(tensors[name])
        chunks.append(array.tobytes())
        end = offset + len(chunks[-1])
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def other_contents(stored, made):
    """The first difference between two files, as read returns them, except in the numbers; in words, or None."""
    if stored[1] != made[1]:
        return f"metadata {stored[1]}, not {made[1]}"
    if stored[0].keys() != made[0].keys():
        return f"other tensors: {sorted(stored[0].keys() ^ made[0].keys())}"
    return None
