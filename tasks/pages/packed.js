// Reads the output of tasks/inspect/packing.cpp; tasks/inspect/packing.hpp documents the format.

// text -> {values, sums, most}: Float32Array [T * T] row by row, 0 above the diagonal. `sums` depends on the packing:
// contextual positions (gates), the leftover of the stick after key j took its share (breaks), or null. `most`: the
// largest absolute value if some are negative or above 1 (`signed`), else 1.
function unpackSquare(packed, length, packing, gateLevels) {
  const colon = packed.indexOf(":"), most = colon < 0 ? 1 : Number(packed.slice(0, colon));
  const bytes = decodeBytes(packed.slice(colon + 1));
  const codes = codeTable(bytes);
  const values = new Float32Array(length * length);
  const sums = packing === "share" ? null : new Float32Array(length * length);
  let at = 128, bits = 0, held = 0;  // `held`: number of unread bits in `bits`
  for (let i = 0; i < length; ++i) {
    let sum = packing === "breaks" ? 1 : 0;
    for (let j = i; j >= 0; --j) {
      while (held < 15) {
        bits = (bits << 8 | bytes[at++]) & 0x7fffff;  // past the end: undefined counts as 0
        held += 8;
      }
      const code = codes[bits >> held - 15 & 0x7fff], n = code >> 4;
      held -= code & 15;
      const place = i * length + j;
      if (packing === "gates") {
        values[place] = n / gateLevels;
        sums[place] = sum += n / gateLevels;
      } else if (colon > 0) {
        values[place] = most * (n - 128) * Math.abs(n - 128) / 16129;
      } else {
        const share = values[place] = n * n / 65025;
        if (packing === "breaks") sums[place] = sum *= 1 - share;
      }
    }
  }
  return {values, sums, most, signed: colon > 0};
}

function decodeBytes(text) {
  const decoded = atob(text), bytes = new Uint8Array(decoded.length);
  for (let n = 0; n < bytes.length; ++n) bytes[n] = decoded.charCodeAt(n);
  return bytes;
}

// For every 15-bit value, the byte whose code is its prefix, with the code's length: byte << 4 | length.
function codeTable(bytes) {
  const table = new Uint16Array(1 << 15);
  let from = 0;
  for (let length = 1; length <= 15; ++length) {
    for (let n = 0; n < 256; ++n) {
      const own = n % 2 === 0 ? bytes[n >> 1] >> 4 : bytes[n >> 1] & 15;
      if (own !== length) continue;
      table.fill(n << 4 | length, from, from += 1 << 15 - length);
    }
  }
  return table;
}
