"""Compares gradients with central differences, which do not depend on how the gradients were computed."""

STEP = 1e-6
ABSOLUTE, RELATIVE = 1e-7, 1e-6


def agrees(function, moved):
    """Whether the slope of function() along a direction agrees with the gradients. moved: (array, its direction,
    gradient), ...; function reads the arrays, which are restored afterwards."""
    kept, values = [array.copy() for array, *_ in moved], []
    for step in (STEP, -STEP):
        for (array, direction, _), before in zip(moved, kept):
            array[...] = before + step * direction
        values.append(function())
    for (array, *_), before in zip(moved, kept):
        array[...] = before
    expected = (values[0] - values[1]) / (2 * STEP)
    found = sum((gradient * direction).sum() for _, direction, gradient in moved)
    return abs(found - expected) < ABSOLUTE + RELATIVE * abs(expected)  # false for NaN


def contradicted(function, moved):
    """The names of the wrong gradients; moved: {name: (array, its direction, gradient)}. All together are tried first."""
    if agrees(function, list(moved.values())):
        return []
    return [name for name, one in moved.items() if not agrees(function, [one])] or ["all together"]
