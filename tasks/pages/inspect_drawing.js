// Drawing on canvases. These functions only read numbers.

// The largest absolute value; numbers may be below 0.
function largestOf(row) {
  let most = 0;
  for (const number of row) most = Math.max(most, Math.abs(number));
  return most;
}

// Draws the query's row of each of `shown` ({quantity, numbers}), one below the other, over the keys. Quantities are
// bars (with their own colour below 0), and running sums or products are lines. Returns the x of key 0 and the width of
// a key.
function paintTracks(canvas, shown, page) {
  const {query} = page, {length} = page.tokens;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 600, each = 58, foot = 18;
  const height = shown.length * each + foot;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
  paint.scale(ratio, ratio);
  const left = 104, step = (width - left - 6) / length;
  paint.font = `12px ${style.getPropertyValue("--text")}`;
  shown.forEach(({quantity, numbers}, n) => {
    const row = numbers.subarray(query * length, query * length + query + 1);
    const {css} = palette(quantity.hue, page.theme), top = n * each + 8, base = top + each - 14;
    let most = largestOf(row);
    if (quantity.scale === "linear" && quantity.id !== "positions") most = 1;
    most = most || 1;
    paint.textAlign = "left";
    paint.fillStyle = ink;
    paint.fillText(quantity.label, 0, top + 14);
    paint.fillStyle = soft;
    paint.fillText(`0 – ${most === 1 ? 1 : numberText(quantity, most)}`, 0, top + 30);
    paint.strokeStyle = line;
    paint.beginPath();
    paint.moveTo(left, base + 0.5);
    paint.lineTo(width - 6, base + 0.5);
    paint.stroke();
    const y = number => base - (base - top) * number / most, tone = page.theme === "dark" ? 170 : 165, hue = css[tone];
    if (quantity.sums) {
      paint.strokeStyle = hue;
      paint.lineWidth = 1.8;
      paint.beginPath();
      for (let j = query; j >= 0; --j) {
        if (j === query) paint.moveTo(left + (j + 1) * step, y(row[j]));
        paint.lineTo(left + (j + 1) * step, y(row[j]));
        paint.lineTo(left + j * step, y(row[j]));
      }
      paint.stroke();
      paint.lineWidth = 1;
    } else {
      const bar = Math.max(step - (step > 4 ? 1 : 0), 0.7);
      for (let j = 0; j <= query; ++j) {
        const tall = base - y(Math.abs(row[j]));
        paint.fillStyle = row[j] < 0 ? css[256 + tone] : hue;
        if (tall > 0.2) paint.fillRect(left + j * step, base - tall, bar, tall);
      }
    }
  });
  // The tokens below, or their numbers if there is no room.
  paint.fillStyle = soft;
  paint.textAlign = "center";
  paint.font = `${step >= 8 ? 11 : 10.5}px ${step >= 8 ? style.getPropertyValue("--mono") : style.getPropertyValue("--text")}`;
  const gap = step >= 8 ? 1 : [2, 4, 8, 16, 32, 64, 128].find(n => n * step > 34) || 256;
  for (let j = 0; j < length; j += gap) {
    paint.fillStyle = j === query ? ink : soft;
    paint.fillText(step >= 8 ? page.symbol(page.tokens[j]).slice(0, Math.max(1, Math.floor(step / 7))) : j, left + (j + 0.5) * step, height - 4);
  }
  paint.strokeStyle = soft;
  paint.setLineDash([2, 3]);
  paint.beginPath();
  paint.moveTo(left + (query + 0.5) * step, 0);
  paint.lineTo(left + (query + 0.5) * step, height - foot);
  paint.stroke();
  return {left, step};
}

// The lower triangle as an image of T x T pixels, or of about `size` if that is less. A pixel shows the largest of its
// numbers, because a mean would hide single keys.
function paintSquare(canvas, numbers, length, quantity, colors, byRow, most, size = length) {
  const side = Math.max(1, Math.min(length, Math.round(size)));
  canvas.width = canvas.height = side;
  const paint = canvas.getContext("2d");
  if (!numbers) return paint.clearRect(0, 0, side, side);
  const image = paint.createImageData(side, side), pixels = new Uint32Array(image.data.buffer);
  const largest = new Float32Array(side * side);
  for (let i = 0; i < length; ++i) {
    const start = i * length, line = Math.floor(i * side / length) * side;
    let full = most;
    if (byRow) full = largestOf(numbers.subarray(start, start + i + 1)) || 1;
    for (let j = 0; j <= i; ++j) {
      const x = numbers[start + j], part = Math.abs(x) / full, place = line + Math.floor(j * side / length);
      if (part < largest[place]) continue;
      largest[place] = part;
      pixels[place] = colors.rgba[shade(quantity, x, full)];
    }
  }
  paint.putImageData(image, 0, 0);
}

// A table cell with a mean in its colour, followed by text; an empty cell if there is no mean.
function meanCell(quantity, mean, theme, beside = "") {
  const cell = element("td", {class: "cell"}, mean === null ? "" : mean.toFixed(2).replace(/^-(0\.00)?/, (_, zero) => zero ?? "−") + beside);
  if (mean === null) return cell;
  const {css, dark} = palette(quantity.hue, theme), color = shade(quantity, mean, 1);
  cell.style.background = css[color];
  cell.style.color = dark[color] ? "#fff" : "#16150f";
  return cell;
}
