// The list of runs, from which some are chosen for comparison.
import { el, Place } from "./dom.js";
import { store } from "./store.js";
import { ago, count, number, percent } from "./words.js";

const MAX_COMPARED = 6;
const HEAD = ["compare", "run", "state", "step", "reward", "held-out pass rate", "last wrote", "alarms"];
const ORDER = ["running", "stalled", "stopped", "finished"];

export const link = (page, id, text, more = {}) =>
  el("a", { href: `#/${page}?` + new URLSearchParams({ id }), ...more }, text ?? id);
export const badge = (run) => el("span", { class: "state " + run.state, title: run.why || null }, run.state);

class Row {
  constructor(id, view) {
    this.box = el("input", {
      type: "checkbox",
      "aria-label": "compare " + id,
      onchange: (event) => view.choose(id, event.target),
    });
    this.cells = HEAD.slice(1).map((_, n) => el(n === 0 ? "th" : "td", n === 0 ? { scope: "row" } : {}));
    this.places = this.cells.map((cell) => new Place(cell, (value) => value.node()));
    this.node = el("tr", {}, el("td", {}, this.box), this.cells);
    this.id = id;
  }
  show(run) {
    const steps = run.step === null ? "–" : count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
    const reward =
      number(run.reward) + (run.reward_std === null || run.reward === null ? "" : " ± " + number(run.reward_std));
    const shown = [
      [[run.id], () => link("run", run.id)],
      [
        [run.state, run.why, run.alarms.length],
        () =>
          el(
            "span",
            {},
            badge(run),
            run.alarms.length
              ? el("span", { class: "away narrow", "aria-hidden": "true" }, " ⚠ " + run.alarms.length)
              : null,
          ),
      ],
      [
        [steps, run.phase],
        () => el("span", {}, steps, run.phase ? el("span", { class: "note" }, " " + run.phase) : null),
      ],
      [
        [reward, run.loss],
        () => el("span", {}, run.reward === null && run.loss !== null ? "loss " + number(run.loss) : reward),
      ],
      [
        [run.held_out],
        () =>
          el(
            "span",
            {},
            run.held_out
              ? [
                  percent(run.held_out.pass_rate),
                  el("span", { class: "note" }, ` ${run.held_out.name}, ${run.held_out.mode}`),
                ]
              : "–",
          ),
      ],
      [[ago(run.changed_at, store.now)], () => el("span", {}, ago(run.changed_at, store.now))],
      [run.alarms.map((alarm) => alarm.title), () => alarmsIn(run)],
    ];
    shown.forEach(([key, node], n) => this.places[n].show({ key, node, toJSON: () => key }));
  }
}

function alarmsIn(run) {
  if (run.alarms.length === 0) return el("span", { class: "empty" }, "none");
  return el(
    "ul",
    { class: "flags alarming" },
    run.alarms.map((alarm) => el("li", { title: alarm.detail }, alarm.title)),
  );
}

export class RunsView {
  constructor() {
    this.title = "Runs";
    this.rows = new Map();
    this.chosen = new Set();
    this.body = el("tbody");
    this.note = new Place(el("p", { class: "note" }), (text) => text);
    this.go = el("a", { class: "button", href: "#/", "aria-disabled": "true" }, "Compare");
    this.aside = el("input", { type: "checkbox", id: "aside", onchange: () => this.update() });
    this.caption = el("caption", {}, "The newest figures of each run");
    this.node = el(
      "section",
      { class: "first", "aria-labelledby": "runs" },
      el("h2", { id: "runs" }, "Runs"),
      el(
        "p",
        { class: "bar" },
        this.go,
        el("span", {}, this.aside, el("label", { for: "aside" }, " runs that were set aside, too")),
        this.note.node,
      ),
      el(
        "div",
        { class: "scroll", role: "region", tabindex: "0", "aria-label": "Runs" },
        el(
          "table",
          { class: "plain runs" },
          this.caption,
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              HEAD.map((name) => el("th", { scope: "col" }, name)),
            ),
          ),
          this.body,
        ),
      ),
    );
    this.listener = () => this.update();
    store.addEventListener("runs", this.listener);
    this.clock = setInterval(this.listener, 10_000);
    this.update();
  }

  close() {
    store.removeEventListener("runs", this.listener);
    clearInterval(this.clock);
  }

  choose(id, box) {
    if (box.checked && this.chosen.size >= MAX_COMPARED) box.checked = false;
    else if (box.checked) this.chosen.add(id);
    else this.chosen.delete(id);
    this.update();
  }

  update() {
    const all = [...store.runs.values()];
    const shown = all.filter((run) => !run.set_aside || this.aside.checked);
    shown.sort(
      (a, b) =>
        ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.changed_at - a.changed_at || (a.id < b.id ? -1 : 1),
    );
    for (const run of shown) {
      if (!this.rows.has(run.id)) this.rows.set(run.id, new Row(run.id, this));
      this.rows.get(run.id).show(run);
    }
    const nodes = shown.map((run) => this.rows.get(run.id).node);
    if (nodes.length !== this.body.children.length || nodes.some((node, n) => this.body.children[n] !== node))
      this.body.replaceChildren(...nodes);
    for (const id of this.chosen) if (!store.runs.has(id)) this.chosen.delete(id);
    const can = this.chosen.size >= 2;
    this.go.setAttribute("aria-disabled", String(!can));
    this.go.href = can ? "#/compare?" + new URLSearchParams([...this.chosen].map((id) => ["id", id])) : "#/";
    this.go.textContent = can ? `Compare ${this.chosen.size} runs` : "Choose two to six runs to compare";
    const aside = all.length - all.filter((run) => !run.set_aside).length;
    this.note.show(
      (all.length === 0
        ? `There is no run in the folder ${store.folder} yet; one appears here as soon as it writes.`
        : `${all.length} in ${store.folder}`) +
        (aside ? `, ${aside} of them set aside` : "") +
        (store.leftOut ? "; there are more, which are left out" : ""),
    );
  }
}
