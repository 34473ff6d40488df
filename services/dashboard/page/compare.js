// Chosen runs in the same charts, chosen evaluations beside each other, and what changed between two evaluations.

class CompareView extends View {
  constructor(parameters) {
    const ids = [...new Set(parameters.getAll("id"))].slice(0, MAX_COMPARED);
    super("Comparison", ids);
    this.gallery = new Gallery();
    this.runs = new Map();
    this.trouble = new Place(el("p.empty", { role: "status" }), (text) => text);
    this.settings = new Place(el("div"), differences);
    this.differ = section("differ", "Settings that differ", this.settings.node);
    this.changes = new Place(el("div"), changes);
    this.keys = ids.map((_, n) => el("span", { class: "key " + PARTS[n], "aria-hidden": "true" }));
    const legend = ids.map((id, n) => [this.keys[n], link("run", id)]);
    this.node = el(
      "article.first",
      el("p.kicker", el("a", { href: "#/" }, "Runs"), " / "),
      el("h2", "Comparison"),
      list("ul.legend.compared", legend),
      [this.trouble, this.changes, this.gallery].map((one) => one.node),
      this.differ,
    );
    this.read();
  }

  async read() {
    const missing = [];
    for (const id of this.ids) {
      try {
        if (this.runs.get(id)?.version !== (store.runs.get(id)?.version ?? -1))
          this.runs.set(id, await ask("/api/run", { id }));
      } catch (error) {
        this.runs.delete(id);
        missing.push(`${id}: ${error.message}`);
      }
    }
    const measured = this.ids.map((id) => this.runs.get(id)).filter((run) => run && isMeasured(run));
    const versions = measured.map((run) => run.version).join();
    if (this.ids.length === 2 && measured.length === 2 && versions !== this.compared) {
      const [before, after] = this.ids;
      try {
        const found = await ask("/api/changes", { before, after });
        this.compared = versions;
        this.changes.show(found);
        // What was compared, and how it differs, is then a part of what changed, which has colours of its own.
        for (const one of [this.differ, ...this.keys]) one.hidden = found.comparisons.length > 0;
      } catch (error) {
        missing.push(error.message);
      }
    }
    this.trouble.show(missing.join("; "));
    this.draw();
  }

  draw() {
    const runs = this.ids.filter((id) => this.runs.has(id)).map((id) => this.runs.get(id));
    const evaluated = runs.filter(isMeasured);
    const cards = (run) => evaluationCard(run.measured[0]).map(([name, value]) => [name, String(value || NOTHING)]);
    this.settings.show(runs.map((run) => [run.id, evaluated.includes(run) ? cards(run) : run.settings]));
    for (const [title, [[key]], how] of [REWARD, ...CHARTS, HELD_OUT]) {
      const drawn = runs.filter((run) => isDrawn(key, run.metrics.values));
      const x = [...new Set(drawn.flatMap((run) => run.metrics.steps))].sort((a, b) => a - b);
      const lines = drawn.map((run) => {
        const n = this.ids.indexOf(run.id);
        const at = new Map(run.metrics.steps.map((step, k) => [step, run.metrics.values[key][k]]));
        // The steps of other runs between two of this one's own are no gap.
        return { name: run.id, colour: PARTS[n], dash: DASHES[n], isJoined: true, y: x.map((step) => at.get(step) ?? null) };
      });
      this.gallery.draw(title, title === "Reward" ? "large" : "small", { x, ...how, isNamed: true, lines });
    }
  }
}

const isMeasured = (run) => run.kind === "evaluation" && run.measured.length > 0;
const changes = (found) =>
  [
    ...comparisonSections(found.measured, found.comparisons),
    samplesSection(found.groups),
    faultsSection(found.faults),
    reading(),
  ].filter(Boolean);

function differences(runs) {
  const tables = runs.map(([, settings]) => new Map(settings));
  const names = [...new Set(tables.flatMap((one) => [...one.keys()]))];
  const valueIn = (settings, name) => (settings.get(name) === "null" ? NOTHING : (settings.get(name) ?? NOTHING));
  const all = names.map((name) => [name, ...tables.map((one) => valueIn(one, name))]);
  const rows = all.filter(([, ...values]) => new Set(values).size > 1);
  if (rows.length === 0) return el("p.empty", "None.");
  return table("Settings that are not the same in all of them", ["setting", ...runs.map(([id]) => id)], rows);
}

// A comparison of two evaluations as a file, which gradus compare made.
class ChangesView extends View {
  constructor(parameters) {
    super(parameters.get("id") ?? "Comparison", []);
    this.node = el("article");
    this.read();
  }

  async read() {
    const found = await ask("/api/changes");
    this.node.replaceChildren(el("p.kicker", this.title), ...changes(found));
  }
}
