// What the grading API says of queue and graders.
import { el, Place, bars, table } from "./dom.js";
import { Gallery } from "./chart.js";
import { DASHES, PARTS, some } from "./figures.js";
import { store } from "./store.js";
import { ago, count, duration, NOTHING, percent } from "./words.js";

export class GradersView {
  constructor() {
    this.title = "Queue and graders";
    this.state = new Place(el("div", { role: "status" }), (shown) => shown.node());
    this.figures = new Place(el("div"), figuresTable);
    this.live = new Place(el("div"), liveTable);
    this.details = new Place(el("div"), (graders) => graders.filter(isBusy).map(details));
    this.gallery = new Gallery();
    this.body = el(
      "div",
      {},
      this.figures.node,
      this.gallery.node,
      this.details.node,
      el("section", { "aria-labelledby": "live" }, el("h2", { id: "live" }, "Live graders"), this.live.node),
    );
    this.node = el("article", { class: "first" }, el("h2", {}, "Queue and graders"), this.state.node, this.body);
    this.listener = () => this.update();
    store.addEventListener("graders", this.listener);
    store.addEventListener("runs", this.listener);
    this.update();
  }

  close() {
    store.removeEventListener("graders", this.listener);
    store.removeEventListener("runs", this.listener);
  }

  update() {
    const told = store.graders;
    const note = (key, node) => this.state.show({ node, toJSON: () => key });
    const known = told && told.graders && (told.graders.length > 0 || !told.trouble);
    this.body.hidden = !known;
    if (!store.asksApi)
      note("none", () =>
        el("p", { class: "empty" }, "No API is watched: start with gradus dashboard --api http://127.0.0.1:8000."),
      );
    else if (!told) note("wait", () => el("p", { class: "empty" }, "Asking …"));
    else if (told.trouble) note(told.trouble + told.since, () => away(told));
    else
      note("up" + told.broker_up, () =>
        el(
          "p",
          { class: "note" },
          `${told.url} answers.` + (told.broker_up === 0 ? " Its queue, Redis, does not." : ""),
        ),
      );
    if (!known) return;
    this.figures.show(told.graders);
    this.details.show(told.graders);
    this.live.show([told.live, told.list_trouble]);
    this.drawHistory(told.history);
  }

  drawHistory(history) {
    const start = history.length ? history.at(-1).time : 0;
    const x = history.map((point) => Math.round(point.time - start));
    const there = (store.graders.graders ?? []).filter((one) => isBusy(one) || one.workers > 0 || one.depth > 0);
    const names = there.map((one) => one.name);
    for (const [key, title, show] of [
      ["depth", "Queue depth", count],
      ["oldest_s", "Age of the oldest that waits", duration],
      ["p95_s", "Grading, 95th percentile", duration],
    ]) {
      const lines = names
        .map((name, n) => ({
          name,
          style: PARTS[n % 6],
          dash: DASHES[n % 6],
          y: history.map((point) => point.graders[name]?.[key] ?? null),
        }))
        .filter((line) => some(line.y));
      this.gallery.draw(title, "small", lines.length && x.length > 1 ? { x, xName: "seconds", show, lines } : null);
    }
  }
}

const isBusy = (grader) => Object.values(grader.results).some((value) => value > 0);

function away(told) {
  const notice = el(
    "section",
    { class: "notices alarm" },
    el("h2", {}, "The API is away"),
    el(
      "p",
      {},
      `${told.url} has not answered for ${ago(told.since, store.now).replace(" ago", "")}: ${told.trouble}. Runs are shown from their folders all the same.`,
    ),
  );
  return told.graders.length ? [notice, el("p", { class: "note" }, "What follows is what it said last.")] : notice;
}

function figuresTable(graders) {
  const sum = (table_) => Object.values(table_).reduce((total, value) => total + value, 0);
  const row = (one) => [
    one.name,
    count(one.workers),
    count(one.depth),
    count(one.jobs.running),
    duration(one.oldest_s),
    count(one.results.graded),
    duration(one.p50_s),
    duration(one.p95_s),
    one.results.graded ? percent((one.cached ?? 0) / one.results.graded) : NOTHING,
    count(sum(one.faults)),
    count(one.jobs.buried),
  ];
  return table(
    "Now; counts since the API started, times of what was graded lately",
    [
      "grader",
      "workers",
      "depth",
      "running",
      "oldest waits",
      "graded",
      "median time",
      "95th percentile",
      "from the cache",
      "faults",
      "buried",
    ],
    graders.map(row),
  );
}

function details(grader) {
  const total = Object.values(grader.stages).reduce((sum, value) => sum + value, 0);
  const shares = (counts) =>
    Object.entries(counts)
      .filter(([, value]) => value > 0)
      .map(([name, value]) => ({
        name,
        shares: [{ text: `${count(value)} (${percent(value / total)})`, share: value / total }],
      }));
  const faults = Object.entries(grader.faults)
    .filter(([, value]) => value > 0)
    .map(([kind, value]) => [kind, count(value)]);
  return el(
    "section",
    { "aria-label": "Grader " + grader.name },
    el("h2", {}, grader.name),
    el(
      "div",
      { class: "panels tight" },
      el("div", {}, bars("Verdicts by the furthest stage", "stage", ["verdicts"], shares(grader.stages))),
      el(
        "div",
        {},
        table(
          "Time of grading by stage",
          ["stage", "median", "95th percentile"],
          grader.latency.map((one) => [one.stage, duration(one.p50_s), duration(one.p95_s)]),
        ),
      ),
      shares(grader.flags).length ? el("div", {}, bars("Flags", "flag", ["verdicts"], shares(grader.flags))) : null,
      faults.length ? el("div", {}, table("Faults", ["kind", "count"], faults)) : null,
    ),
  );
}

function liveTable([live, trouble]) {
  if (trouble)
    return el(
      "p",
      { class: "empty" },
      `/v1/graders cannot be asked: ${trouble}. Where the API wants a key, give it as GRADUS_API_KEY.`,
    );
  if (live.length === 0) return el("p", { class: "empty" }, "No worker is alive.");
  return table(
    "Announced by their workers",
    ["grader", "revision", "toolchain", "sandbox", "workers", "slots", "rubrics"],
    live.map((one) => [
      one.name,
      one.revision,
      one.toolchain,
      one.sandbox,
      count(one.workers),
      count(one.slots),
      one.rubrics.join(", "),
    ]),
  );
}
