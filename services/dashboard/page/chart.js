// The charts: uPlot, with a readout for pointer and arrow keys and a table of the same values.

const TABLE_ROWS = 60;
const HEIGHTS = { large: 300, small: 190 };
const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
const FONT = "12px system-ui, sans-serif";

// A canvas takes no variables of style sheets: their values are read when it is drawn.
const colour = (name, opacity = 1) => () => {
  const value = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  return value + Math.round(255 * opacity).toString(16).padStart(2, "0");
};

// Parts on top of each other, drawn from the outermost inwards; what takes away hangs below.
function stacked(lines) {
  const length = Math.max(0, ...lines.map((line) => line.y.length));
  const above = new Array(length).fill(0);
  const below = new Array(length).fill(0);
  const piles = lines.map((line) =>
    above.map((_, n) => {
      const value = line.y[n] ?? 0;
      const base = value < 0 ? below : above;
      base[n] += value;
      return lines.some((one) => finite(one.y[n])) ? base[n] : null;
    }),
  );
  return piles;
}

// What is measured now and then has dots, and so has a value without neighbours, which no line shows.
function dots({ y, measured }) {
  const known = y.map((_, n) => n).filter((n) => finite(y[n]));
  return measured ? known : known.filter((n) => !finite(y[n - 1]) && !finite(y[n + 1]));
}

function seriesOf({ lines, isStacked }) {
  const tops = isStacked ? stacked(lines) : null;
  const series = lines.map((line, n) => ({
    spanGaps: line.isJoined || line.measured || false,
    points: { size: 6, show: false, filter: () => dots(line), fill: colour(line.colour) },
    width: line.bold ? 2.75 : 1.75,
    stroke: colour(line.colour, line.faint ? 0.6 : 1),
    dash: line.dash,
    fill: isStacked ? colour(line.colour) : undefined,
    values: tops ? tops[n] : line.y,
  }));
  if (isStacked) return { series: series.reverse(), bands: [] };
  const bands = [];
  for (const line of lines.filter((one) => one.low)) {
    const edge = { stroke: null, width: 0, points: { show: false }, spanGaps: line.measured ?? false };
    bands.push({ series: [series.length + 1, series.length + 2], fill: colour(line.colour, 0.15) });
    series.push({ ...edge, values: line.high }, { ...edge, values: line.low });
  }
  return { series, bands };
}

// The places of a plan's arrays at which there is something to draw.
const usable = (value, log) => finite(value) && (!log || value > 0);
const placesIn = ({ x, lines, log }) =>
  x.map((_, n) => n).filter((n) => lines.some((line) => usable(line.y[n], log)));

class Chart {
  constructor(title, size) {
    this.title = title;
    this.size = size;
    this.note = el("p.note");
    this.legend = el("ul.legend");
    this.canvas = el("div.canvas", { tabindex: "0", role: "slider", "aria-valuemin": 0 });
    this.readout = el("p.readout");
    this.figures = el("details.figures", el("summary", "Table", el("span.unseen", " of " + title)));
    this.figures.addEventListener("toggle", () => this.fillTable());
    const head = el("figcaption", el("h3", title), this.note, this.legend);
    const beneath = el("div.beneath", this.readout, this.figures);
    this.node = el("figure", { class: "chart " + size }, head, this.canvas, beneath);
    this.canvas.addEventListener("focus", () => this.moveTo(this.known.length - 1));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const observer = new ResizeObserver(() => this.plot?.setSize(this.box()));
    observer.observe(this.canvas);
    this.canvas.chart = this;
  }

  box() {
    return { width: this.canvas.clientWidth || 300, height: HEIGHTS[this.size] };
  }

  // plan: {x, xName, lines: [{name, colour, y, low, high, more, dash, bold, faint, measured, silent}], isStacked, range,
  // log, show, note, isNamed}; every array is as long as x, null is a gap.
  draw(plan) {
    const { lines, log, show = number, xName = "step" } = plan;
    this.plan = { ...plan, show, xName };
    this.lines = lines.filter((line) => !line.silent);
    this.known = placesIn(plan);
    this.node.hidden = this.known.length === 0;
    if (this.node.hidden) return;
    this.note.textContent = [plan.note, log ? "logarithmic" : ""].filter(Boolean).join("; ");
    const key = ({ colour: name, name: text, dash }) =>
      el("li", el("span", { class: dash ? "key dashed" : "key", style: { "--part": `var(--${name})` } }), text);
    const named = lines.filter((line) => line.name);
    this.legend.replaceChildren(...(named.length > 1 || plan.isNamed ? named.map(key) : []));
    const ends = [this.known[0], this.known.at(-1)].map((n) => this.textAt(n));
    const label = `${this.title} by ${xName}. ${[...new Set(ends)].join(". ")}. Arrow keys read values.`;
    this.canvas.setAttribute("aria-label", label);
    this.canvas.setAttribute("aria-valuemax", this.known.length - 1);
    this.plotAnew();
    this.fillTable();
  }

