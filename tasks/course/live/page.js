// The page: two models, each in a worker of its own, their curves, and a view of their attention.
"use strict";
const encodings = {cope: "CoPE", rope: "RoPE", alibi: "ALiBi", absolute: "absolute", none: "none"};
const length = 64, largestRate = 0.6;
const element = id => document.getElementById(id);
const percent = rate => `${(100 * rate).toFixed(rate < 0.0995 && rate > 0 ? 1 : 0)}%`;

const page = {run: 0, steps: 1, playing: true, firstCurve: null, models: []};

class Model {
  constructor(number, encoding) {
    this.number = number;
    this.row = document.createElement("tr");
    this.row.className = `model-${number}`;
    this.row.innerHTML =
      `<td><select aria-label="encoding of model ${number + 1}"></select></td>` + "<td></td>".repeat(4);
    this.choice = this.row.querySelector("select");
    for (const name in encodings) this.choice.add(new Option(encodings[name], name));
    this.choice.value = encoding;
    this.choice.onchange = start;
    element("models").append(this.row);
    this.worker = new Worker(page.workerAddress);
    this.worker.onmessage = ({data}) => this.receive(data);
    this.clear();
  }
  get name() { return encodings[this.choice.value]; }
  clear() {
    this.step = 0;
    this.losses = [];
    this.points = [];  // {step, rates}
    this.times = [];   // of the last two seconds: [milliseconds, step]
    this.inside = null;
  }
  send(message) { this.worker.postMessage(message); }
  receive(data) {
    if (data.run !== page.run && !data.error) return;
    this.step = data.step;
    if (data.steps) page.steps = data.steps;
    if (data.error) this.inside = {error: data.error};
    if (data.losses) {
      this.losses.push(...data.losses);
      const now = performance.now();
      this.times.push([now, data.step]);
      while (this.times.length > 2 && now - this.times[0][0] > 2000) this.times.shift();
    }
    if (data.rates) this.points.push({step: data.step, rates: data.rates});
    if (data.inside && data.text === element("text").value) this.inside = data.inside;
    redraw(Boolean(data.rates));
  }
  get speed() {
    const [first, last] = [this.times[0], this.times.at(-1)];
    return this.times.length < 2 ? 0 : 1000 * (last[1] - first[1]) / (last[0] - first[0]);
  }
  drawRow() {
    const rates = this.points.length > 0 ? this.points.at(-1).rates.map(percent) : ["", ""];
    const speed = this.step < page.steps && page.playing && this.speed > 0 ? this.speed.toFixed(0) : "";
    [this.step, speed, ...rates].forEach((value, n) => { this.row.cells[n + 1].textContent = value; });
  }
}

// Whatever has changed is drawn once a frame. Curves have a new point less often than numbers change.
let drawing = false, newPoints = true;
function redraw(points = true) {
  newPoints ||= points;
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const model of page.models) {
      model.drawRow();
      drawInside(model);
    }
    if (newPoints) drawCurves();
    newPoints = false;
    const shown = page.models.every(model => model.points.length > 1);
    if (page.firstCurve === null && shown) page.firstCurve = performance.now();
  });
}

