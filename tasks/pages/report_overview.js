// Tables of encodings and tasks. Each cell is coloured by its error; a task's name links to its pictures.

// White for no error, dark for everything wrong.
function resultCell(value) {
  if (typeof value === "string") return element("td", {}, value);
  if (!value.n) return element("td", {}, "–");
  const spread = value.n > 1 ? `${percentNumber(value.deviation)}, ` : "";
  const cell = element("td", {}, `${percent(value.mean)} (${spread}${value.n})${value.untrained_rows ? "†" : ""}`);
  cell.style.background = `color-mix(in srgb, #d55e00 ${Math.round(70 * Math.sqrt(value.mean))}%, transparent)`;
  return cell;
}

// A table of results {title, rows, notes} as elements. head: the content of a column's head, from its name.
function resultTable({title, rows, notes}, head) {
  const columns = Object.keys(rows[0]);
  return [
    element("p", {class: "soft"}, title),
    element("table", {}, element("tr", {}, ...columns.map(name => element("th", {}, head(name)))),
            ...rows.map(row => element("tr", {}, ...columns.map(name => resultCell(row[name]))))),
    ...notes.map(note => element("p", {class: "soft"}, note))];
}

// Fills the section, or hides it if there is only one task. A column is named by its task, and by its preset if needed.
function drawOverview(tables, tasks, chooseTask) {
  document.getElementById("overview").hidden = tables.length === 0;
  const head = name => {
    const task = tasks.findIndex(own => name === own || name.startsWith(own + " "));
    if (task < 0) return name;
    const button = element("button", {title: "its pictures"}, name);
    button.onclick = () => chooseTask(task);
    return button;
  };
  document.getElementById("overviewtable").replaceChildren(...tables.flatMap(table => resultTable(table, head)));
}
