// The completions of one prompt in one step, side by side.

class GroupsView extends View {
  constructor(parameters) {
    const id = parameters.get("id") ?? "";
    super("Completions of " + id, [id]);
    this.id = id;
    this.number = parameters.has("n") ? Number(parameters.get("n")) : null;
    this.head = new Place(el("div.first"), (run) => (run.state ? heading(run, "completions") : el("h2", run.id)));
    this.trouble = new Place(el("p.empty", { role: "status" }), (text) => text);
    this.bar = this.makeBar();
    this.about = new Place(el("section.about", { "aria-labelledby": "prompt" }), promptOf);
    const card = (sample, n) => completion(sample, String(n + 1), { kind: "card" });
    this.cards = new Place(el("div.sides.group-cards"), (samples) => samples.map(card));
    this.node = el("article", this.head.node, this.bar, this.trouble.node, this.about.node, this.cards.node);
    this.read();
  }

  makeBar() {
    const button = (text, label, action) =>
      el("button", { type: "button", "aria-label": label, onclick: action }, text);
    this.first = button("⇤", "First group", () => this.go(this.shown.range[0]));
    this.older = button("← older", "Group before", () => this.go(this.shown.number - 1));
    this.newer = button("newer →", "Group after", () => this.go(this.shown.number + 1));
    this.latest = button("latest", "Latest group, and follow", () => this.go(null));
    this.step = el("input", { type: "number", min: "0", inputmode: "numeric", "aria-label": "Go to step" });
    const submit = el("button", { type: "submit" }, "Go to step");
    const jump = el("form.jump", { onsubmit: (event) => this.jump(event) }, this.step, submit);
    this.place = el("span.note", { role: "status" });
    const steps = [this.first, this.older, this.newer, this.latest];
    return el("div.bar", { role: "toolbar", "aria-label": "Groups" }, steps, jump, this.place);
  }

  go(group) {
    this.number = group;
    this.read();
  }

  async jump(event) {
    event.preventDefault();
    if (this.step.value === "") return;
    try {
      const found = await ask("/api/group", { id: this.id, step: this.step.value });
      this.number = found.number;
      this.show(found);
    } catch (error) {
      this.trouble.show(error.message);
    }
  }

  async read() {
    const run = store.runs.get(this.id);
    this.head.show({ id: this.id, state: run?.state, why: run?.why });
    const asked = this.number;
    try {
      const group = await ask("/api/group", { id: this.id, number: asked });
      if (!this.closed && asked === this.number) this.show(group);
    } catch (error) {
      this.trouble.show(run ? error.message : "there is no such run");
    }
  }

  show(group) {
    const isCut = group.samples.length < Math.min(group.of, 128);
    this.trouble.show(isCut ? "Some of these completions are no longer in completions.jsonl." : "");
    this.shown = group;
    this.cards.show(group.samples);
    const { prompt_id: id, step, prompt, prompt_left_out: leftOut } = group;
    this.about.show({ id, step, prompt, leftOut, samples: group.samples.map((one) => [one.reward, one.passed]) });
    this.first.disabled = group.number <= group.range[0];
    this.older.disabled = group.number <= group.range[0];
    this.newer.disabled = group.number >= group.range[1];
    this.latest.setAttribute("aria-pressed", String(this.number === null));
    this.place.textContent = `group ${count(group.number + 1)} of ${count(group.range[1] + 1)}`;
  }
}

function promptOf({ id, step, prompt, leftOut, samples }) {
  const rewards = samples.map(([reward]) => reward).filter((reward) => reward !== null);
  const mean = rewards.length ? rewards.reduce((sum, one) => sum + one, 0) / rewards.length : null;
  const spread = rewards.length ? Math.max(...rewards) - Math.min(...rewards) : null;
  const passed = samples.filter(([, one]) => one).length;
  const apart = `${number(spread)} between the best and the worst`;
  const found = spread === 0 ? "the same for all: nothing can be learned from this group" : apart;
  return [
    el("h3", { id: "prompt" }, id, el("span.note", ` step ${count(step)}`)),
    el("p.note", `${passed} of ${samples.length} passed; reward ${number(mean)} on average, ${found}`),
    promptBlock(prompt, leftOut),
  ];
}
