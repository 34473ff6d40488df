// The completions of one prompt in one step, side by side; two of them can be compared word by word.

class GroupsView extends View {
  constructor(parameters) {
    const id = parameters.get("id") ?? "";
    super("Completions of " + id, [id]);
    this.id = id;
    this.number = parameters.has("n") ? Number(parameters.get("n")) : null;
    this.chosen = [];
    this.head = new Place(el("div.first"), (run) => (run.state ? heading(run, "completions") : el("h2", run.id)));
    this.trouble = new Place(el("p.empty", { role: "status" }), (text) => text);
    this.bar = this.makeBar();
    this.about = new Place(el("section.about", { "aria-labelledby": "prompt" }), promptOf);
    this.cards = el("div.sides.group-cards");
    this.diff = el("section.diff", { "aria-labelledby": "diff", hidden: true });
    this.node = el("article", this.head.node, this.bar, this.trouble.node, this.about.node, this.diff, this.cards);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
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

  close() {
    super.close();
    document.removeEventListener("keydown", this.keys);
  }

  key(event) {
    const inField = event.target.closest("input, select, textarea, [role=slider], [role=region]");
    if (inField || event.altKey || event.ctrlKey || event.metaKey || !this.shown) return;
    if (event.key === "ArrowLeft" && !this.older.disabled) this.older.click();
    if (event.key === "ArrowRight" && !this.newer.disabled) this.newer.click();
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
    const isNew = this.shown?.number !== group.number || this.shown.samples.length !== group.samples.length;
    this.shown = group;
    if (isNew) {
      this.chosen = [];
      this.cards.replaceChildren(...group.samples.map((sample, n) => this.card(sample, n)));
      this.showDiff();
    }
    const { prompt_id: id, step, prompt, prompt_left_out: leftOut } = group;
    this.about.show({ id, step, prompt, leftOut, samples: group.samples.map((one) => [one.reward, one.passed]) });
    this.first.disabled = group.number <= group.range[0];
    this.older.disabled = group.number <= group.range[0];
    this.newer.disabled = group.number >= group.range[1];
    this.latest.setAttribute("aria-pressed", String(this.number === null));
    this.place.textContent = `group ${count(group.number + 1)} of ${count(group.range[1] + 1)}`;
  }

  card(sample, n) {
    const box = el("input", { type: "checkbox", id: "sample-" + n, onchange: (event) => this.choose(n, event.target) });
    const label = el("label", { for: "sample-" + n }, ` compare completion ${n + 1}`);
    return completion(sample, String(n + 1), { kind: "card", more: el("p.choose", box, label) });
  }

  choose(n, box) {
    this.chosen = this.chosen.filter((one) => one !== n);
    if (box.checked) this.chosen.push(n);
    while (this.chosen.length > 2) this.cards.querySelector("#sample-" + this.chosen.shift()).checked = false;
    this.showDiff();
  }

  showDiff() {
    this.diff.hidden = this.chosen.length < 2;
    if (this.diff.hidden) return this.diff.replaceChildren();
    const pair = [...this.chosen].sort((a, b) => a - b);
    const texts = pair.map((n) => this.shown.samples[n].completion);
    const spans = difference(...texts) ?? texts.map((text) => [[text, false]]);
    const side = (n, k) => completion(this.shown.samples[n], String(n + 1), { spans: spans[k] });
    const note = texts[0] === texts[1] ? "They are the same." : "Marked is what the other does not have in that place.";
    this.diff.replaceChildren(
      el("h3", { id: "diff" }, `What differs between ${pair[0] + 1} and ${pair[1] + 1}`),
      el("p.note", note),
      el("div.sides", pair.map(side)),
    );
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
