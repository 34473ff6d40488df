// The lists of runs and of evaluations, sorted and searched, from which some are chosen for comparison.

const MAX_COMPARED = 6;
const ORDER = ["running", "stalled", "crashed", "refused", "stopped", "finished"];

const link = (page, id, text, more = {}) =>
  el("a", { href: `#/${page}?` + new URLSearchParams({ id }), ...more }, text ?? id);
const badge = (run) => el("span", { class: "state " + run.state, title: run.why || null }, run.state);
const note = (text) => el("span.note", " " + text);
const steps = (run) =>
  run.step === null ? NOTHING : count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
function rewardCell(run) {
  if (run.reward === null && run.loss !== null) return "loss " + number(run.loss);
  return number(run.reward) + (run.reward_std === null ? "" : " ± " + number(run.reward_std));
}
// The figure that the grader's tasks put first, of the newest measurement.
function firstOf({ headline, held_out: found }) {
  if (!found) return null;
  const first = FIRST_FIGURES[headline];
  const [value, low, high] = [first.value, first.low, first.high].map((name) => found[name]);
  return { first, value, low, high, found };
}
function heldOut(run) {
  const shown = firstOf(run);
  if (!shown) return null;
  const { first, value, found } = shown;
  return [first.text(value), note(`${first.name}, ${found.name}, ${found.mode}`)];
}
function rateShown(run) {
  const shown = firstOf(run);
  if (!shown) return null;
  const { first, value, low, high } = shown;
  return [first.text(value), note(finite(low) ? `${first.name}, ${first.interval({ low, high })}` : first.name)];
}
const stateCell = (run) => [badge(run), run.why && run.state !== "finished" && note(run.why.slice(0, 120))];

// Head, what is sorted by, what is shown.
const NAME = ["run", (run) => run.id, (run) => link("run", run.id)];
const STATE = ["state", (run) => ORDER.indexOf(run.state), stateCell];
const MODEL = ["model", (run) => run.model, (run) => run.model || NOTHING];
const WROTE = ["last wrote", (run) => -run.changed_at, (run) => ago(run.changed_at, store.now)];
const RUN_COLUMNS = [
  NAME,
  STATE,
  ["step", (run) => run.step, (run) => [steps(run), run.phase && note(run.phase)]],
  ["reward", (run) => run.reward, rewardCell],
  ["held out", (run) => firstOf(run)?.value, heldOut],
  ["time per step", (run) => run.step_time, (run) => duration(run.step_time)],
  MODEL,
  ["grader", (run) => run.grader, (run) => [run.grader || NOTHING, note(run.stage)]],
  WROTE,
];
const EVALUATION_COLUMNS = [
  ["evaluation", ...NAME.slice(1)],
  STATE,
  ["result", (run) => firstOf(run)?.value, rateShown],
  ["reward", (run) => run.held_out?.reward, (run) => number(run.held_out?.reward)],
  MODEL,
  ["grader", (run) => run.grader, (run) => run.grader || NOTHING],
  ["tasks", (run) => run.held_out?.tasks, (run) => run.held_out?.tasks],
  WROTE,
];

class List {
  constructor(title, columns, view) {
    this.columns = columns;
    this.view = view;
    this.rows = new Map();
    this.sorted = null;
    this.body = el("tbody");
    const button = (name, n) => el("button.sort", { type: "button", onclick: () => this.sort(n) }, name);
    this.heads = columns.map(([name], n) => el("th", { scope: "col" }, button(name, n)));
    const chosen = el("th", { scope: "col" }, "compare");
    const made = el("table.plain.runs", el("caption", title), el("thead", el("tr", chosen, this.heads)), this.body);
    this.node = markOverflow(el("div.scroll", { role: "region", tabindex: "0", "aria-label": title }, made));
  }

  // First upwards, then downwards.
  sort(column) {
    const isDown = this.sorted?.column === column && !this.sorted.isDown;
    this.sorted = { column, isDown };
    for (const head of this.heads) head.removeAttribute("aria-sort");
    this.heads[column].setAttribute("aria-sort", isDown ? "descending" : "ascending");
    this.view.update();
  }

  compared(a, b) {
    if (this.sorted) {
      const [x, y] = [a, b].map(this.columns[this.sorted.column][1]);
      const isMissing = (value) => value === null || value === undefined || value === "";
      if (isMissing(x) !== isMissing(y)) return isMissing(x) ? 1 : -1;
      const order = typeof x === "string" ? x.localeCompare(y) : x - y;
      if (order) return this.sorted.isDown ? -order : order;
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

class RunsView extends View {
  constructor() {
    super("Runs", []);
    this.chosen = new Set();
    this.note = el("p.note", { role: "status" });
    this.go = el("a.button", { href: "#/", "aria-disabled": "true" }, "Compare");
    this.search = el("input", { type: "search", id: "find", oninput: () => this.update() });
    this.lists = [
      new List("The newest figures of each run", RUN_COLUMNS, this),
      new List("Evaluations", EVALUATION_COLUMNS, this),
    ];
    const find = el("span", el("label", { for: "find" }, "Find "), this.search);
    const lists = this.lists.map((list) => list.node);
    this.node = section("runs", "Runs", el("p.bar", this.go, find), this.note, lists);
    this.node.classList.add("first");
    this.update();
  }

  // Also when no run changed: the time since each one wrote did.
  async changed() {
    this.update();
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
    const fits = ({ id, model, grader, stage, state }) => {
      const text = [id, model, grader, stage, state].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const shown = all.filter(fits);
    this.lists[0].show(shown.filter((run) => run.kind === "run"));
    this.lists[1].show(shown.filter((run) => run.kind === "evaluation"));
    for (const id of this.chosen) if (!store.runs.has(id)) this.chosen.delete(id);
    const ids = [...this.chosen];
    const areAlike = new Set(ids.map((id) => store.runs.get(id).kind)).size === 1;
    const can = ids.length >= 2 && areAlike;
    this.go.setAttribute("aria-disabled", String(!can));
    this.go.href = can ? "#/compare?" + new URLSearchParams(ids.map((id) => ["id", id])) : "#/";
    this.go.textContent = can ? `Compare ${ids.length} of them` : "Choose two to six runs, or evaluations, to compare";
    const some = shown.length === all.length ? "" : shown.length + " of ";
    this.note.textContent =
      (all.length === 0
        ? `There is no run in the folder ${store.folder} yet; one appears here as soon as it writes.`
        : `${some}${all.length} in ${store.folder}`) + (store.leftOut ? "; there are more, which are left out" : "");
  }
}
