// The page of `tally report`: the selection, the pictures, the table, and the details of a run.

const mostLines = 6;       // the most lines that are distinguishable in one panel
const narrowWidth = 720;   // below, a picture shows one split, and names are above their rows
const letterWidth = 6.8;   // approximate
const svgSpace = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// An SVG in pixels of the page, so that letters keep their size.
function picture(width, height, label) {
  return shape("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
}

const page = {
  data: JSON.parse(document.getElementById("data").textContent),
  task: 0,
  sequences: false,
  split: "",
  logarithmic: false,
  only: "",        // a part of the labels to show
  off: new Set(),  // labels of hidden groups
  theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",

  get here() { return this.data.tasks[this.task]; },
  get columns() { return [...this.here.splits, ...this.here.generated]; },
  get groups() { return this.ordered.filter(group => !this.off.has(group.label) && group.label.includes(this.only)); },

  finished(group) { return group.runs.filter(run => run.state === "finished"); },
  // Final errors of the seeds: {run, counts, share}.
  finals(group, split) {
    return this.finished(group).filter(run => run.results[split]).map(run => {
      const counts = counted(run.results[split], this.sequences);
      return {run, counts, share: rate(counts)};
    });
  },
  // Sum of the mean errors of the splits; those without a finished run come last.
  badness(group) {
    return this.here.splits.reduce((sum, split) => {
      const shares = this.finals(group, split).map(final => final.share);
      return sum + (shares.length ? meanOf(shares) : 2);
    }, 0);
  },

  colour(group) { return group.colour[this.theme]; },
  // The label in pictures, without the first parts of options: "cope-alibi layers=4 pe.sign=minus".
  name: group => group.label.replace(/ model\./g, " ").replace(/ pe\.[^. ]+\./g, " pe."),
  // The room in pixels for the longest name.
  roomFor(groups) { return 14 + letterWidth * Math.max(6, ...groups.map(group => this.name(group).length)); },
  // Groups of one colour differ by their dashes.
  dash(group) {
    const same = this.groups.filter(other => other.colour.light === group.colour.light);
    return ["", "6 3", "2 3", "8 3 2 3"][same.indexOf(group) % 4];
  },

  // Opens a task at its first split out of distribution, or at the selection of an address.
  choose(task, asked = new URLSearchParams()) {
    this.task = task;
    const {splits} = this.here, chosen = asked.get("split");
    this.split = splits.includes(chosen) ? chosen : splits.find(split => split.startsWith("ood-")) ?? splits[0] ?? "";
    this.sequences = asked.has("count") ? asked.get("count") === "sequences" : this.here.sequences;
    this.only = asked.get("only") ?? "";
    this.off = new Set(asked.getAll("off"));
    this.order();
    const shares = this.lines("curves").flatMap(line => line.points.map(point => point.mean));
    this.logarithmic = asked.has("scale") ? asked.get("scale") === "logarithmic" : Math.min(...shares) < Math.max(...shares) / 20;
    document.getElementById("run").replaceChildren(element("p", {class: "soft"}, "Click a point to see its run."));
    this.draw();
  },
  // Opens the selection in the address: report.html#task=flip-flop&split=ood-sparse&scale=linear
  open() {
    const asked = new URLSearchParams(location.hash.slice(1));
    this.choose(Math.max(0, this.data.tasks.findIndex(task => task.name === asked.get("task"))), asked);
  },
  // Keeps the selection in the address.
  keep() {
    const place = new URLSearchParams({task: this.here.name, split: this.split, count: this.sequences ? "sequences" : "tokens",
                                       scale: this.logarithmic ? "logarithmic" : "linear"});
    if (this.only) place.set("only", this.only);
    for (const label of this.off) place.append("off", label);
    history.replaceState(null, "", `#${place}`);
  },
  order() { this.ordered = [...this.here.groups].sort((a, b) => this.badness(a) - this.badness(b)); },

  draw() {
    this.order();
    const runs = this.here.groups.flatMap(group => group.runs), done = runs.filter(run => run.state === "finished");
    const folders = [...new Set(runs.map(run => run.name.split("/").slice(0, -1).join("/")))].filter(folder => folder);
    document.getElementById("title").textContent = this.here.name;
    document.getElementById("subtitle").textContent =
      `${this.here.summary} · ${folders.slice(0, 3).join(", ")}${folders.length > 3 ? ", …" : ""}: ${done.length} of ${runs.length} runs finished · trained for ${duration(done.reduce((sum, run) => sum + run.seconds, 0))} · tally ${this.data.version}`;
    this.keep();
    this.drawBar();
    this.drawPictures();
    document.getElementById("table").innerHTML = this.here.tables;
  },
  drawPictures() {
    this.drawDots();
    this.drawCurves();
    this.drawKeys();
  },

  segments(id, choices, chosen, choose) {
    document.getElementById(id).replaceChildren(...choices.map(choice => {
      const button = element("button", {"aria-pressed": choice === chosen}, choice);
      button.onclick = () => { choose(choice); };
      return button;
    }));
  },
  drawBar() {
    const names = this.data.tasks.map(task => task.name);
    this.segments("tasks", names, this.here.name, name => this.choose(names.indexOf(name)));
    this.segments("measure", ["tokens", "sequences"], this.sequences ? "sequences" : "tokens", choice => {
      this.sequences = choice === "sequences";
      this.draw();
    });
    this.segments("split", this.here.splits, this.split, split => { this.split = split; this.draw(); });
    this.segments("scale", ["linear", "logarithmic"], this.logarithmic ? "logarithmic" : "linear", choice => {
      this.logarithmic = choice === "logarithmic";
      this.draw();
    });
    const toggle = (label, pressed, act, colour) => {
      const button = element("button", {"aria-pressed": pressed});
      if (colour) button.append(element("span", {class: "swatch", style: `border-color:${colour};background:${colour}`}));
      button.append(label);
      button.onclick = () => { act(); this.draw(); };
      return button;
    };
    const filter = document.getElementById("only");
    filter.hidden = this.ordered.length <= 2 * mostLines;
    filter.value = this.only;
    document.getElementById("groups").replaceChildren(
      toggle("all", false, () => this.off.clear()),
      toggle("none", false, () => { for (const group of this.ordered) this.off.add(group.label); }),
      ...this.ordered.filter(group => group.label.includes(this.only)).map(group => toggle(this.name(group), !this.off.has(group.label), () => {
        if (!this.off.delete(group.label)) this.off.add(group.label);
      }, this.colour(group))));
  },

  // A point that shows its run's text on hover, and the run's details on a click.
  mark(circle, run, text) {
    circle.classList.add("hit");
    circle.setAttribute("tabindex", "0");
    circle.setAttribute("role", "button");
    circle.setAttribute("aria-label", text);
    const tip = document.getElementById("tip");
    circle.onpointerenter = event => {
      tip.textContent = text;
      tip.hidden = false;
      tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
    };
    circle.onpointerleave = () => { tip.hidden = true; };
    circle.onclick = () => this.showRun(run);
    circle.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.showRun(run); } };
    return circle;
  },

  drawDots() {
    const box = document.getElementById("dots"), width = box.clientWidth, narrow = width < narrowWidth;
    const groups = this.groups.filter(group => this.finished(group).length > 0), splits = narrow ? [this.split] : this.columns;
    const names = this.roomFor(groups), above = names > 0.35 * width;
    const row = above ? 34 : 22, long = groups.length > 15, top = long ? 42 : 26, left = above ? 0 : names, bottom = top + row * groups.length;
    const panel = (width - left) / Math.max(1, splits.length), line = n => top + row * (n + (above ? 0.75 : 0.5));
    const svg = picture(width, bottom + 26, "final errors of every seed");
    groups.forEach((_, n) => svg.append(shape("path", {class: "grid", d: `M${left} ${line(n)}H${width}`})));
    splits.forEach((split, p) => {
      const all = groups.flatMap(group => this.finals(group, split));
      const most = Math.max(10, ...all.map(final => final.counts[1]));
      const low = 10 ** Math.floor(Math.log10(1 / most) + 1e-9), zero = left + p * panel + 14, x0 = zero + 26, x1 = left + (p + 1) * panel - 20;
      const at = share => share <= 0 ? zero : x0 + Math.log10(Math.max(share, low) / low) / -Math.log10(low) * (x1 - x0);
      svg.append(shape("text", {x: (x0 + x1) / 2, y: 14, "text-anchor": "middle", "font-weight": 600}, split),
                 shape("path", {class: "axis", d: `M${zero - 8} ${bottom}h16M${x0} ${bottom}H${x1}`}));
      const label = (x, text) => {  // also above many rows
        for (const y of long ? [top - 10, bottom + 18] : [bottom + 18]) svg.append(shape("text", {class: "soft", x, y, "text-anchor": "middle"}, text));
      };
      label(zero, "0");
      const decades = Math.round(-Math.log10(low)), every = (x1 - x0) / decades < 52 ? 2 : 1;
      for (let n = 0; n <= decades; ++n) {
        const tick = 10 ** -n;
        svg.append(shape("path", {class: "grid", d: `M${at(tick)} ${top}V${bottom}`}));
        if (n % every === 0 && n < decades) label(at(tick), percent(tick));
      }
      groups.forEach((group, n) => {
        const y = line(n), finals = this.finals(group, split), colour = this.colour(group);
        if (!finals.length) return;
        const shares = finals.map(final => final.share);
        svg.append(shape("path", {class: "line", stroke: colour, "stroke-opacity": 0.5, d: `M${at(Math.min(...shares))} ${y}H${at(Math.max(...shares))}`}),
                   shape("circle", {cx: at(meanOf(shares)), cy: y, r: 6, fill: colour, "fill-opacity": 0.9}));
        for (const {run, counts, share} of finals) {
          svg.append(this.mark(shape("circle", {cx: at(share), cy: y, r: 3.5, fill: colour, stroke: "var(--panel)"}), run,
                               `${group.label}, seed ${run.seed}, ${split}: ${percent(share)} wrong (${withCommas(counts[0])} of ${withCommas(counts[1])})`));
        }
      });
    });
    groups.forEach((group, n) => svg.append(above
      ? shape("text", {x: 0, y: line(n) - 11, ...this.roomFor([group]) > width ? {textLength: width} : {}}, this.name(group))
      : shape("text", {x: left - 10, y: line(n) + 4, "text-anchor": "end"}, this.name(group))));
    box.replaceChildren(svg);
  },

  // Points of a group's line: {step, seeds, mean}, over the finished runs, or over all if none is finished. `from`:
  // "curves", over training steps, or "keys", over the keys of the breakdown.
  points(group, from) {
    const runs = this.finished(group).length ? this.finished(group) : group.runs, steps = new Map();
    for (const run of runs) {
      for (const [step, ...counts] of run[from][this.split] ?? []) {
        if (!steps.has(step)) steps.set(step, []);
        steps.get(step).push({run, share: rate(counted(counts, this.sequences))});
      }
    }
    return [...steps].sort((a, b) => a[0] - b[0]).map(([step, seeds]) => ({step, seeds, mean: meanOf(seeds.map(seed => seed.share))}));
  },
  lines(from) {
    return this.groups.map(group => ({group, points: this.points(group, from)})).filter(line => line.points.length);
  },
  drawKeys() {
    document.getElementById("keytitle").textContent = `Wrong ${this.sequences ? "sequences" : "tokens"} by ${this.here.breakdown}, ${this.split}`;
    this.drawLines("keys", "bykey", this.here.breakdown);
  },
  drawCurves() {
    document.getElementById("curvetitle").textContent = `Wrong ${this.sequences ? "sequences" : "tokens"} while training, ${this.split}`;
    this.drawLines("curves", "whiletraining", "training step");
  },
  // All lines in one panel, or a chart each if they are many or have long names. One point is no line.
  drawLines(from, section, name) {
    const lines = this.lines(from), box = document.getElementById(from);
    document.getElementById(section).hidden = !lines.some(line => line.points.length > 1);
    const names = this.roomFor(lines.map(line => line.group));
    const small = lines.length > mostLines || names > 0.35 * box.clientWidth, axes = this.axes(lines, from, name);
    if (from === "curves") {
      document.getElementById("compared").textContent = small && lines.length > 1
        ? `A chart each, the best first; in grey ${[...new Set(this.compared(lines).map(line => this.name(line.group)))].join(" and ")}.` : "";
    }
    box.replaceChildren(small ? this.multiples(axes, lines, box.clientWidth) : this.together(axes, lines, box.clientWidth, names));
  },
  // The common range and type of the axes for all lines of a picture.
  axes(lines, from, name) {
    const xs = [...new Set(lines.flatMap(line => line.points.map(point => point.step)))].sort((a, b) => a - b);
    const shares = lines.flatMap(line => line.points.flatMap(point => point.seeds.map(seed => seed.share)));
    const high = Math.max(1e-6, ...shares), low = 10 ** Math.floor(Math.log10(Math.min(high / 10, ...shares.filter(share => share > 0))));
    const marks = this.logarithmic ? [] : ticks(high, 5), highest = this.logarithmic ? 10 ** Math.ceil(Math.log10(high)) : marks.at(-1);
    if (this.logarithmic) for (let tick = highest; tick >= low * 0.999; tick /= 10) marks.push(tick);
    return {xs, last: Math.max(1, ...xs), low, highest, marks, name, exact: from === "keys"};
  },
  // Lays out a panel with these axes in pixels and draws them. Ticks are at the keys of a breakdown, or at round steps.
  panel(svg, {xs, last, low, highest, marks, exact}, {left, right, top, bottom}) {
    const x = step => left + step / last * (right - left);
    const y = share => this.logarithmic
      ? bottom - (share <= 0 ? 0 : 16 + Math.log10(Math.max(share, low) / low) / Math.log10(highest / low) * (bottom - top - 16))
      : bottom - share / highest * (bottom - top);
    for (const tick of marks) {
      svg.append(shape("path", {class: "grid", d: `M${left} ${y(tick)}H${right}`}),
                 shape("text", {class: "soft", x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, percent(tick)));
    }
    if (this.logarithmic) svg.append(shape("text", {class: "soft", x: left - 6, y: bottom + 4, "text-anchor": "end"}, "0"));
    const room = 14 + letterWidth * withCommas(last).length, wanted = exact ? xs : ticks(last, Math.max(1, Math.floor((right - left) / (1.6 * room))));
    let free = right + room;  // from the right, so that the last tick is always shown
    for (const tick of wanted.filter(tick => tick <= last).reverse()) {
      svg.append(shape("path", {class: "axis", d: `M${x(tick)} ${bottom}v4`}));
      if (x(tick) > free - room) continue;
      free = x(tick);
      svg.append(shape("text", {class: "soft", x: free, y: bottom + 18, "text-anchor": "middle"}, withCommas(tick)));
    }
    svg.append(shape("path", {class: "axis", d: `M${left} ${top}V${bottom}H${right}`}));
    return {x, y};
  },
  way({x, y}, values, first = true) {
    return values.map(([step, share], n) => `${n || !first ? "L" : "M"}${x(step).toFixed(1)} ${y(share).toFixed(1)}`).join("");
  },
  means: points => points.map(point => [point.step, point.mean]),
  // A group's line in its band, with a point for each seed.
  curve(svg, place, {group, points}, dash = "") {
    const colour = this.colour(group);
    const lowest = points.map(point => [point.step, Math.min(...point.seeds.map(seed => seed.share))]);
    const most = points.map(point => [point.step, Math.max(...point.seeds.map(seed => seed.share))]);
    svg.append(shape("path", {fill: colour, "fill-opacity": 0.12, d: this.way(place, most) + this.way(place, lowest.reverse(), false) + "Z"}),
               shape("path", {class: "line", stroke: colour, "stroke-dasharray": dash, d: this.way(place, this.means(points))}));
    for (const point of points) {
      for (const {run, share} of point.seeds) {
        svg.append(this.mark(shape("circle", {cx: place.x(point.step), cy: place.y(share), r: point.seeds.length > 1 ? 2.2 : 3, fill: colour, "fill-opacity": 0.75}), run,
                             `${group.label}, seed ${run.seed}, step ${withCommas(point.step)}: ${percent(share)} wrong`));
      }
    }
  },
  // All lines in one panel, with their names at the ends.
  together(axes, lines, width, room) {
    const height = Math.max(240, Math.min(380, 0.6 * width)), right = width - room, bottom = height - 40;
    const svg = picture(width, height, `error by ${axes.name}`), names = [];
    const place = this.panel(svg, axes, {left: 52, right, top: 12, bottom});
    svg.append(shape("text", {class: "soft", x: (52 + right) / 2, y: height - 4, "text-anchor": "middle"}, axes.name));
    for (const line of lines) {
      this.curve(svg, place, line, this.dash(line.group));
      names.push({y: place.y(line.points.at(-1).mean), label: this.name(line.group), colour: this.colour(line.group)});
    }
    names.sort((a, b) => a.y - b.y);
    for (let n = names.length; n-- > 0;) names[n].y = Math.min(names[n].y, n + 1 < names.length ? names[n + 1].y - 13 : bottom);
    for (let n = 0; n < names.length; ++n) names[n].y = Math.max(names[n].y, n > 0 ? names[n - 1].y + 13 : 12);  // not above the chart
    for (const name of names) svg.append(shape("text", {x: right + 8, y: name.y + 4, style: `fill:${name.colour}`}, name.label));
    return svg;
  },
  // The lines that small charts add for comparison: the best one, and the one without an encoding.
  compared(lines) {
    return [lines[0], lines.find(line => line.group.pe === "none")].filter(line => line);
  },
  // A chart for each group.
  multiples(axes, lines, width) {
    const gap = 18, least = width < narrowWidth ? 130 : 210, columns = Math.max(1, Math.floor((width + gap) / (least + gap)));
    const wide = Math.floor((width - gap * (columns - 1)) / columns);
    return element("div", {class: "charts", style: `grid-template-columns: repeat(${columns}, ${wide}px)`}, ...lines.map(line => {
      const svg = picture(wide, 150, `error by ${axes.name}`);
      const place = this.panel(svg, axes, {left: 46, right: wide - 14, top: 8, bottom: 126});
      for (const other of this.compared(lines)) {
        if (other !== line) svg.append(shape("path", {class: "line muted", d: this.way(place, this.means(other.points))}));
      }
      this.curve(svg, place, line);
      return element("figure", {class: "chart"}, element("figcaption", {}, this.name(line.group)), svg);
    }));
  },

  // The address of a file by its path. Names may contain characters with a meaning in addresses, such as '#'.
  address: path => path.split("/").map(encodeURIComponent).join("/"),

  showRun(run) {
    const list = element("dl"), add = (name, ...value) => list.append(element("dt", {}, name), element("dd", {}, ...value));
    for (const [split, evaluation] of Object.entries(run.results)) {
      add(split, `${percent(rate(counted(evaluation, false)))} of tokens (${withCommas(evaluation[0])} of ${withCommas(evaluation[1])}), ${percent(rate(counted(evaluation, true)))} of sequences`);
    }
    add("state", run.state + (run.seconds ? `, trained for ${duration(run.seconds)}` : ""));
    for (const machine of run.machines) add("machine", machine);
    if (run.preset) add("preset", run.preset);
    add("settings", Object.entries(run.settings).map(([name, value]) => `${name}=${value}`).join(" "));
    if (run.inspect) add("look inside", element("a", {href: this.address(run.inspect)}, run.inspect));
    const section = document.getElementById("run");
    section.replaceChildren(element("h2", {}, run.name), list);
    section.scrollIntoView({block: "nearest"});
  },
};

document.documentElement.dataset.theme = page.theme;
document.getElementById("theme").onclick = () => {
  page.theme = page.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = page.theme;
  page.draw();
};
document.getElementById("only").oninput = event => { page.only = event.target.value; page.draw(); };
addEventListener("resize", () => page.drawPictures());
addEventListener("hashchange", () => page.open());
if (page.data.problems.length) {
  const section = document.getElementById("problems");
  section.hidden = false;
  section.append(element("h2", {}, "Not read"), ...page.data.problems.map(problem => element("p", {}, problem)));
}
// In the overview, the name of a task, which may end in its preset, links to its pictures.
document.getElementById("overview").hidden = page.data.overview === "";
document.getElementById("overviewtable").innerHTML = page.data.overview;
for (const head of document.querySelectorAll("#overviewtable th")) {
  const task = page.data.tasks.findIndex(({name}) => head.textContent === name || head.textContent.startsWith(name + " "));
  if (task < 0) continue;
  const button = element("button", {title: "its pictures"}, head.textContent);
  button.onclick = () => page.choose(task);
  head.replaceChildren(button);
}
page.open();
