// Marks in texts: lines at which a paragraph, a section or a function begins.

// [[token, mark]] of a sequence.
function marksOf(page) {
  const {marked} = page.data.sequences[page.sequence];
  return (marked || []).map((mark, token) => [token, mark]).filter(([, mark]) => mark >= 0);
}

// Draws a line along the row and the column of each marked token, over the matrix.
function paintMarks(canvas, page, cell) {
  const marks = marksOf(page), size = cell * page.tokens.length;
  canvas.hidden = marks.length === 0;
  if (canvas.hidden) return;
  const ratio = Math.min(window.devicePixelRatio || 1, 8000 / size);
  canvas.width = canvas.height = Math.round(size * ratio);
  canvas.style.width = canvas.style.height = `${size}px`;
  const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  paint.scale(ratio, ratio);
  paint.strokeStyle = style.getPropertyValue("--mark");
  for (const [token] of marks) {
    const edge = token * cell + 0.5;
    paint.beginPath();
    paint.moveTo(0, edge);
    paint.lineTo((token + 1) * cell, edge);
    paint.moveTo(edge, edge);
    paint.lineTo(edge, size);
    paint.stroke();
  }
}

// The means of a head's quantity on tokens without a mark and on the tokens of each mark.
function markedMeans(pane) {
  const {data} = pane.page, means = pane.data.marked_means, there = new Set(data.sequences.flatMap(s => s.marked || []));
  const from = ["gates", "breaks", "decay"].find(id => means.some(layer => layer[id]));
  if (!from || there.size < 2) return null;
  const of = QUANTITIES.find(q => q.from === from && !q.sums), columns = [...there].filter(n => n >= 0).sort((a, b) => a - b);
  const table = element("table", {});
  table.append(element("tr", {}, element("th", {}), element("th", {class: "key"}, "elsewhere"),
    ...columns.map(mark => element("th", {class: "key"}, data.marks[mark]))));
  means.forEach((layer, l) => (layer[from] || []).forEach((head, h) => {
    if (!pane.has(of, l, h)) return;
    const all = head[head.length - 1], line = element("tr", {class: l === pane.layer && h === pane.head ? "head here" : "head"},
      element("th", {}, `layer ${l} · head ${h}`));
    for (const column of [-1, ...columns]) {
      const mean = all[column + 1], more = mean - all[0];
      const beside = column < 0 || mean === null ? "" : ` (${more < 0 ? "−" : "+"}${Math.abs(more).toFixed(2)})`;
      line.append(meanCell(of, mean, pane.page.theme, beside));
    }
    line.addEventListener("click", () => pane.moveTo(l, h));
    table.append(line);
  }));
  return {label: of.label, table};
}