  plotAnew() {
    const { x, xName, range, log, show, isStacked } = this.plan;
    const { series, bands } = seriesOf(this.plan);
    const data = [x, ...series.map((one) => one.values.map((value) => (usable(value, log) ? value : null)))];
    const axis = { stroke: colour("soft"), font: FONT, ticks: { show: false } };
    const lines = { stroke: colour("grid"), width: 1 };
    const marks = (_, values) => values.map((value) => (value === null ? "" : (onAxis.get(show) ?? show)(value)));
    const widest = (_, low, high) => (low === high ? [low - 0.5, high + 0.5] : [low, high]);
    const fromZero = (_, low, high) => uPlot.rangeNum(Math.min(0, low), Math.max(0, high) || 1, 0.05, true);
    const options = {
      ...this.box(),
      series: [{}, ...series.map(({ values, ...one }) => ({ ...one, label: "" }))],
      bands,
      scales: {
        x: { time: false, range: widest },
        y: { distr: log ? 3 : 1, range: range ?? (log ? undefined : fromZero) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 26, ...(xName === "step" && { incrs: WHOLE }), values: (_, values) => values.map(inShort) },
        { ...axis, grid: lines, size: 56, values: marks },
      ],
      legend: { show: false },
      cursor: { y: false, drag: { x: false }, points: { show: !isStacked } },
      hooks: { setCursor: [(plot) => this.say(plot.cursor.idx)] },
    };
    this.plot?.destroy();
    this.plot = null;
    this.plot = new uPlot(options, data, this.canvas);
    if (document.activeElement === this.canvas) this.moveTo(this.at);
    else this.say(null);
  }

  textAt(n) {
    const { x, show, xName } = this.plan;
    const given = this.lines.filter((line) => finite(line.y[n]));
    const texts = given.map((line) => `${line.name ?? this.title.toLowerCase()} ${show(line.y[n])}${line.more?.[n] ?? ""}`);
    return `${xName} ${x[n].toLocaleString("en")}: ${texts.join(", ")}`;
  }

  // `n` is a place in the plan's arrays; null is none.
  say(n) {
    const isKnown = this.known.includes(n);
    this.at = isKnown ? this.known.indexOf(n) : null;
    this.readout.textContent = isKnown ? this.textAt(n) : "";
    this.canvas.setAttribute("aria-valuenow", this.at ?? this.known.length - 1);
    this.canvas.setAttribute("aria-valuetext", this.textAt(isKnown ? n : this.known.at(-1)));
  }

  moveTo(at) {
    const n = this.known[at];
    this.plot.setCursor({ left: n === undefined ? -10 : this.plot.valToPos(this.plan.x[n], "x"), top: 0 });
  }

  key(event) {
    const last = this.known.length - 1;
    const now = this.at ?? last;
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: last };
    if (!(event.key in to)) return;
    event.preventDefault();
    this.moveTo(Math.min(last, Math.max(0, to[event.key])));
  }

  fillTable() {
    if (!this.figures.open) return;
    const { x, show, xName } = this.plan;
    const every = Math.ceil(this.known.length / TABLE_ROWS);
    const chosen = this.known.filter((_, n) => (this.known.length - 1 - n) % every === 0);
    const rows = chosen.map((n) => [x[n].toLocaleString("en"), ...this.lines.map((line) => show(line.y[n]))]);
    const caption = this.title + (every > 1 ? `, every ${every} points` : "");
    const made = table(caption, [xName, ...this.lines.map((line) => line.name ?? "value")], rows);
    this.figures.querySelector(".scroll")?.remove();
    this.figures.append(made);
  }
}

// Another colour scheme, and paper, have other colours.
for (const media of ["(prefers-color-scheme: dark)", "print"])
  matchMedia(media).addEventListener("change", () => {
    for (const { chart } of document.querySelectorAll(".canvas")) chart.plot?.redraw(false);
  });

// Charts by title in one place: made when there is something to draw, kept and drawn anew afterwards.
class Gallery {
  constructor() {
    this.node = el("div.charts");
    this.charts = new Map();
  }

  draw(title, size, plan) {
    if (!this.charts.has(title)) {
      if (placesIn(plan).length === 0) return;
      this.charts.set(title, new Chart(title, size));
      this.node.append(this.charts.get(title).node);
    }
    this.charts.get(title).draw(plan);
  }

  get isEmpty() {
    return [...this.charts.values()].every((one) => one.node.hidden);
  }
}
