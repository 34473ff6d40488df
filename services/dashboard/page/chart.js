// Line and area charts as SVG, with a readout for pointer and arrow keys and a table of the same figures.
import { el, svg, table } from "./dom.js";
import { count, finite, number, onAxis } from "./words.js";

const SIDE = 1000;
const NARROW = matchMedia("(max-width: 760px)");
const TABLE_ROWS = 60;

function roundStep(rough) {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough * (1 - 1e-9));
}

// `least`: the smallest step that the values know, 1 for what is counted.
function ticks(low, high, most, least = 0) {
  const step = Math.max(least, roundStep((high - low) / most));
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => Number(((first + n) * step).toPrecision(12)));
}

function xTicks(low, high, fractions) {
  const most = NARROW.matches ? 4 : 6;
  if (fractions) return ticks(low, high, most);
  const step = Math.ceil(Math.max(1, high > low ? roundStep((high - low) / most) : 1));
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found.length ? found : [low];
}

// Where values lie between the bottom (0) and the top (1), and which of them are written beside the axis.
function scaleOf(values, { range, log, show }) {
  if (log) {
    const positive = values.filter((value) => value > 0).map(Math.log10);
    if (positive.length === 0) return null;
    const low = Math.floor(Math.min(...positive));
    const high = Math.max(Math.ceil(Math.max(...positive)), low + 1);
    const step = Math.ceil((high - low) / 5);
    const marks = ticks(low, high, high - low).filter((at) => (at - low) % step === 0);
    const share = (value) => (value > 0 ? (Math.log10(value) - low) / (high - low) : 0);
    return { share, marks: marks.map((at) => 10 ** at) };
  }
  let [low, high] = range ?? [Math.min(0, ...values), Math.max(0, ...values)];
  if (!range) {
    if (high <= low) high = low + 1;
    const step = roundStep((high - low) / 4);
    [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  }
  const share = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
  return { share, marks: ticks(low, high, 5, show === count ? 1 : 0) };
}

// 12,000,000 has no room beneath a chart.
const inShort = (value) =>
  value < 1e5 ? value.toLocaleString("en") : new Intl.NumberFormat("en", { notation: "compact" }).format(value);

// The same plan over another axis; what has no place on it is left out.
function rescaled({ axis, x, lines = [], areas = [], whiskers = [], ...plan }) {
  const at = x.map((step) => axis.at(step));
  const kept = at.map((_, n) => n).filter((n) => at[n] !== null);
  const pick = (column) => column && kept.map((n) => column[n]);
  const moved = (one) => ({ ...one, y: pick(one.y), low: pick(one.low), high: pick(one.high), more: pick(one.more) });
  return {
    ...plan,
    xName: axis.xName,
    fractions: axis.fractions,
    x: kept.map((n) => Number(at[n].toPrecision(6))),
    lines: lines.map(moved),
    areas: areas.map(moved),
    whiskers: whiskers.map((one) => ({ ...one, x: axis.at(one.x) })).filter((one) => one.x !== null),
  };
}

// Stretches without a gap, as indices.
function stretches(has, length) {
  const found = [];
  let open = null;
  for (let n = 0; n < length; n += 1) {
    if (!has(n)) open = null;
    else if (open) open.push(n);
    else found.push((open = [n]));
  }
  return found;
}

export class Chart {
  // `size`: large, medium or small. `draw` decides the rest.
  constructor(title, size) {
    this.title = title;
    this.size = size;
    this.values = [];
    this.at = null;
    this.note = el("p.note");
    this.legend = el("ul.legend");
    this.yAxis = el("div.y-axis", { "aria-hidden": "true" });
    this.xAxis = el("div.x-axis", { "aria-hidden": "true" });
    this.picture = svg("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", role: "img" });
    this.cursor = el("div.cursor");
    this.canvas = el("div.canvas", { tabindex: "0", role: "slider" }, this.picture, this.cursor);
    this.readout = el("p.readout");
    this.figures = el("details.figures", el("summary", "Table", el("span.unseen", " of " + title)));
    this.figures.addEventListener("toggle", () => this.fillTable());
    this.node = el(
      "figure",
      { class: "chart " + size },
      el("figcaption", el("h3", title), this.note, this.legend),
      el("div.plot", this.yAxis, this.canvas, this.xAxis),
      el("div.beneath", this.readout, this.figures),
    );
    this.hide();
    this.listen();
  }

  // plan: {x, xName, lines: [{name, style, y, dots, dash}], areas: [{name, style, low, high, y}], whiskers, range, log,
  // show, note, fractions, named}; every array is as long as x, null is a gap. Returns whether there was anything to draw.
  draw(given) {
    const plan = given.axis ? rescaled(given) : given;
    const { x, lines = [], areas = [], show = number } = plan;
    this.plan = plan;
    const values = [...lines.map((one) => one.y), ...areas.flatMap((one) => [one.low, one.high])].flat().filter(finite);
    const scale = values.length ? scaleOf(values, plan) : null;
    this.node.hidden = scale === null;
    if (scale === null) return false;
    const used = x.filter((_, n) => [...lines, ...areas].some((one) => finite((one.y ?? one.high)[n])));
    this.left = Math.min(...used);
    this.right = Math.max(...used);
    this.note.textContent = [plan.note, plan.log ? "logarithmic" : ""].filter(Boolean).join("; ");
    this.note.hidden = this.note.textContent === "";
    this.drawAxes(scale, onAxis.get(show) ?? show);
    this.drawShapes(scale, lines, areas);
    this.drawLegend(lines, areas);
    this.series = [...lines, ...areas].filter((one) => one.y && !one.silent);
    this.say(x, this.series, show, plan.xName ?? "step");
    this.fillTable();
    return true;
  }

  across(x) {
    return this.right > this.left ? (SIDE * (x - this.left)) / (this.right - this.left) : SIDE / 2;
  }

  drawAxes(scale, show) {
    this.marks = scale.marks.map((mark) => ({ down: 100 - 100 * scale.share(mark), text: show(mark) }));
    this.yAxis.replaceChildren(...this.marks.map((mark) => el("span", { style: { top: mark.down + "%" } }, mark.text)));
    const at = xTicks(this.left, this.right, this.plan.fractions);
    this.xAxis.replaceChildren(
      el("span.x-name", this.plan.xName ?? "step"),
      ...at.map((mark) => el("span", { style: { left: this.across(mark) / 10 + "%" } }, inShort(mark))),
    );
  }

  drawShapes(scale, lines, areas) {
    const { x } = this.plan;
    const point = (n, value) => `${this.across(x[n]).toFixed(1)} ${(SIDE * (1 - scale.share(value))).toFixed(1)}`;
    const shapes = this.marks.map((mark) => svg("path", { class: "grid", d: `M0 ${10 * mark.down}H1000` }));
    for (const area of areas) {
      const parts = stretches((n) => finite(area.low[n]) && finite(area.high[n]), x.length).map((run) => {
        const [top, bottom] = [run.map((n) => point(n, area.high[n])), run.map((n) => point(n, area.low[n])).reverse()];
        return run.length > 1 ? `M${[...top, ...bottom].join("L")}Z` : this.bar(top[0], bottom[0]);
      });
      shapes.push(svg("path", { class: "area " + area.style, d: parts.join("") }));
    }
    for (const mark of this.plan.whiskers ?? []) {
      const left = this.across(mark.x).toFixed(1);
      const [low, high] = [mark.low, mark.high].map((value) => (SIDE * (1 - scale.share(value))).toFixed(1));
      shapes.push(svg("path", { class: "line whisker", d: `M${left} ${low}V${high}` }));
    }
    for (const line of lines) {
      const runs = stretches((n) => finite(line.y[n]) && (!this.plan.log || line.y[n] > 0), x.length);
      // What is measured now and then is a line of few points, not of gaps.
      const path = (line.dots ? [runs.flat()] : runs)
        .filter((run) => run.length > 1)
        .map((run) => "M" + run.map((n) => point(n, line.y[n])).join("L"));
      const lone = line.dots ? runs.flat() : runs.filter((run) => run.length === 1).flat();
      const dots = lone.map((n) => `M${point(n, line.y[n])}h0`).join("");
      shapes.push(svg("path", { class: "line " + line.style, d: path.join(""), "stroke-dasharray": line.dash }));
      shapes.push(svg("path", { class: "line dot " + line.style, d: dots }));
    }
    this.picture.replaceChildren(...shapes);
  }

  bar(top, bottom) {
    const [[x, high], [, low]] = [top.split(" ").map(Number), bottom.split(" ").map(Number)];
    const [left, right] = [Math.max(0, x - 15), Math.min(SIDE, x + 15)];
    return `M${left} ${high}L${right} ${high}L${right} ${low}L${left} ${low}Z`;
  }

  drawLegend(lines, areas) {
    const all = [...lines.map((one) => ["line", one]), ...areas.map((one) => ["area", one])];
    const keys = all.filter(([, one]) => one.name);
    const style = (shape, one) => `key ${shape} ${one.style}${one.dash ? " dashed" : ""}`;
    const key = ([shape, one]) => el("li", el("span", { class: style(shape, one), "aria-hidden": "true" }), one.name);
    this.legend.replaceChildren(...(keys.length > 1 || areas.length || this.plan.named ? keys.map(key) : []));
  }

  // What each x says in words, and what the whole picture does.
  say(x, series, show, xName) {
    const text = (one, n) => `${one.name ?? this.title.toLowerCase()} ${show(one.y[n])}`;
    this.values = [];
    x.forEach((at, n) => {
      const parts = series.filter((one) => finite(one.y[n])).map((one) => text(one, n) + (one.more?.[n] ?? ""));
      if (parts.length)
        this.values.push([this.across(at) / 10, `${xName} ${at.toLocaleString("en")}: ${parts.join(", ")}`]);
    });
    const ends = this.values.length ? [this.values[0][1], this.values.at(-1)[1]] : [];
    const by = this.title.endsWith(`by ${xName}`) ? "" : ` by ${xName}`;
    const label = `${this.title}${by}. ${[...new Set(ends)].join(". ")}.`;
    this.picture.setAttribute("aria-label", label);
    this.canvas.setAttribute("aria-label", label + " Arrow keys read values.");
    this.canvas.setAttribute("aria-valuemin", 1);
    this.canvas.setAttribute("aria-valuemax", this.values.length);
    if (this.at === null) this.hide();
    else this.show(this.at);
  }

  fillTable() {
    if (!this.figures.open || !this.plan) return;
    const { x, show = number, xName = "step" } = this.plan;
    const every = Math.ceil(x.length / TABLE_ROWS);
    const chosen = x.map((_, n) => n).filter((n) => (x.length - 1 - n) % every === 0);
    const rows = chosen.map((n) => [x[n].toLocaleString("en"), ...this.series.map((one) => show(one.y[n]))]);
    const caption = this.title + (every > 1 ? `, every ${every} points` : "");
    const made = table(caption, [xName, ...this.series.map((one) => one.name ?? "value")], rows);
    const old = this.figures.querySelector(".scroll");
    if (old) old.firstChild.replaceWith(made.firstChild);
    else this.figures.append(made);
  }

  show(index) {
    if (this.values.length === 0) return;
    this.at = Math.min(this.values.length - 1, Math.max(0, index));
    const [left, text] = this.values[this.at];
    this.cursor.hidden = false;
    this.cursor.style.setProperty("left", left + "%");
    this.readout.textContent = text;
    this.canvas.setAttribute("aria-valuenow", this.at + 1);
    this.canvas.setAttribute("aria-valuetext", text);
  }

  hide() {
    this.at = null;
    this.cursor.hidden = true;
    this.readout.textContent = "";
    this.canvas.setAttribute("aria-valuenow", Math.max(1, this.values.length));
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const wanted = (100 * (event.clientX - box.left)) / box.width;
      let best = 0;
      this.values.forEach(([left], n) => {
        if (Math.abs(left - wanted) < Math.abs(this.values[best][0] - wanted)) best = n;
      });
      this.show(best);
    });
    this.canvas.addEventListener("pointerleave", () => this.hide());
    this.canvas.addEventListener("focus", () => this.show(this.values.length - 1));
    this.canvas.addEventListener("blur", () => this.hide());
    this.canvas.addEventListener("keydown", (event) => {
      const last = this.values.length - 1;
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      this.show((this.at ?? last) + by);
    });
  }
}

