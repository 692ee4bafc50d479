// Statistics of runs: errors from counts, means, standard deviations, intervals, and their formatting.

// [wrong, all] of an evaluation [wrong tokens, all tokens, wrong sequences, all sequences].
function counted(evaluation, sequences) {
  return sequences ? evaluation.slice(2, 4) : evaluation.slice(0, 2);
}

function rate([wrong, of]) {
  return of > 0 ? wrong / of : 0;
}

function meanOf(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// Standard deviation of a sample; 0 for one value.
function deviationOf(values) {
  if (values.length < 2) return 0;
  const mean = meanOf(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
}

// Wilson's 95% interval of a share.
function wilson(wrong, of) {
  if (of === 0) return [0, 1];
  const z = 1.959963984540054, p = wrong / of, scale = 1 / (1 + z * z / of);
  const middle = (p + z * z / (2 * of)) * scale;
  const half = z * Math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) * scale;
  return [Math.max(0, wrong === 0 ? 0 : middle - half), Math.min(1, wrong === of ? 1 : middle + half)];
}

// "4.9", "0.015": percent in three significant digits.
function percentNumber(share) {
  const percent = 100 * share;
  return percent === 0 ? "0" : String(Number(percent.toPrecision(3)));
}

function percent(share) {
  return percentNumber(share) + "%";
}

function withCommas(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Ticks 0, step, 2 step, ... in about `count` round steps, the last at least `high`.
function ticks(high, count) {
  const rough = high / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(candidate => candidate >= rough * (1 - 1e-9));
  return Array.from({length: Math.ceil(high / step - 1e-9) + 1}, (_, n) => n * step);
}
