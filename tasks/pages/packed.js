// Reads the output of tasks/inspect/inspect.cpp; tasks/inspect/inspect.hpp documents the format.

// Replaces the packed matrices of all runs by {bytes, most}, in place.
async function inflateMatrices(data) {
  const layers = data.runs.flatMap(run => run.sequences).flatMap(sequence => sequence.layers);
  await Promise.all(layers.flatMap(layer => Object.keys(data.quantities).filter(name => layer[name]).map(async name => {
    layer[name] = await Promise.all(layer[name].map(inflateMatrix));
  })));
}

async function inflateMatrix(text) {
  if (text === null) return null;
  const colon = text.indexOf(":"), packed = Uint8Array.from(atob(text.slice(colon + 1)), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return {bytes: new Uint8Array(await new Response(stream).arrayBuffer()), most: colon < 0 ? null : Number(text.slice(0, colon))};
}

// {values, sums, most}: Float32Array [T * T] row by row, 0 above the diagonal. `sums` depends on the packing:
// contextual positions (gates), the leftover of the stick after key j took its share (breaks), or null. `most`: the
// largest absolute value if some are negative or above 1 (`signed`), else 1.
function unpackSquare({bytes, most}, length, packing, gateLevels) {
  const values = new Float32Array(length * length);
  const sums = packing === "share" ? null : new Float32Array(length * length);
  let at = 0;
  for (let i = 0; i < length; ++i) {
    let sum = packing === "breaks" ? 1 : 0;
    for (let j = i; j >= 0; --j) {
      const n = bytes[at++], place = i * length + j;
      if (packing === "gates") {
        values[place] = n / gateLevels;
        sums[place] = sum += n / gateLevels;
      } else if (most !== null) {
        values[place] = most * (n - 128) * Math.abs(n - 128) / 16129;
      } else {
        const share = values[place] = n * n / 65025;
        if (packing === "breaks") sums[place] = sum *= 1 - share;
      }
    }
  }
  return {values, sums, most: most ?? 1, signed: most !== null};
}
