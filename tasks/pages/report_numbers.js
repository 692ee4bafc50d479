// Statistics of runs: errors from counts, means, and their formatting.

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

// "4.9%", "0.015%": percent in three significant digits.
function percent(share) {
  return `${share === 0 ? 0 : Number((100 * share).toPrecision(3))}%`;
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
