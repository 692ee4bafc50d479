// The quantities of a page: the packed source, the description, and the colours.
//   from    the packed quantity; sums: its running sums or products are shown instead of its values
//   scale   root: colours by the square root, so that small shares are visible; linear: by the value
//   byRow   the map divides each row by its maximum, as the figures of papers do
const QUANTITIES = [
  {id: "weights", from: "weights", label: "attention", sign: "a", scale: "root", hue: "blue",
   formula: "a<sub>ij</sub> <span class=r>= softmax</span><sub>j</sub><span class=r>(</span>l<sub>ij</sub><span class=r>)</span>",
   text: "How much query i takes from the value of key j; a row adds up to 1 where the rule is a softmax. Multi-token attention (mta) mixes keys and heads afterwards, so that a weight may be negative (rose) or above 1. The logit l is the score s<sub>ij</sub> = q<sub>i</sub>·k<sub>j</sub>/√d and what the encoding adds to it. Hard attention and stick-breaking have a rule of their own in place of the softmax."},
  {id: "gates", from: "gates", label: "gates", sign: "g", scale: "linear", hue: "orange",
   formula: "g<sub>ij</sub> <span class=r>= σ(</span>s<sub>ij</sub><span class=r>)</span>",
   text: "Whether key j counts as a step for query i: 1 counts, 0 does not. (With gate keys G of their own: σ(q<sub>i</sub>·G<sub>j</sub>/√d). In threshold relative attention, tra, 1 where s<sub>ij</sub> > 0, else 0.) CoPE, figure 6."},
  {id: "positions", from: "gates", sums: true, label: "position", sign: "p", scale: "linear", hue: "green",
   formula: "p<sub>ij</sub> <span class=r>= ∑</span><sub>k=j..i</sub> g<sub>ik</sub>",
   text: "How far key j is from query i when only what the gates let through is counted. With all gates 1 it is i − j + 1."},
  {id: "position_weights", from: "position_weights", label: "position alone", sign: "a°", scale: "root", hue: "violet", byRow: true,
   formula: "a°<sub>ij</sub> <span class=r>= softmax</span><sub>j</sub><span class=r>(</span>l<sub>ij</sub> <span class=r>−</span> s<sub>ij</sub><span class=r>)</span>",
   text: "The attention that position alone would give, without what the token is: from what joins the score. For CoPE softmax(z<sub>i</sub>[p<sub>ij</sub>]), figure 4 of the paper, where each row is divided by its maximum. Encodings that turn q and k or change the embeddings have none: their positions cannot be taken out of the score."},
  {id: "decay", from: "decay", label: "decay", sign: "D", scale: "linear", hue: "rose",
   formula: "D<sub>ij</sub> <span class=r>= ∏</span><sub>u=j+1..i</sub> f<sub>u</sub>",
   text: "What the forget gates f of the tokens after j have left of key j by query i: the factor on its weight before the row is made to add up to 1."},
  {id: "breaks", from: "breaks", label: "breaks", sign: "β", scale: "linear", hue: "orange",
   formula: "β<sub>ij</sub> <span class=r>= σ(</span>l<sub>ij</sub><span class=r>)</span>",
   text: "The share of what is left of the stick that key j takes, the nearest key first: a<sub>ij</sub> = β<sub>ij</sub> R<sub>i,j+1</sub>."},
  {id: "left", from: "breaks", sums: true, label: "what is left", sign: "R", scale: "linear", hue: "green",
   formula: "R<sub>ij</sub> <span class=r>= ∏</span><sub>k=j..i</sub> <span class=r>(1 −</span> β<sub>ik</sub><span class=r>)</span>",
   text: "What is left of a stick of length 1 once all keys from i down to j have taken their share. What is left at key 0 is the remainder."},
];

// The hue of values below 0.
const NEGATIVE = "rose";

// Colours from 0 to the maximum, for either scheme.
const RAMPS = {
  light: {
    blue: ["#f6f7fc", "#c5d1f6", "#7f97e8", "#3d4fc0", "#191c5e"],
    orange: ["#fdf8f1", "#fbd7a2", "#f09c45", "#c25c12", "#652805"],
    green: ["#f3f9f7", "#b9e2d4", "#58b59c", "#1c7b70", "#083a40"],
    violet: ["#faf6fc", "#e2caf0", "#b681d8", "#7c3bad", "#381260"],
    rose: ["#fdf6f7", "#f8c9d3", "#e8798f", "#b82f52", "#5a0f28"],
  },
  dark: {
    blue: ["#1b1f29", "#2b3b86", "#4f6ce0", "#93abff", "#eef2ff"],
    orange: ["#221f1c", "#7a3d10", "#d3701d", "#ffb469", "#fff3e2"],
    green: ["#192321", "#145650", "#269483", "#74d9c0", "#eafff8"],
    violet: ["#211c27", "#55288a", "#9350d0", "#cf9df5", "#faf0ff"],
    rose: ["#251b1e", "#7c2140", "#cc486c", "#ff9db2", "#fff0f3"],
  },
};

// 256 colours of a ramp, followed by 256 for values below 0: {css: [text], rgba: Uint32Array, dark: [whether light text
// is easier to read on it]}.
const paletteCache = new Map();
function palette(hue, theme) {
  const key = theme + hue;
  if (paletteCache.has(key)) return paletteCache.get(key);
  const stopsOf = name => RAMPS[theme][name].map(color => [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16)));
  const ramps = [stopsOf(hue), stopsOf(NEGATIVE)], result = {css: [], rgba: new Uint32Array(512), dark: []};
  for (let n = 0; n < 512; ++n) {
    const stops = ramps[n >> 8];
    const x = (n & 255) / 255 * (stops.length - 1), left = Math.min(Math.floor(x), stops.length - 2), w = x - left;
    const [r, g, b] = [0, 1, 2].map(c => Math.round(stops[left][c] * (1 - w) + stops[left + 1][c] * w));
    result.css.push(`rgb(${r} ${g} ${b})`);
    result.rgba[n] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    result.dark.push(0.299 * r + 0.587 * g + 0.114 * b < 140);
  }
  paletteCache.set(key, result);
  return result;
}

// The colour index of a value, given its largest possible absolute value `most`: 0..255, from 256 on below 0.
function shade(quantity, value, most) {
  const x = most > 0 ? Math.abs(value) / most : 0;
  const level = Math.min(255, Math.round(255 * (quantity.scale === "root" ? Math.sqrt(x) : x)));
  return value < 0 && level > 0 ? 256 + level : level;
}

// With the significant digits (tasks/inspect/inspect.hpp).
function numberText(quantity, value) {
  if (quantity.id === "positions") return value.toFixed(2);
  if (quantity.id === "gates" || quantity.id === "left" || value >= 0.05) return value.toFixed(2);
  if (value === 0) return "0";
  if (value < 0) return value > -0.001 ? ">−0.001" : `−${numberText(quantity, -value)}`;
  return value < 0.001 ? "<0.001" : value.toFixed(3);
}
