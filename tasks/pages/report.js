// The page of `tally report`: the selection, the pictures, the table, and the details of a run.

const mostLines = 6;  // the most lines that are distinguishable in one panel
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

const page = {
  data: JSON.parse(document.getElementById("data").textContent),
  task: 0,
  sequences: false,
  split: "",
  logarithmic: false,
  off: new Set(),  // labels of hidden groups
  theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",

  get here() { return this.data.tasks[this.task]; },
  get columns() { return [...this.here.splits, ...this.here.generated]; },
  get groups() { return this.ordered.filter(group => !this.off.has(group.label)); },

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

  // Groups of one colour differ by their dashes.
  dash(group) {
    const same = this.here.groups.filter(other => other.colour === group.colour);
    return ["", "6 3", "2 3", "8 3 2 3"][same.indexOf(group) % 4];
  },

  choose(task) {
    this.task = task;
    this.sequences = this.here.sequences;
    this.split = this.here.splits.at(-1) ?? "";
    this.off.clear();
    document.getElementById("run").replaceChildren(element("p", {class: "soft"}, "Click a point to see its run."));
    this.draw();
  },

  draw() {
    this.ordered = [...this.here.groups].sort((a, b) => this.badness(a) - this.badness(b));
    const runs = this.here.groups.flatMap(group => group.runs), done = runs.filter(run => run.state === "finished");
    document.getElementById("title").textContent = this.here.name;
    document.getElementById("subtitle").textContent =
      `${this.here.summary} · ${done.length} of ${runs.length} runs finished · trained for ${duration(done.reduce((sum, run) => sum + run.seconds, 0))} · tally ${this.data.version}`;
    this.drawBar();
    this.drawDots();
    this.drawCurves();
    this.drawKeys();
    this.drawTable();
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
    document.getElementById("groups").replaceChildren(
      ...this.ordered.map(group => toggle(group.label, !this.off.has(group.label), () => {
        if (!this.off.delete(group.label)) this.off.add(group.label);
      }, group.colour)),
      toggle("all", false, () => this.off.clear()),
      toggle("none", false, () => { for (const group of this.ordered) this.off.add(group.label); }));
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
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 430)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    };
    circle.onpointerleave = () => { tip.hidden = true; };
    circle.onclick = () => this.showRun(run);
    circle.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.showRun(run); } };
    return circle;
  },

  drawDots() {
    const groups = this.groups.filter(group => this.finished(group).length > 0), splits = this.columns;
    const width = 1200, row = 22, top = 30, left = 24 + 7 * Math.max(6, ...groups.map(group => group.label.length));
    const panel = (width - left - 20) / Math.max(1, splits.length), bottom = top + row * groups.length;
    const svg = shape("svg", {viewBox: `0 0 ${width} ${bottom + 30}`, role: "img", "aria-label": "final errors of every seed"});
    groups.forEach((group, n) => {
      const y = top + row * (n + 0.5);
      svg.append(shape("path", {class: "grid", d: `M${left} ${y}H${width - 10}`}),
                 shape("text", {x: left - 12, y: y + 4, "text-anchor": "end"}, group.label));
    });
    splits.forEach((split, p) => {
      const all = groups.flatMap(group => this.finals(group, split));
      const most = Math.max(10, ...all.map(final => final.counts[1]));
      const low = 10 ** Math.floor(Math.log10(1 / most) + 1e-9), zero = left + p * panel + 18, x0 = zero + 26, x1 = left + (p + 1) * panel - 26;
      const at = share => share <= 0 ? zero : x0 + Math.log10(Math.max(share, low) / low) / -Math.log10(low) * (x1 - x0);
      svg.append(shape("text", {x: (x0 + x1) / 2, y: 14, "text-anchor": "middle", "font-weight": 600}, split),
                 shape("path", {class: "axis", d: `M${zero - 8} ${bottom}h16M${x0} ${bottom}H${x1}`}),
                 shape("text", {class: "soft", x: zero, y: bottom + 18, "text-anchor": "middle"}, "0"));
      const decades = Math.round(-Math.log10(low)), every = (x1 - x0) / decades < 56 ? 2 : 1;
      for (let n = 0; n <= decades; ++n) {
        const tick = 10 ** -n;
        svg.append(shape("path", {class: "grid", d: `M${at(tick)} ${top}V${bottom}`}));
        if (n % every === 0 && n < decades) svg.append(shape("text", {class: "soft", x: at(tick), y: bottom + 18, "text-anchor": "middle"}, percent(tick)));
      }
      groups.forEach((group, n) => {
        const y = top + row * (n + 0.5), finals = this.finals(group, split), colour = group.colour;
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
    document.getElementById("dots").replaceChildren(svg);
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
    const lines = this.lines("keys"), axes = this.axes(lines);
    document.getElementById("bykey").hidden = !lines.length;
    document.getElementById("keytitle").textContent = `Wrong ${this.sequences ? "sequences" : "tokens"} by ${this.here.breakdown}, ${this.split}`;
    document.getElementById("keys").replaceChildren(lines.length > mostLines ? this.multiples(axes, lines) : this.together(axes, lines));
  },
  drawCurves() {
    const lines = this.lines("curves");
    const small = lines.length > mostLines;
    document.getElementById("curvetitle").textContent = `Wrong ${this.sequences ? "sequences" : "tokens"} while training, ${this.split}`;
    document.getElementById("compared").textContent = small
      ? `More than ${mostLines} lines would be a tangle: a chart each, the best first, in grey ${[...new Set(this.compared(lines).map(line => line.group.label))].join(" and ")}.` : "";
    const axes = this.axes(lines);
    document.getElementById("curves").replaceChildren(small ? this.multiples(axes, lines) : this.together(axes, lines));
  },
  // The common range and type of the axes for all lines of a picture.
  axes(lines) {
    const lastStep = Math.max(1, ...lines.flatMap(line => line.points.map(point => point.step)));
    const shares = lines.flatMap(line => line.points.flatMap(point => point.seeds.map(seed => seed.share)));
    const high = Math.max(1e-6, ...shares), low = 10 ** Math.floor(Math.log10(Math.min(high / 10, ...shares.filter(share => share > 0))));
    const marks = this.logarithmic ? [] : ticks(high, 5), highest = this.logarithmic ? 10 ** Math.ceil(Math.log10(high)) : marks.at(-1);
    if (this.logarithmic) for (let tick = highest; tick >= low * 0.999; tick /= 10) marks.push(tick);
    return {lastStep, low, highest, marks};
  },
  // Lays out a panel with these axes in pixels and draws them.
  panel(svg, {lastStep, low, highest, marks}, {left, right, top, bottom}, steps, labelled) {
    const x = step => left + step / lastStep * (right - left);
    const y = share => this.logarithmic
      ? bottom - (share <= 0 ? 0 : 16 + Math.log10(Math.max(share, low) / low) / Math.log10(highest / low) * (bottom - top - 16))
      : bottom - share / highest * (bottom - top);
    for (const tick of marks) {
      svg.append(shape("path", {class: "grid", d: `M${left} ${y(tick)}H${right}`}));
      if (labelled) svg.append(shape("text", {class: "soft", x: left - 8, y: y(tick) + 4, "text-anchor": "end"}, percent(tick)));
    }
    if (this.logarithmic && labelled) svg.append(shape("text", {class: "soft", x: left - 8, y: bottom + 4, "text-anchor": "end"}, "0"));
    for (const tick of ticks(lastStep, steps)) {
      if (tick <= lastStep) svg.append(shape("text", {class: "soft", x: x(tick), y: bottom + 20, "text-anchor": "middle"}, withCommas(tick)));
    }
    svg.append(shape("path", {class: "axis", d: `M${left} ${top}V${bottom}H${right}`}));
    return {x, y};
  },
  way({x, y}, values, first = true) {
    return values.map(([step, share], n) => `${n || !first ? "L" : "M"}${x(step).toFixed(1)} ${y(share).toFixed(1)}`).join("");
  },
  means: points => points.map(point => [point.step, point.mean]),
  // A group's line in its band, with a point for each seed.
  curve(svg, place, {group, points}) {
    const colour = group.colour, dash = this.dash(group);
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
  together(axes, lines) {
    const width = 1200, height = 380, right = width - 20 - 7 * Math.max(4, ...lines.map(line => line.group.label.length)), bottom = height - 34;
    const svg = shape("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "error while training"});
    const place = this.panel(svg, axes, {left: 64, right, top: 12, bottom}, 8, true), names = [];
    for (const line of lines) {
      this.curve(svg, place, line);
      names.push({y: place.y(line.points.at(-1).mean), label: line.group.label, colour: line.group.colour});
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
  multiples(axes, lines) {
    const width = 1200, inRow = 5, left = 64, gap = 26, rowHeight = 170;
    const wide = (width - left - 10 - gap * (inRow - 1)) / inRow, rows = Math.ceil(lines.length / inRow);
    const svg = shape("svg", {viewBox: `0 0 ${width} ${rows * rowHeight}`, role: "img", "aria-label": "error while training, a chart for each encoding"});
    lines.forEach((line, n) => {
      const x0 = left + n % inRow * (wide + gap), y0 = Math.floor(n / inRow) * rowHeight;
      const chart = shape("g", {class: "chart"}, shape("text", {x: x0 + wide / 2, y: y0 + 16, "text-anchor": "middle", "font-weight": 600}, line.group.label));
      const place = this.panel(chart, axes, {left: x0, right: x0 + wide, top: y0 + 26, bottom: y0 + rowHeight - 32}, 2, n % inRow === 0);
      for (const other of this.compared(lines)) {
        if (other !== line) chart.append(shape("path", {class: "line muted", d: this.way(place, this.means(other.points))}));
      }
      this.curve(chart, place, line);
      svg.append(chart);
    });
    return svg;
  },

  drawTable() {
    const head = element("tr", {}, element("th", {}, "encoding"), ...this.columns.map(split => element("th", {}, split)), element("th", {}, "runs"));
    const rows = this.groups.map(group => element("tr", {}, element("td", {}, group.label), ...this.columns.map(split => {
      const finals = this.finals(group, split);
      if (!finals.length) return element("td", {}, "–");
      const shares = finals.map(final => final.share), [wrong, of] = finals.reduce(([w, o], {counts}) => [w + counts[0], o + counts[1]], [0, 0]);
      const [low, high] = wilson(wrong, of);
      const mark = group.untrained.includes(split) ? "†" : "";
      return element("td", {}, percent(meanOf(shares)) + (shares.length > 1 ? ` (${percentNumber(deviationOf(shares))})` : "") + mark,
                     element("div", {class: "counts"}, `${withCommas(wrong)} of ${withCommas(of)}: ${percentNumber(low)}–${percent(high)}`),
                     ...this.overKeys(group, split));
    }), element("td", {}, this.states(group))));
    document.getElementById("table").replaceChildren(element("table", {}, head, ...rows));
    const untrained = this.groups.some(group => this.finished(group).length && group.untrained.some(split => this.columns.includes(split)));
    document.getElementById("untrained").hidden = !untrained;
  },
  // The mean over the keys of a split's breakdown, each with equal weight.
  overKeys(group, split) {
    const means = this.finished(group).filter(run => run.keys[split])
      .map(run => meanOf(run.keys[split].map(([, ...counts]) => rate(counted(counts, this.sequences)))));
    return means.length ? [element("div", {class: "counts"}, `each ${this.here.breakdown} alike: ${percent(meanOf(means))}`)] : [];
  },
  // "3", "2 of 4, 1 diverged"
  states(group) {
    const counts = new Map();
    for (const run of group.runs) counts.set(run.state, (counts.get(run.state) ?? 0) + 1);
    const done = counts.get("finished") ?? 0;
    if (done === group.runs.length) return String(done);
    counts.delete("finished");
    return [`${done} of ${group.runs.length}`, ...[...counts].map(([state, count]) => `${count} ${state}`)].join(", ");
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
};
if (page.data.problems.length) {
  const section = document.getElementById("problems");
  section.hidden = false;
  section.append(element("h2", {}, "Not read"), ...page.data.problems.map(problem => element("p", {}, problem)));
}
drawOverview(page.data.overview, page.data.tasks.map(task => task.name), task => page.choose(task));
page.choose(0);
