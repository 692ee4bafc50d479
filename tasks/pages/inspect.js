// The page: the selection shared by all views (sequence, query), the bar, the keyboard. Views are in inspect_pane.js.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Escapes text for HTML.
function text(raw) {
  return raw.replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`);
}

// An integer from 0 to below `end`.
function within(number, end) {
  return Math.max(0, Math.min(end - 1, Math.round(number) || 0));
}

const page = {
  data: JSON.parse(document.getElementById("data").textContent),
  sequence: 0,
  query: 0,
  panes: [],
  here: 0,
  theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
  squares: new Map(),  // unpacked, the most recently used last

  get tokens() { return this.data.sequences[this.sequence].tokens; },
  get pane() { return this.panes[this.here]; },

  // A symbol in visible form, including blanks and line ends.
  symbol(id) {
    const raw = this.data.symbols[id] ?? `#${id}`;
    return raw === "" ? "∅" : raw.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  },
  runText(run) { return `${run.pe} · step ${run.step} · ${run.name}`; },

  packed(run, layer, head, from) {
    return this.data.runs[run].sequences[this.sequence].layers[layer][from]?.[head] ?? null;
  },
  square(run, layer, head, from) {
    const packed = this.packed(run, layer, head, from);
    if (packed === null) return null;
    const key = [this.sequence, run, layer, head, from].join();
    let square = this.squares.get(key);
    this.squares.delete(key);
    square ||= unpackSquare(packed, this.tokens.length, this.data.quantities[from], this.data.sequences[this.sequence].gate_levels);
    this.squares.set(key, square);
    const kept = Math.max(8, Math.floor(1e8 / (8 * this.tokens.length ** 2)));  // about 100 MB
    if (this.squares.size > kept) this.squares.delete(this.squares.keys().next().value);
    return square;
  },

  // Runs work after the browser has drawn the response to a click.
  later(work) { setTimeout(work, 0); },

  setQuery(query) {
    this.query = within(query, this.tokens.length);
    for (const pane of this.panes) pane.drawQuery();
    this.drawBar();
  },
  setSequence(sequence) {
    this.sequence = (sequence + this.data.sequences.length) % this.data.sequences.length;
    this.query = this.firstQuery();
    this.update();
  },
  // The query of the last scored answer, because most tasks are about it.
  firstQuery() {
    const last = this.data.sequences[this.sequence].scored.lastIndexOf(1);
    return last >= 0 ? last : this.tokens.length - 1;
  },
  // The head with the largest single weight, usually the most interesting one.
  sharpest(run) {
    const best = {layer: 0, head: 0, most: -1}, {layers, heads} = this.data.runs[run], size = this.tokens.length;
    for (let layer = 0; layer < layers; ++layer) {
      for (let head = 0; head < heads; ++head) {
        const row = this.square(run, layer, head, "weights")?.values.subarray(this.query * size, (this.query + 1) * size) || [];
        for (let j = 0; j < this.query; ++j) if (Math.abs(row[j]) > best.most) Object.assign(best, {layer, head, most: Math.abs(row[j])});
      }
    }
    return {layer: best.layer, head: best.head};
  },
  goTo(pane) {
    this.here = this.panes.indexOf(pane);
    this.panes.forEach(one => one.root.classList.toggle("here", one === pane));
  },
  // `all`: also redraws the galleries of all heads.
  update(all = true) {
    for (const pane of this.panes) pane.draw(!all && pane.drawnShow === pane.show);
    for (const pane of this.panes) pane.drawnShow = pane.show;
    this.drawBar();
  },

  compare() {
    if (this.panes.length === 2) {
      this.panes.splice(1 - this.here, 1);
    } else {
      const {run, layer, head, show} = this.pane, {heads} = this.data.runs[run];
      const other = this.data.runs.length > 1 ? (run + 1) % this.data.runs.length : run;
      this.panes.push(new Pane(this, {run: other, layer, head: other === run ? (head + 1) % heads : head, show}));
    }
    this.place();
  },
  place() {
    const box = document.getElementById("panes");
    box.replaceChildren(...this.panes.map(pane => pane.root));
    box.classList.toggle("two", this.panes.length === 2);
    document.getElementById("compare").textContent = this.panes.length === 2 ? "one view" : "two views";
    this.goTo(this.panes[Math.min(this.here, this.panes.length - 1)]);
    this.update();
  },

  // Opens the selection in the address: inspect.html#sequence=0&query=126&layer=1&head=3&show=gates, and run2, layer2,
  // head2, show2 of a second view. Without them, each of the first two runs has a view of its sharpest head.
  open() {
    const {runs, sequences} = this.data, asked = new URLSearchParams(location.hash.slice(1));
    this.sequence = within(asked.get("sequence"), sequences.length);
    this.query = asked.has("query") ? within(asked.get("query"), this.tokens.length) : this.firstQuery();
    this.panes = (asked.has("run2") ? [0, 1] : asked.has("run") ? [0] : [0, 1].slice(0, runs.length)).map(n => {
      const of = name => asked.get(n ? name + "2" : name) ?? (name === "run" ? n : asked.get(name)), run = within(of("run"), runs.length);
      const {layer, head} = this.sharpest(run), show = QUANTITIES.some(q => q.id === of("show")) ? of("show") : "weights";
      return new Pane(this, {run, layer: within(of("layer") ?? layer, runs[run].layers), head: within(of("head") ?? head, runs[run].heads), show});
    });
    this.place();
  },
  // Keeps the selection in the address, once keys that are held rest: browsers limit how often.
  keep() {
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      const asked = new URLSearchParams({sequence: this.sequence, query: this.query});
      this.panes.forEach((pane, n) => { for (const name of ["run", "layer", "head", "show"]) asked.set(n ? name + "2" : name, pane[name]); });
      history.replaceState(null, "", `#${asked}`);
    }, 200);
  },

  drawBar() {
    this.keep();
    const {data, query} = this, sequence = data.sequences[this.sequence];
    const input = document.getElementById("query");
    input.max = this.tokens.length - 1;
    input.value = query;
    document.getElementById("sequence").value = this.sequence;
    const runs = [...new Set(this.panes.map(pane => pane.run))];
    const shown = runs.map(n => {
      const run = data.runs[n], own = run.sequences[this.sequence], name = data.runs.length > 1 ? `${text(run.pe)}: ` : "";
      const answer = own.answers[query], right = answer === sequence.targets[query];
      const verdict = !sequence.scored[query] ? "<span class=soft>(not scored)</span>"
        : right ? "<span class=right>right</span>" : `<span class=wrong>wrong</span>, it is <span class=symbol>${text(this.symbol(sequence.targets[query]))}</span>`;
      return `<span>${name}answers <span class=symbol>${text(this.symbol(answer))}</span> ${(100 * own.sure[query]).toFixed(1)}% ${verdict}</span>`;
    });
    document.getElementById("answers").innerHTML =
      `<span>sees <span class=symbol>${text(this.symbol(this.tokens[query]))}</span></span>${shown.join("")}`;
  },

  tip(html, event) {
    const tip = document.getElementById("tip");
    tip.hidden = html === null;
    if (html === null) return;
    tip.innerHTML = html;
    const {clientX: x, clientY: y} = event, width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${x + 16 + width > innerWidth ? x - 12 - width : x + 16}px`;
    tip.style.top = `${y + 14 + height > innerHeight ? y - 10 - height : y + 14}px`;
  },

  setTheme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    this.drawDefinitions();
  },
  drawDefinitions() {
    const there = QUANTITIES.filter(q => this.data.runs.some(run => run.sequences.some(s => s.layers.some(l => l[q.from]))));
    document.getElementById("definitions").innerHTML = there.map(q =>
      `<dt style="--hue:${palette(q.hue, this.theme).css[165]}">${q.label}</dt><dd><span class=formula>${q.formula}</span><br>${q.text}</dd>`).join("");
  },
};

function onKey(event) {
  const typing = event.target.matches?.("input[type=number], select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  const {pane} = page, far = event.shiftKey ? 10 : 1;
  const does = {
    ArrowLeft: () => page.setQuery(page.query - far), ArrowUp: () => page.setQuery(page.query - far),
    ArrowRight: () => page.setQuery(page.query + far), ArrowDown: () => page.setQuery(page.query + far),
    PageUp: () => page.setQuery(page.query - 10), PageDown: () => page.setQuery(page.query + 10),
    Home: () => page.setQuery(0), End: () => page.setQuery(page.tokens.length - 1),
    h: () => pane.moveTo(pane.layer, pane.head - 1), l: () => pane.moveTo(pane.layer, pane.head + 1),
    k: () => pane.moveTo(pane.layer - 1, pane.head), j: () => pane.moveTo(pane.layer + 1, pane.head),
    n: () => page.setSequence(page.sequence + 1), p: () => page.setSequence(page.sequence - 1),
    m: () => pane.setRowMax(!pane.rowMax.get(pane.show)), c: () => page.compare(),
    x: () => page.goTo(page.panes[(page.here + 1) % page.panes.length]),
    "+": () => pane.setZoom(pane.zoom + 1), "-": () => pane.setZoom(pane.zoom - 1),
  }[event.key] || (/^[1-7]$/.test(event.key) && pane.shown[event.key - 1] ? () => pane.setShow(pane.shown[event.key - 1].id) : null);
  if (!does) return;
  event.preventDefault();
  does();
}

function start() {
  const {data} = page, byId = id => document.getElementById(id);
  byId("title").textContent = data.task;
  byId("subtitle").replaceChildren(...data.runs.map(run => element("div", {},
    `${page.runText(run)} · ${run.layers} ${run.layers === 1 ? "layer" : "layers"} · ${run.heads} ${run.heads === 1 ? "head" : "heads"} · width ${run.width}`)));
  byId("sequence").replaceChildren(...data.sequences.map((sequence, n) => new Option(`${sequence.name} (${sequence.tokens.length} tokens)`, n)));
  byId("sequence").addEventListener("change", event => page.setSequence(Number(event.target.value)));
  byId("query").addEventListener("change", event => page.setQuery(Number(event.target.value)));
  byId("earlier").addEventListener("click", () => page.setQuery(page.query - 1));
  byId("later").addEventListener("click", () => page.setQuery(page.query + 1));
  byId("compare").addEventListener("click", () => page.compare());
  byId("theme").addEventListener("click", () => { page.setTheme(page.theme === "dark" ? "light" : "dark"); page.update(); });
  const encodings = new Map(data.runs.flatMap(run => run.encodings.map(one => [one.name, one])));
  byId("encodings").replaceChildren(...[...encodings.values()].map(one => element("div", {},
    element("h3", {}, one.name), element("div", {}, one.summary), element("pre", {}, one.formula), element("div", {class: "soft"}, one.paper))));
  document.addEventListener("keydown", onKey);
  addEventListener("resize", () => page.update());

  page.setTheme(page.theme);
  page.open();
  addEventListener("hashchange", () => page.open());
}

inflateMatrices(page.data).then(start);
