// One view: a head of a run, drawn in four ways (tokens, the query's row, the matrix, all heads), and its means by
// symbol.

class Pane {
  // page: the state shared by all views (inspect.js). choice: {run, layer, head, show}
  constructor(page, choice) {
    this.page = page;
    this.run = choice.run;
    this.layer = choice.layer;
    this.head = choice.head;
    this.show = choice.show;
    this.rowMax = new Map(QUANTITIES.map(q => [q.id, !!q.byRow]));
    this.zoom = 0;  // steps from the fitting size
    this.by = null;  // the query symbol in the table of means: none chosen yet
    this.hovered = -1;
    this.root = document.getElementById("pane").content.firstElementChild.cloneNode(true);
    this.at = name => this.root.querySelector(name);
    this.map = this.at(".map");
    this.listen();
  }

  get data() { return this.page.data.runs[this.run]; }
  get quantity() { return QUANTITIES.find(q => q.id === this.show); }
  get length() { return this.page.tokens.length; }

  // The matrix of this head: {values, sums}, or null.
  square(from, layer = this.layer, head = this.head) {
    return this.page.square(this.run, layer, head, from);
  }
  // The numbers of a quantity, or null.
  numbers(quantity, layer = this.layer, head = this.head) {
    const square = this.square(quantity.from, layer, head);
    return square && (quantity.sums ? square.sums : square.values);
  }
  has(quantity, layer = this.layer, head = this.head) {
    return this.page.packed(this.run, layer, head, quantity.from) !== null;
  }
  runHas(quantity) {
    for (let layer = 0; layer < this.data.layers; ++layer) {
      for (let head = 0; head < this.data.heads; ++head) if (this.has(quantity, layer, head)) return true;
    }
    return false;
  }
  // The number with the darkest colour.
  most(quantity, numbers, layer = this.layer, head = this.head) {
    if (quantity.id !== "positions") return this.square(quantity.from, layer, head)?.most ?? 1;
    let most = 1;
    for (const number of numbers) if (number > most) most = number;
    return most;
  }