function drawCurves() {
  const box = element("curves"), width = Math.max(260, box.clientWidth), height = 300;
  const left = 40, right = 104, top = 12, bottom = 40;
  const x = step => left + step / page.steps * (width - left - right);
  const y = rate => top + (1 - Math.min(rate, largestRate) / largestRate) * (height - top - bottom);
  let text = "";
  for (const rate of [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) {
    text += `<text x="${left - 7}" y="${y(rate) + 4}" text-anchor="end">${Math.round(rate * 100)}%</text>` +
      `<path class="grid" d="M${left} ${y(rate)}H${width - right}"/>`;
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const step = Math.round(part * page.steps);
    text += `<text x="${x(step)}" y="${height - 24}" text-anchor="middle">${step}</text>`;
  }
  text += `<text x="${x(page.steps / 2)}" y="${height - 4}" text-anchor="middle">training steps</text>`;
  const names = [];
  for (const {number, name, points} of page.models) {
    for (const [n, suffix] of ["", ", sparse"].entries()) {
      if (points.length === 0) continue;
      const line = points.map(point => `${x(point.step).toFixed(1)},${y(point.rates[n]).toFixed(1)}`).join(" ");
      text += `<polyline class="curve model-${number} ${n ? "sparse" : ""}" points="${line}"/>`;
      names.push({number, at: y(points.at(-1).rates[n]) + 4, text: name + suffix});
    }
  }
  // Names of lines must not overlap each other or the axis.
  names.sort((a, b) => a.at - b.at);
  names.forEach((label, n) => { if (n > 0) label.at = Math.max(label.at, names[n - 1].at + 15); });
  names.reverse().forEach((label, n) => { label.at = Math.min(label.at, height - bottom + 4 - 15 * n); });
  for (const label of names) {
    text += `<text class="name model-${label.number}" x="${width - right + 7}" y="${label.at}">${label.text}</text>`;
  }
  box.innerHTML = `<svg width="${width}" height="${height}">${text}</svg>`;
}

// The bit that was written last, for a text that ends with a read; else null.
function rightAnswer(tokens) {
  if (tokens.at(-1) !== "r") return null;
  const written = tokens.findLastIndex((token, n) => token === "w" && /[01]/.test(tokens[n + 1]));
  return written < 0 ? null : tokens[written + 1];
}

function squares(model, layer, kind, size, color) {
  const box = document.createElement("div");
  box.className = "heads";
  const count = layer[kind].length / (size * size);
  for (let head = 0; head < count; ++head) {
    const canvas = document.createElement("canvas"), scale = Math.max(1, Math.ceil(200 / size));
    canvas.width = canvas.height = size * scale;
    const context = canvas.getContext("2d");
    const weight = (query, key) => layer[kind][(head * size + query) * size + key] / 1000;
    for (let query = 0; query < size; ++query) {
      for (let key = 0; key <= query; ++key) {
        context.fillStyle = `rgba(${color}, ${weight(query, key)})`;
        context.fillRect(key * scale, query * scale, scale, scale);
      }
    }
    canvas.onpointermove = event => {
      const at = offset => Math.min(size - 1, Math.max(0, Math.floor(offset / canvas.clientWidth * size)));
      const query = at(event.offsetY), key = at(event.offsetX), {tokens} = model.inside;
      model.readout.textContent = key > query ? "A query never sees later keys." :
        `head ${head + 1}: ${tokens[query]} (place ${query + 1}) ${kind === "gates" ? "gate of" : "reads"} ` +
        `${tokens[key]} (place ${key + 1}): ${percent(weight(query, key))}`;
    };
    box.append(canvas);
  }
  return box;
}

function drawInside(model) {
  const box = element(`inside-${model.number}`), {inside} = model;
  if (inside === model.drawn) return;
  model.drawn = inside;
  const answer = document.createElement("p");
  answer.className = `answer model-${model.number}`;
  if (inside === null || inside.error) {
    answer.textContent = inside === null ? `${model.name}: loading` : inside.error;
    answer.classList.toggle("error", inside !== null);
    return box.replaceChildren(answer);
  }
  const {tokens, answers, layers} = inside, size = tokens.length;
  if (size === 0) {
    answer.textContent = "Type a sequence.";
    return box.replaceChildren(answer);
  }
  const right = rightAnswer(tokens), given = answers.at(-1);
  const verdict = right === null ? "" : given === right ? " – right" : ` – wrong, it is ${right}`;
  answer.textContent = `${model.name} answers ${given}${verdict}`;

  const style = getComputedStyle(document.documentElement);
  const strongest = key => Math.max(...layers.map(({weights}) => {
    let most = 0;
    for (let at = (size - 1) * size + key; at < weights.length; at += size * size) most = Math.max(most, weights[at]);
    return most;
  })) / 1000;
  const sequence = document.createElement("p");
  sequence.className = "sequence";
  sequence.append(...tokens.map((token, key) => {
    const span = document.createElement("span");
    span.textContent = token;
    span.style.background = `rgba(${style.getPropertyValue("--attention")}, ${strongest(key) * 0.8})`;
    return span;
  }));
  const parts = [answer, sequence];
  layers.forEach((layer, n) => {
    for (const [kind, name] of [["weights", "attention"], ["gates", "gates"]]) {
      if (!layer[kind]) continue;
      const title = document.createElement("h3");
      title.innerHTML = `<span class="key ${name}"></span> layer ${n + 1}, ${name}`;
      parts.push(title, squares(model, layer, kind, size, style.getPropertyValue(`--${name}`)));
    }
  });
  model.readout = document.createElement("p");
  model.readout.className = "note readout";
  box.replaceChildren(...parts, model.readout);
}

const number = id => Number(element(id).value);
const heads = () => 2 ** number("heads"), ignored = () => 10 * number("ignored");
function showValues() {
  const values = {heads: heads(), ignored: `${ignored()}%`, pmax: number("pmax"), distance: number("distance")};
  for (const id in values) element(id).parentElement.querySelector("output").textContent = values[id];
}
function start() {
  ++page.run;
  showValues();
  for (const model of page.models) {
    model.clear();
    const settings = {encoding: model.choice.value, pMax: number("pmax"), heads: heads(), length, ignored: ignored()};
    model.send({run: page.run, start: settings, look: element("text").value});
  }
  play(true);
}
function play(on) {
  page.playing = on;
  element("pause").textContent = on ? "Pause" : "Continue";
  for (const model of page.models) model.send({play: on});
  redraw();
}
function look() {
  for (const model of page.models) model.send({look: element("text").value});
}
function setDistance() {
  showValues();
  element("text").value = "w0w1" + "i0".repeat(number("distance") - 1) + "r";
  look();
}

element("length").textContent = length;
element("example").innerHTML = "w0 <span class=write>w1</span> i0 i0 i1 r → <span class=write>1</span>";
page.workerAddress = URL.createObjectURL(new Blob([element("library").textContent], {type: "text/javascript"}));
page.models = ["cope", "rope"].map((encoding, number) => new Model(number, encoding));
setDistance();
redraw();
element("start").onclick = start;
element("pause").onclick = () => play(!page.playing);
for (const id of ["heads", "pmax", "ignored"]) {
  element(id).onchange = start;
  element(id).oninput = showValues;
}
element("distance").oninput = setDistance;
element("text").oninput = look;
window.onresize = () => redraw();
matchMedia("(prefers-color-scheme: dark)").onchange = () => {
  for (const model of page.models) model.drawn = undefined;
  redraw();
};
WebAssembly.compileStreaming(fetch("data:application/wasm;base64," + element("module").textContent)).then(module => {
  for (const model of page.models) model.send({module});
  start();
}, error => { for (const model of page.models) { model.inside = {error: error.message}; redraw(); } });
