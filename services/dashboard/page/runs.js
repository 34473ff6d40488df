// The lists of runs and of evaluations, sorted and searched, from which some are chosen for comparison.
import { el, list, section } from "./dom.js";
import { store } from "./store.js";
import { ago, count, duration, interval, NOTHING, number, percent } from "./words.js";

const MAX_COMPARED = 6;
const MOST_DIFFERING = 4;
const ORDER = ["running", "stalled", "crashed", "refused", "stopped", "finished"];

export const link = (page, id, text, more = {}) =>
  el("a", { href: `#/${page}?` + new URLSearchParams({ id }), ...more }, text ?? id);
export const badge = (run) => el("span", { class: "state " + run.state, title: run.why || null }, run.state);
const note = (text) => el("span.note", " " + text);
const steps = (run) =>
  run.step === null ? NOTHING : count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
function rewardCell(run) {
  if (run.reward === null && run.loss !== null) return "loss " + number(run.loss);
  return number(run.reward) + (run.reward_std === null ? "" : " ± " + number(run.reward_std));
}
const heldOut = (run) =>
  run.held_out && [percent(run.held_out.pass_rate), note(`${run.held_out.name}, ${run.held_out.mode}`)];
const rateShown = ({ held_out: found }) => found && [percent(found.pass_rate), note(interval(found))];
const best = ({ best: found }) =>
  found && [(found.what === "pass rate" ? percent : number)(found.value), note(`${found.what}, ${found.at}`)];
function stateCell(run) {
  const alarms = run.alarms.map((one) => [{ title: one.detail }, one.title]);
  const why = run.why && run.state !== "finished" && note(run.why.slice(0, 120));
  return [badge(run), why, alarms.length > 0 && list("ul.flags.alarming", alarms)];
}

// Head, what is sorted by, what is shown.
const NAME = ["run", (run) => run.id, (run) => link("run", run.id)];
const STATE = ["state and alarms", (run) => ORDER.indexOf(run.state) - run.alarms.length / 10, stateCell];
const WROTE = ["last wrote", (run) => -run.changed_at, (run) => ago(run.changed_at, store.now)];
const RUN_COLUMNS = [
  NAME,
  STATE,
  ["step", (run) => run.step, (run) => [steps(run), run.phase && note(run.phase)]],
  ["reward", (run) => run.reward, rewardCell],
  ["held-out pass rate", (run) => run.held_out?.pass_rate, heldOut],
  ["best", (run) => run.best?.value, best],
  ["time per step", (run) => run.step_time, (run) => duration(run.step_time)],
  ["model", (run) => run.model, (run) => run.model || NOTHING],
  ["grader", (run) => run.grader, (run) => [run.grader || NOTHING, note(run.stage)]],
  ["differs in", () => 0, (run) => run.differs],
  WROTE,
];
const EVALUATION_COLUMNS = [
  ["evaluation", ...NAME.slice(1)],
  STATE,
  ["pass@1", (run) => run.held_out?.pass_rate, rateShown],
  ["reward", (run) => run.held_out?.reward, (run) => number(run.held_out?.reward)],
  ["model", (run) => run.model, (run) => run.model || NOTHING],
  ["grader", (run) => run.grader, (run) => run.grader || NOTHING],
  ["tasks", (run) => run.held_out?.tasks, (run) => run.held_out?.tasks],
  WROTE,
];

// Settings that are not the same in all runs of a stage, by id of the run.
function differing(runs) {
  const texts = new Map();
  for (const stage of new Set(runs.map((run) => run.stage))) {
    const alike = runs.filter((run) => run.stage === stage && Object.keys(run.settings).length > 0);
    const names = [...new Set(alike.flatMap((run) => Object.keys(run.settings)))];
    const kept = names.filter((name) => new Set(alike.map((run) => run.settings[name])).size > 1);
    const last = (name) => name.split(".").at(-1);
    const isOnly = (name) => kept.filter((one) => last(one) === last(name)).length === 1;
    const text = (run, name) => `${isOnly(name) ? last(name) : name} ${run.settings[name]}`;
    for (const run of alike) {
      const own = kept.filter((name) => name in run.settings).slice(0, MOST_DIFFERING);
      texts.set(run.id, own.map((name) => text(run, name)).join(", "));
    }
  }
  return texts;
}

class List {
  constructor(title, columns, view) {
    this.title = title;
    this.columns = columns;
    this.view = view;
    this.rows = new Map();
    this.sorted = null;
    this.body = el("tbody");
    const button = (name, n) => el("button.sort", { type: "button", onclick: () => this.sort(n) }, name);
    this.heads = columns.map(([name], n) => el("th", { scope: "col" }, button(name, n)));
    const chosen = el("th", { scope: "col" }, "compare");
    const made = el("table.plain.runs", el("caption", title), el("thead", el("tr", chosen, this.heads)), this.body);
    this.node = el("div.scroll", { role: "region", tabindex: "0", "aria-label": title }, made);
  }