  listen() {
    const {page} = this;
    this.root.addEventListener("pointerdown", () => page.goTo(this), true);
    this.at(".run").addEventListener("change", event => {
      this.run = Number(event.target.value);
      this.layer = Math.min(this.layer, this.data.layers - 1);
      this.head = Math.min(this.head, this.data.heads - 1);
      page.update();
    });
    this.at(".rowmax input").addEventListener("change", event => this.setRowMax(event.target.checked));
    this.at(".smaller").addEventListener("click", () => this.setZoom(this.zoom - 1));
    this.at(".larger").addEventListener("click", () => this.setZoom(this.zoom + 1));
    this.at(".by").addEventListener("change", event => { this.by = event.target.value; this.drawMeans(); });

    const tokens = this.at(".tokens");
    const tokenOf = event => event.target.dataset.token === undefined ? -1 : Number(event.target.dataset.token);
    tokens.addEventListener("click", event => { if (tokenOf(event) >= 0) page.setQuery(tokenOf(event)); });
    tokens.addEventListener("pointermove", event => this.hover(page.query, tokenOf(event), event));
    this.at(".scroll").addEventListener("scroll", () => this.noteView());
    const square = this.at(".square");
    const cellOf = event => {
      const box = square.getBoundingClientRect(), cell = this.cell();
      return [Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell)];
    };
    square.addEventListener("click", event => {
      const [i] = cellOf(event);
      if (i >= 0 && i < this.length) page.setQuery(i);
    });
    square.addEventListener("pointermove", event => this.hover(...cellOf(event), event));
    const tracks = this.at(".tracks canvas");
    const keyOf = event => Math.floor((event.offsetX - this.trackLeft) / this.trackStep);
    tracks.addEventListener("pointermove", event => this.hover(page.query, keyOf(event), event));
    tracks.addEventListener("click", event => { if (keyOf(event) >= 0 && keyOf(event) < this.length) page.setQuery(keyOf(event)); });
    for (const part of [tokens, square, tracks]) part.addEventListener("pointerleave", () => this.hover(-1, -1));
  }

  setRowMax(on) {
    this.rowMax.set(this.show, on);
    this.draw(true);
  }
  setZoom(zoom) {
    this.zoom = Math.max(-3, Math.min(6, zoom));
    this.placeMap();
  }
  setShow(id) {
    if (!this.runHas(QUANTITIES.find(q => q.id === id))) return;
    this.show = id;
    this.page.update(false);
  }
  moveTo(layer, head) {
    this.layer = Math.max(0, Math.min(this.data.layers - 1, layer));
    this.head = Math.max(0, Math.min(this.data.heads - 1, head));
    this.page.update(false);
  }

  // Draws the whole view. `same`: only the quantity of the same matrices has changed, so the gallery is not redrawn.
  draw(same = false) {
    if (!this.runHas(this.quantity)) this.show = "weights";
    this.drawHead();
    this.drawMap();
    this.drawQuery();
    this.drawMeans();
    if (same) this.markGallery(); else this.drawGallery();
  }
  // Draws the parts that depend on the query.
  drawQuery() {
    this.drawTokens();
    this.drawTracks();
    this.placeRow(true);
  }

  drawHead() {
    const {page, quantity} = this;
    const select = this.at(".run");
    select.replaceChildren(...page.data.runs.map((run, n) => new Option(page.runText(run), n, false, n === this.run)));
    select.hidden = page.data.runs.length < 2;
    this.at(".place").textContent = `layer ${this.layer} · head ${this.head}`;
    const shown = QUANTITIES.filter(q => this.runHas(q));
    this.at(".quantities").replaceChildren(...shown.map((q, n) => {
      const button = element("button", {"aria-pressed": q.id === this.show, title: `key: ${n + 1}`}, q.label);
      button.dataset.show = q.id;
      button.disabled = !this.has(q);
      button.addEventListener("click", () => this.setShow(q.id));
      return button;
    }));
    this.shown = shown;
    this.at(".rowmax input").checked = this.rowMax.get(this.show);
    const canvas = this.at(".legend canvas"), paint = canvas.getContext("2d"), {css} = palette(quantity.hue, page.theme);
    const numbers = this.numbers(quantity), least = this.square(quantity.from)?.signed ? -1 : 0;
    for (let x = 0; x < 120; ++x) {
      paint.fillStyle = css[shade(quantity, least + (1 - least) * x / 119, 1)];
      paint.fillRect(x, 0, 1, 1);
    }
    this.at(".legend .low").textContent = !numbers || least === 0 ? "0"
      : this.rowMax.get(this.show) ? "" : `−${numberText(quantity, this.most(quantity, numbers))}`;
    this.at(".legend .high").textContent = !numbers ? "" : this.rowMax.get(this.show) ? "the row's maximum" : this.most(quantity, numbers) === 1 ? "1" : quantity.id === "positions" ? this.most(quantity, numbers).toFixed(1) : numberText(quantity, this.most(quantity, numbers));
  }

  drawTokens() {
    const {page, quantity, length} = this, query = page.query, box = this.at(".tokens");
    const numbers = this.numbers(quantity);
    const most = !numbers ? 1 : this.rowMax.get(this.show) ? largestOf(numbers.subarray(query * length, query * length + query + 1)) : this.most(quantity, numbers);
    const {css, dark} = palette(quantity.hue, page.theme), answers = this.data.sequences[page.sequence].answers;
    const {scored, targets} = page.data.sequences[page.sequence];
    if (box.childElementCount !== length) {
      box.replaceChildren(...page.tokens.map((_, n) => {
        const token = element("span", {role: "option"});
        token.dataset.token = n;
        return token;
      }));
    }
    // A text keeps its line ends, and its marks are highlighted.
    const {marked} = page.data.sequences[page.sequence];
    const kinds = page.tokens.map((id, j) => (marked?.[j] >= 0 ? " marked" : "") + (page.data.symbols[id]?.endsWith("\n") ? " line-end" : ""));
    box.classList.toggle("text", kinds.some(kind => kind.endsWith("line-end")));
    for (let j = 0; j < length; ++j) {
      const token = box.children[j], text = page.symbol(page.tokens[j]);
      if (token.textContent !== text) token.textContent = text;
      const seen = j <= query && numbers, color = seen ? shade(quantity, numbers[query * length + j], most) : 0;
      token.style.background = seen ? css[color] : "transparent";
      token.style.color = seen ? (dark[color] ? "#fff" : "#16150f") : "";
      const asked = !scored[j] ? "" : answers[j] === targets[j] ? " asked-right" : " asked-wrong";
      token.className = (j === query ? "query" : j > query ? "later" : "") + asked + kinds[j];
    }
    const chosen = box.children[query];
    if (chosen.offsetTop < box.scrollTop + box.offsetTop || chosen.offsetTop + 26 > box.scrollTop + box.offsetTop + box.clientHeight) {
      box.scrollTop = chosen.offsetTop - box.offsetTop - box.clientHeight / 2;
    }
    this.at(".stripnote").innerHTML = numbers
      ? `Coloured by ${quantity.label} <span class="formula">${quantity.sign}<sub>ij</sub></span>, seen from the query (outlined). A line below a token: an answer is scored there, <span class="right">right</span> or <span class="wrong">wrong</span>.`
      : `This head has no ${quantity.label}.`;
  }

  // The query's row, one strip for each quantity of the head.
  drawTracks() {
    const {page} = this;
    this.at(".tracks h3").textContent = `Query ${page.query}: its row, key by key`;
    const shown = (this.shown || []).filter(q => this.has(q)).map(quantity => ({quantity, numbers: this.numbers(quantity)}));
    const {left, step} = paintTracks(this.at(".tracks canvas"), shown, page);
    this.trackLeft = left;
    this.trackStep = step;
  }

  drawMap() {
    const {page, quantity} = this, numbers = this.numbers(quantity);
    paintSquare(this.map, numbers, this.length, quantity, palette(quantity.hue, page.theme),
                this.rowMax.get(this.show), numbers ? this.most(quantity, numbers) : 1);
    this.map.setAttribute("aria-label", `${quantity.label} of layer ${this.layer}, head ${this.head}`);
    this.at(".mapbox h3").textContent = `${quantity.label}: each row a query, each column a key`;
    this.mapNote = !numbers ? `Layer ${this.layer}, head ${this.head} has no ${quantity.label}.`
      : this.rowMax.get(this.show) ? "Each row is divided by its maximum. A click chooses the query."
      : quantity.scale === "root" ? "Colours by the square root, so that small shares are seen. A click chooses the query."
      : "A click chooses the query.";
    this.placeMap();
  }
  // Notes the visible part of a map that does not fit.
  noteView() {
    const scroll = this.at(".scroll"), cell = this.cell();
    const part = (from, seen) => `${Math.ceil(from / cell)}–${Math.min(this.length, Math.floor((from + seen) / cell)) - 1}`;
    const view = scroll.scrollHeight <= scroll.clientHeight ? ""
      : ` In view: queries ${part(scroll.scrollTop, scroll.clientHeight)}, keys ${part(scroll.scrollLeft, scroll.clientWidth)}.`;
    this.at(".mapnote").textContent = this.mapNote + view;
  }
  // Pixels per cell: an integer, or less than 1. The whole map is in view, until it is enlarged.
  cell() {
    const fits = Math.min(this.at(".mapbox").clientWidth - 34, 720) / this.length, whole = Math.max(1, Math.floor(fits) + this.zoom);
    return fits < 1 && this.zoom <= 0 ? fits : whole;
  }
  placeMap() {
    const size = this.cell() * this.length;
    for (const part of [this.map, this.at(".square")]) {
      part.style.width = `${size}px`;
      part.style.height = `${size}px`;
    }
    this.drawLabels();
    paintMarks(this.at(".marks"), this.page, this.cell());
    this.placeRow(true);
    this.noteView();
  }
  // The symbol of each row next to the diagonal, if a cell has room for it.
  drawLabels() {
    const cell = this.cell(), canvas = this.at(".labels"), ratio = window.devicePixelRatio || 1, size = cell * this.length;
    canvas.hidden = cell < 9;
    if (canvas.hidden) return;
    canvas.width = canvas.height = Math.round(size * ratio);
    canvas.style.width = canvas.style.height = `${size}px`;
    const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    paint.scale(ratio, ratio);
    paint.font = `${Math.min(13, cell)}px ${style.getPropertyValue("--mono")}`;
    paint.fillStyle = style.getPropertyValue("--soft");
    paint.textBaseline = "middle";
    for (let i = 0; i + 1 < this.length; ++i) {
      paint.fillText(this.page.symbol(this.page.tokens[i]), (i + 1) * cell + 4, (i + 0.5) * cell + 1);
    }
  }
  placeRow(intoView) {
    const cell = this.cell(), row = this.at(".square .row"), {query} = this.page, scroll = this.at(".scroll");
    Object.assign(row.style, {top: `${query * cell - 1}px`, height: `${cell + 2}px`, width: `${(query + 1) * cell}px`});
    const column = this.at(".square .column");
    column.hidden = this.hovered < 0;
    Object.assign(column.style, {left: `${this.hovered * cell - 1}px`, width: `${cell + 2}px`, height: "100%"});
    const top = query * cell;
    if (intoView && (top < scroll.scrollTop || top + cell > scroll.scrollTop + scroll.clientHeight)) {
      scroll.scrollTop = top - scroll.clientHeight / 2;
      scroll.scrollLeft = top - scroll.clientWidth * 0.7;
    }
  }

  hover(i, j, event) {
    const {page, length} = this, inside = i >= 0 && i < length && j >= 0 && j < length;
    this.hovered = inside && j <= i ? j : -1;
    this.placeRow(false);
    if (!inside) return page.tip(null);
    const name = n => `${n} <b>${text(page.symbol(page.tokens[n]))}</b>`;
    if (j > i) return page.tip(`key ${name(j)} comes after query ${name(i)}`, event);
    const rows = QUANTITIES.filter(q => this.has(q)).map(q =>
      `<tr><td>${q.label}</td><td>${numberText(q, this.numbers(q)[i * length + j])}</td></tr>`);
    page.tip(`query ${name(i)} → key ${name(j)}<table>${rows.join("")}</table>`, event);
  }

  drawGallery() {
    const {data, quantity, page} = this, box = this.at(".gallery");
    const size = Math.max(44, Math.min(88, Math.floor(((box.clientWidth || 400) - 62) / data.heads) - 8));
    box.style.gridTemplateColumns = `max-content repeat(${data.heads}, ${size}px)`;
    const parts = [element("span", {})];
    for (let head = 0; head < data.heads; ++head) parts.push(element("span", {class: "top-name"}, `head ${head}`));
    this.thumbs = [];
    const token = this.galleryToken = {};
    for (let layer = 0; layer < data.layers; ++layer) {
      parts.push(element("span", {class: "name"}, `layer ${layer}`));
      for (let head = 0; head < data.heads; ++head) {
        const button = element("button", {title: `layer ${layer}, head ${head}`}), canvas = document.createElement("canvas");
        button.append(canvas);
        button.dataset.layer = layer;
        button.dataset.head = head;
        button.disabled = !this.has(quantity, layer, head);
        button.addEventListener("click", () => this.moveTo(layer, head));
        parts.push(button);
        this.thumbs.push({button, canvas, layer, head});
      }
    }
    box.replaceChildren(...parts);
    this.markGallery();
    // Draws one head at a time between other work, so that a click is answered before all heads are drawn.
    const waiting = this.thumbs.filter(thumb => !thumb.button.disabled);
    const next = () => {
      if (token !== this.galleryToken || waiting.length === 0) return;
      const end = performance.now() + 8;
      while (waiting.length > 0 && performance.now() < end) {
        const {canvas, layer, head} = waiting.shift(), numbers = this.numbers(quantity, layer, head);
        paintSquare(canvas, numbers, this.length, quantity, palette(quantity.hue, page.theme),
                    this.rowMax.get(this.show), this.most(quantity, numbers, layer, head), size * (window.devicePixelRatio || 1));
      }
      page.later(next);
    };
    page.later(next);
  }
  markGallery() {
    for (const {button, layer, head} of this.thumbs || []) {
      button.setAttribute("aria-pressed", layer === this.layer && head === this.head);
    }
  }

  // Means by the key's symbol, one row per head. The quantity is the one shown, or the first with means.
  drawMeans() {
    const {data, page, quantity} = this, symbols = data.counted, means = data.means;
    const among = ["gates", "breaks", "decay", "weights"].filter(id => means.some(layer => layer[id]));
    const from = means.some(layer => layer[quantity.from]) ? quantity.from : among[0];
    const of = QUANTITIES.find(q => q.from === from && !q.sums), oneRow = from === "decay";
    const summed = from === "weights" || from === "position_weights";
    this.at(".means h3").textContent = oneRow ? "Mean forget gate by symbol" : summed ? `Where ${of.label} goes, by the key's symbol` : `Mean ${of.label} by the key's symbol`;
    this.at(".meannote").innerHTML = oneRow ? "What a token of this symbol leaves of all before it: 1 all, 0 nothing."
      : summed ? "Of all the attention of a query the share that keys of this symbol get; mean over queries." + this.spread(from)
      : from === "gates" ? "1: every such key counts as a step of position, 0: none does." + this.spread(from)
      : "The share of what is left that such a key takes." + this.spread(from);
    const by = this.at(".by");
    by.replaceChildren(new Option("all", "all"), ...symbols.map((id, n) => new Option(page.symbol(id), n)));
    if (this.by === null) {  // the query symbol of the initial page
      const own = symbols.indexOf(page.tokens[page.query]);
      this.by = own < 0 ? "all" : String(own);
    }
    by.value = this.by;
    by.parentElement.hidden = oneRow;
    const row = oneRow ? 0 : this.by === "all" ? symbols.length : Number(this.by);
    const table = element("table", {}), top = element("tr", {}, element("th", {}));
    for (const id of symbols) top.append(element("th", {class: "key"}, page.symbol(id)));
    table.append(top);
    means.forEach((layer, l) => (layer[from] || []).forEach((head, h) => {
      if (!this.has(of, l, h)) return;
      const line = element("tr", {class: l === this.layer && h === this.head ? "head here" : "head"}, element("th", {}, `layer ${l} · head ${h}`));
      for (const mean of head[row]) line.append(meanCell(of, mean, page.theme));
      line.addEventListener("click", () => this.moveTo(l, h));
      table.append(line);
    }));
    this.at(".meantable").replaceChildren(table);
    const marked = markedMeans(this), box = this.at(".markedmeans");
    box.hidden = marked === null;
    if (box.hidden) return;
    this.at(".markedmeans h3").textContent = `Mean ${marked.label} where a line begins`;
    this.at(".markedtable").replaceChildren(marked.table);
  }
  spread() {
    const {length} = this.page.data.sequences;
    return ` Over ${length === 1 ? "this sequence" : `all ${length} sequences`} here.`;
  }
}