// Charts by title in one place: made when there is something to draw, kept and drawn anew afterwards.
export class Gallery {
  constructor() {
    this.node = el("div.charts");
    this.charts = new Map();
  }
  draw(title, size, plan) {
    const found = this.charts.get(title) ?? new Chart(title, size);
    const drawn = found.draw(plan);
    if (drawn && !this.charts.has(title)) {
      this.charts.set(title, found);
      this.node.append(found.node);
    }
    this.fillRow();
    return drawn;
  }
  // Two of medium size make a row: beside one that is alone comes the first of the small ones.
  fillRow() {
    const shown = [...this.charts.values()].filter((one) => !one.node.hidden);
    const alone = shown.filter((one) => one.size === "medium").length % 2 === 1;
    const small = shown.filter((one) => one.size === "small");
    small.forEach((one, n) => (one.node.className = `chart ${alone && n === 0 ? "medium" : "small"}`));
  }
}

// [name, column, style] on top of each other, without those that hold nothing; what takes away hangs below.
export function stacked(parts) {
  const kept = parts.filter(([, y]) => (y ?? []).some((value) => value));
  const length = Math.max(0, ...kept.map(([, y]) => y.length));
  const [above, below] = [new Array(length).fill(0), new Array(length).fill(0)];
  return kept.map(([name, y, style]) => {
    const [low, high] = [[], []];
    for (let n = 0; n < length; n += 1) {
      const base = (y[n] ?? 0) < 0 ? below : above;
      const from = base[n];
      base[n] += y[n] ?? 0;
      const any = kept.some(([, column]) => finite(column[n]));
      low.push(any ? Math.min(from, base[n]) : null);
      high.push(any ? Math.max(from, base[n]) : null);
    }
    return { name, style, low, high, y };
  });
}
