// A single table of encodings and tasks. Each cell is coloured by its error; a task's name links to its pictures.

// [number of errors as text, colour]: white for no error, dark for everything wrong.
function overviewCell(rates, mark = "") {
  if (!rates || !rates.n) return element("td", {}, "–");
  const spread = rates.n > 1 ? ` (${percentNumber(rates.deviation)})` : "";
  const cell = element("td", {title: `${rates.n} ${rates.n === 1 ? "seed" : "seeds"}`}, percent(rates.mean) + spread + mark);
  cell.style.background = `color-mix(in srgb, #d55e00 ${Math.round(70 * Math.sqrt(rates.mean))}%, transparent)`;
  return cell;
}

// Fills the section, or hides it if there is only one task.
function drawOverview(columns, chooseTask) {
  const section = document.getElementById("overview");
  section.hidden = columns.length < 2;
  if (section.hidden) return;
  const names = [...new Set(columns.flatMap(column => column.rows.map(row => row.row)))];
  const heads = columns.map(column => {
    const button = element("button", {title: "its pictures"}, column.title);
    button.onclick = () => chooseTask(column.task);
    return element("th", {colspan: 2}, button, column.counts === "sequences" ? element("div", {class: "counts"}, "sequences") : "");
  });
  const kinds = columns.flatMap(() => [element("th", {class: "counts"}, "in"), element("th", {class: "counts"}, "out")]);
  const lines = names.map(name => element("tr", {}, element("td", {}, name), ...columns.flatMap(column => {
    const row = column.rows.find(own => own.row === name);
    return [overviewCell(row?.in_distribution), overviewCell(row?.out_of_distribution, row?.untrained_rows ? "†" : "")];
  })));
  document.getElementById("overviewtable").replaceChildren(
    element("table", {}, element("tr", {}, element("th", {}, "encoding"), ...heads), element("tr", {}, element("th"), ...kinds), ...lines));
  document.getElementById("overviewuntrained").hidden = !columns.some(column => column.rows.some(row => row.untrained_rows));
}