  // First upwards, then downwards, then in the order that needs no choice.
  sort(column) {
    const [last, down] = this.sorted ?? [];
    this.sorted = last !== column ? [column, false] : down ? null : [column, true];
    this.heads.forEach((head, n) => {
      const direction = this.sorted?.[0] === n ? (this.sorted[1] ? "descending" : "ascending") : null;
      if (direction) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    this.view.update();
  }

  compared(a, b) {
    if (this.sorted) {
      const [x, y] = [a, b].map(this.columns[this.sorted[0]][1]);
      const missing = (value) => value === null || value === undefined || value === "";
      if (missing(x) !== missing(y)) return missing(x) ? 1 : -1;
      const order = typeof x === "string" ? x.localeCompare(y) : x - y;
      if (order) return this.sorted[1] ? -order : order;
    }
    return ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.changed_at - a.changed_at || (a.id < b.id ? -1 : 1);
  }

  show(runs) {
    this.node.hidden = runs.length === 0;
    const nodes = runs.sort((a, b) => this.compared(a, b)).map((run) => this.row(run));
    if (nodes.length !== this.body.children.length || nodes.some((node, n) => this.body.children[n] !== node))
      this.body.replaceChildren(...nodes);
  }

  // A cell in which nothing changed is kept, and with it the focus.
  row(run) {
    const cell = (n, content) => (n === 0 ? el("th", { scope: "row" }, content) : el("td", content));
    const made = this.columns.map(([, , shown], n) => cell(n, shown(run) || NOTHING));
    if (!this.rows.has(run.id)) this.rows.set(run.id, el("tr", el("td", this.view.box(run)), made));
    const node = this.rows.get(run.id);
    made.forEach((cell, n) => {
      const old = node.children[n + 1];
      if (!old.isEqualNode(cell)) old.replaceWith(cell);
    });
    return node;
  }
}

export class RunsView {
  constructor() {
    this.title = "Runs";
    this.chosen = new Set();
    this.note = el("p.note", { role: "status" });
    this.go = el("a.button", { href: "#/", "aria-disabled": "true" }, "Compare");
    this.aside = el("input", { type: "checkbox", id: "aside", onchange: () => this.update() });
    this.search = el("input", { type: "search", id: "find", oninput: () => this.update() });
    this.lists = [
      new List("The newest figures of each run", RUN_COLUMNS, this),
      new List("Evaluations", EVALUATION_COLUMNS, this),
    ];
    const find = el("span", el("label", { for: "find" }, "Find "), this.search);
    const aside = el("span", this.aside, el("label", { for: "aside" }, " runs that were set aside, too"));
    const lists = this.lists.map((list) => list.node);
    this.node = section("runs", "Runs", el("p.bar", this.go, find, aside), this.note, lists);
    this.node.classList.add("first");
    this.listener = () => this.update();
    store.addEventListener("runs", this.listener);
    this.clock = setInterval(this.listener, 10_000);
    this.update();
  }

  close() {
    store.removeEventListener("runs", this.listener);
    clearInterval(this.clock);
  }

  box(run) {
    const onchange = ({ target }) => {
      if (target.checked && this.chosen.size >= MAX_COMPARED) target.checked = false;
      else if (target.checked) this.chosen.add(run.id);
      else this.chosen.delete(run.id);
      this.update();
    };
    return el("input", { type: "checkbox", "aria-label": "compare " + run.id, onchange });
  }

  update() {
    const all = [...store.runs.values()];
    const words = this.search.value.toLowerCase().split(/\s+/);
    const differs = differing(all.filter((run) => run.kind === "run"));
    const fits = ({ id, model, grader, stage, state, settings }) => {
      const text = [id, model, grader, stage, state, ...Object.entries(settings).flat()].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const shown = all
      .filter((run) => (!run.set_aside || this.aside.checked) && fits(run))
      .map((run) => ({ ...run, differs: differs.get(run.id) ?? "" }));
    this.lists[0].show(shown.filter((run) => run.kind === "run"));
    this.lists[1].show(shown.filter((run) => run.kind === "evaluation"));
    for (const id of this.chosen) if (!store.runs.has(id)) this.chosen.delete(id);
    const ids = [...this.chosen];
    const areAlike = new Set(ids.map((id) => store.runs.get(id).kind)).size === 1;
    const can = ids.length >= 2 && areAlike;
    this.go.setAttribute("aria-disabled", String(!can));
    this.go.href = can ? "#/compare?" + new URLSearchParams(ids.map((id) => ["id", id])) : "#/";
    this.go.textContent = can ? `Compare ${ids.length} of them` : "Choose two to six runs, or evaluations, to compare";
    const aside = all.filter((run) => run.set_aside).length;
    this.note.textContent =
      (all.length === 0
        ? `There is no run in the folder ${store.folder} yet; one appears here as soon as it writes.`
        : `${shown.length === all.length ? "" : shown.length + " of "}${all.length} in ${store.folder}`) +
      (aside ? `, ${aside} of them set aside` : "") +
      (store.leftOut ? "; there are more, which are left out" : "");
  }
}
