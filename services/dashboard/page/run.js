// One run: what it does now, what it did, how it was set up; or one evaluation.

const RECENT_POINTS = 10;
// One colour for each outcome on all pages: green is what passed, and nothing else.
const OUTCOME_COLOURS = {
  passed: "part-2",
  extract: "part-3",
  types: "part-1",
  check: "part-1",
  compile: "part-4",
  clippy: "part-6",
  tests: "part-0",
  score: "part-0",
  faulted: "part-5",
};
const OTHER_COLOURS = ["part-6", "part-3", "part-1", "part-4", "part-0"];
const STOPPED = "stopped at ";

// Passed first, then the stages from the last to the first, then faults.
function ordered(names, stages) {
  const order = ["passed", ...[...stages].reverse().map((stage) => "stopped at " + stage)];
  const rank = (name) => (name === "faulted" ? 99 : order.indexOf(name) < 0 ? 98 : order.indexOf(name));
  return [...names].sort((a, b) => rank(a) - rank(b));
}
const stageOf = (outcome) => (outcome.startsWith(STOPPED) ? outcome.slice(STOPPED.length) : outcome);
// Stages of graders that are not known here take colours by their place.
function outcomeColour(outcome, stages) {
  const stage = stageOf(outcome);
  const place = Math.max(0, stages.indexOf(stage));
  return OUTCOME_COLOURS[stage] ?? OTHER_COLOURS[place % OTHER_COLOURS.length];
}
// Parts of a reward have the colours of the stages that they pay for; none is green.
const PART_COLOURS = { ...OUTCOME_COLOURS, passed: "part-6", coverage: "part-0", roles: "part-4", clauses: "part-1", format: "part-6" };
const partColour = (name, place) => PART_COLOURS[name] ?? OTHER_COLOURS[place % OTHER_COLOURS.length];
const outcomeWords = (outcome) => (outcome.startsWith(STOPPED) ? stoppedAt(stageOf(outcome)) : outcome);

function heading(run, page) {
  const tabs = Object.entries({ run: "Overview", completions: "Completions" });
  const tab = ([name, text]) => [link(name, run.id, text, { "aria-current": name === page ? "page" : null })];
  return [
    !inlined && el("p.kicker", el("a", { href: "#/" }, "Runs"), " / "),
    el("h2.run-name", run.id, " ", badge(run)),
    run.why && run.state !== "finished" && el("p.note", run.why),
    run.kind !== "evaluation" && !inlined && el("nav.tabs", { "aria-label": "Pages of this run" }, list("ul", tabs.map(tab))),
  ];
}

const tile = ([name, value, note]) => el("div", el("dt", name), el("dd", el("strong", value), note && el("span.note", " " + note)));

class RunView extends View {
  constructor(parameters) {
    const id = parameters.get("id") ?? "";
    super(id, [id]);
    this.id = id;
    this.axis = "step";
    this.faults = [];
    const renders = {
      head: (run) => heading(run, "run"),
      strip: (tiles) => el("dl.facts.strip", { "aria-label": "Now" }, tiles.map(tile)),
      top: ({ measured, comparisons }) => hero(measured, comparisons, { tasks: "held-out task" }),
      notes: notices,
      card: (items) => section("card", "The run", facts(items)),
      held: heldOutSection,
      ends: endsSection,
      flagged: (made) => section("flagged", "Flags", flags(...made) || el("p.empty", "No completion was flagged.")),
      samples: samplesSection,
      faults: faultsSection,
      whole: evaluationSections,
      settings: settingsTable,
      log: (lines) => el("pre.config", { dir: "ltr" }, lines.join("\n") || "There is no training.log."),
    };
    this.places = {};
    for (const [name, render] of Object.entries(renders)) this.places[name] = new Place(el("div"), render);
    this.galleries = { training: new Gallery(), warmStart: new Gallery(), further: new Gallery() };
    this.build();
    this.read();
  }

  build() {
    const { training, warmStart, further } = this.galleries;
    const node = (name) => this.places[name].node;
    const onchange = ({ target }) => {
      this.axis = target.value;
      this.drawCharts(this.run);
    };
    const options = Object.entries(AXES).map(([value, [text]]) => el("option", { value }, text));
    this.axes = el("select", { id: "axis", onchange }, options);
    const axes = el("p.bar.axes", el("label", { for: "axis" }, "Curves over "), this.axes);
    this.sections = {
      training: section("training", "Training", axes, training.node),
      warmStart: section("warm-start", "Warm start", warmStart.node),
    };
    this.further = el("details", { id: "further" }, el("summary", "Everything else that was logged"), further.node);
    this.behind = section(
      "more",
      "Behind it",
      this.further,
      el("details", { id: "settings" }, el("summary", "Settings"), node("settings")),
      el("details", el("summary", "The end of training.log"), node("log")),
    );
    this.shown = el(
      "div",
      ["head", ...(inlined ? ["top", "strip"] : ["strip", "top"]), "notes", "card", "whole"].map(node),
      [this.sections.training, this.sections.warmStart],
      ["held", "ends", "flagged", "samples", "faults"].map(node),
      [reading(), this.behind],
    );
    this.message = el("p.empty", "Reading …");
    this.node = el("article.first", this.message, this.shown);
    this.shown.hidden = true;
  }

  async read() {
    try {
      const run = await ask("/api/run", { id: this.id });
      if (this.closed) return;
      this.show(run);
      // Completions are read again when evaluations changed.
      const key = JSON.stringify(run.measured.map((one) => one.created));
      if (run.measured.length > 0 && key !== this.sampled) {
        const found = await ask("/api/samples", { id: this.id });
        this.sampled = key;
        if (!this.closed) this.showSamples(found);
      }
    } catch (error) {
      this.message.textContent = error.message;
      this.message.hidden = false;
    }
  }

  show(run) {
    this.run = run;
    this.message.hidden = true;
    this.shown.hidden = false;
    const { places } = this;
    const isEvaluation = run.kind === "evaluation";
    places.head.show({ id: run.id, state: run.state, why: run.why, kind: run.kind });
    this.behind.hidden = isEvaluation;
    if (isEvaluation) {
      for (const one of Object.values(this.sections)) one.hidden = true;
      if (run.measured.length > 0) places.whole.show(run.measured[0]);
      places.notes.show(run.measured.length > 0 ? [] : run.missing);
      return;
    }
    if (run.measured.length > 0) places.top.show({ measured: run.measured, comparisons: run.comparisons });
    places.notes.show(doubts(run));
    places.card.show(runCard(run));
    places.held.show(run.measured);
    if (run.completions > 0) {
      places.ends.show({ outcomes: run.outcomes, stages: run.stages });
      places.flagged.show([columnsOf(run.measured), { flags: run.flags, graded: run.completions - run.faulted }]);
    }
    places.faults.show([...run.faults, ...this.faults]);
    places.settings.show(run.settings);
    places.log.show(run.log);
    this.showStrip();
    this.drawCharts(run);
  }

  showSamples({ groups, faults }) {
    this.faults = faults;
    this.places.samples.show(groups);
    this.places.faults.show([...this.run.faults, ...faults]);
  }

  showStrip() {
    const { run } = this;
    const now = run.newest;
    const log = run.metrics.steps.length > 0 ? run.metrics.values : run.warm_start.values;
    const steps = count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
    const isRewarded = now.reward !== undefined;
    const unlessNone = (value) => value > 0 && percent(value);
    const tiles = [
      ["Step", run.step === null ? NOTHING : steps, run.phase],
      ["Loss", !isRewarded && number(last(log.loss))],
      ["Loss, held out", !isRewarded && number(last(log.eval_loss))],
      ["Reward", number(now.reward), now.reward_std === undefined ? "" : "± " + number(now.reward_std)],
      ["Groups without signal", isRewarded && unlessNone(now.frac_reward_zero_std)],
      ["Cut off", isRewarded && unlessNone(now["completions/clipped_ratio"])],
      ["Time per step", duration(run.step_time)],
    ];
    this.places.strip.show(tiles.filter(([, value]) => value && value !== NOTHING));
  }

  // A drawing function for one gallery, over the chosen axis; steps that have no place on it are left out.
  over(gallery, { steps, values }) {
    const [xName, of] = AXES[this.axis];
    const row = (n) => ({ epoch: values.epoch?.[n], num_tokens: values.num_tokens?.[n], time: values.time?.[n] });
    const places = new Map(steps.map((step, n) => [step, of(step, row(n))]));
    return (title, size, { x, lines, ...plan }) => {
      const at = x.map((step) => (this.axis === "step" ? step : places.get(step)));
      const kept = at.map((_, n) => n).filter((n) => finite(at[n]));
      const pick = (column) => column && kept.map((n) => column[n]);
      const picked = (line) => ({ ...line, y: pick(line.y), low: pick(line.low), high: pick(line.high), more: pick(line.more) });
      const name = this.axis === "step" ? "step" : xName;
      gallery.draw(title, size, { ...plan, xName: name, x: pick(at), lines: lines.map(picked) });
    };
  }

  drawCharts(run) {
    const { training, warmStart, further } = this.galleries;
    const draw = this.over(training, run.metrics);
    for (const option of this.axes.options) {
      const column = { step: "reward", epoch: "epoch", tokens: "num_tokens", time: "time" }[option.value];
      option.hidden = option.value !== "step" && !some(run.metrics.values[column]);
    }
    drawLog(run.metrics, draw);
    this.drawOutcomes(run, draw);
    this.drawHeldOut(run, draw);
    drawLog(run.warm_start, this.over(warmStart, run.warm_start));
    const { steps: x, values } = run.metrics;
    const others = Object.keys(values).filter(isFurther).sort();
    for (const name of others) this.over(further, run.metrics)(name, "small", { x, lines: linesOf([[name]], values) });
    this.further.hidden = others.length === 0;
    for (const [name, node] of Object.entries(this.sections)) node.hidden = this.galleries[name].isEmpty;
  }

  drawOutcomes({ outcomes: { steps: x, counts }, stages }, draw) {
    const names = ordered(Object.keys(counts), stages);
    const totals = x.map((_, n) => names.reduce((sum, name) => sum + counts[name][n], 0));
    const lines = names.map((name) => ({
      name: outcomeWords(name),
      colour: outcomeColour(name, stages),
      y: counts[name].map((one, n) => one / totals[n]),
    }));
    draw("Where answers stop", "small", { x, ...share, isStacked: true, isNamed: true, lines });
  }

  drawHeldOut(run, draw) {
    const at = (one) => one.step ?? (one.name === "after" ? run.step : null);
    const marks = run.evaluations.filter((one) => at(one) !== null);
    const shown = FIRST_FIGURES[run.headline];
    const lines = ["sampled", "greedy"].map((mode, n) => {
      const found = marks.map((one) => one.figures.find((figures) => figures.mode === mode) ?? {});
      const pick = (name) => found.map((figures) => figures[name] ?? null);
      return { name: mode, colour: PARTS[n], measured: true, y: pick(shown.value), low: pick(shown.low), high: pick(shown.high) };
    });
    const rated = lines.filter((line) => some(line.y));
    draw("Held-out " + shown.name, "small", { x: marks.map(at), ...shown.how, note: shown.note, lines: rated });
  }
}

// What to know before one relies on the figures. A run that goes on still writes what is missing.
function doubts(run) {
  const both = run.measured.map((one) => `“${one.name}”`).join(" and ");
  const differ = run.comparisons[0]?.warnings ?? [];
  const faulted = `${counted(run.faulted, "training completion")} (${percent(run.faulted / run.completions)})`;
  const isOver = inlined || !["running", "stalled"].includes(run.state);
  return [
    ...differ.map((text) => `${both} were measured with ${text}: they cannot be compared.`),
    run.graders.some((name) => name.includes("unsandboxed")) &&
      "Some verdicts were made without a sandbox: answers could have forged them.",
    run.faulted > 0 && `${faulted} could not be judged; see Faults.`,
    ...warnings(run.measured),
    ...run.missing.filter((text) => isOver || text.includes("could not be read")),
  ].filter(Boolean);
}

// What is known of how and on what it was trained.
function runCard(run) {
  const settings = new Map(run.settings);
  const text = (name) => (settings.get(name) === "null" ? "" : (settings.get(name) ?? ""));
  const { measured, metrics, environment } = run;
  const newest = measured.at(-1);
  const listed = (of) => [...new Set(measured.flatMap(of))].join(", ");
  const seeds = listed((one) => String(one.seed));
  const machine = newest?.machine ?? environment;
  const { system, cpus, gpu, memory_gib: memory, python, torch } = machine;
  const size = [finite(cpus) && counted(cpus, "CPU core"), gpu, finite(memory) && number(memory) + " GiB"];
  const said = [system, ...size, python && "Python " + python, torch && "torch " + torch];
  const largest = Math.max(...(metrics.values["generation/sync_logprob_difference_max"] ?? []).filter(finite));
  const after = `; log-probabilities differed by ${finite(largest) && largest.toExponential(1)} at most after syncs`;
  const differed = finite(largest) ? after : "";
  const [seed, sha256] = [text("seed"), String(newest?.tasks_sha256).slice(0, 12)];
  const seedsApart = [seed && "training " + seed, seeds && "evaluation " + seeds].filter(Boolean).join(", ");
  const whole = run.max_steps && `${count(metrics.steps.at(-1) ?? 0)} of ${count(run.max_steps)}`;
  const judged = run.completions - run.faulted;
  const passed = judged > 0 && `${percent(run.passed / judged)} passed`;
  const graded = [counted(judged, "completion"), passed, run.faulted ? `${count(run.faulted)} faulted` : "no faults"];
  const rank = text("lora.r");
  return [
    ["Model", run.model || listed((one) => one.model)],
    ["Trained weights", rank ? `LoRA, rank ${rank}` : run.settings.length > 0 && "all"],
    ["Training tasks", text("data.dataset")],
    [
      "Held-out tasks",
      newest && `${counted(newest.measurements[0].tasks, "task")} of ${newest.tasks} (sha256 ${sha256})`,
    ],
    ["Warm start", text("warm_start.dataset")],
    ["Grader", listed((one) => one.graders ?? []) || run.graders.join(", ") || run.grader],
    ["Rubric", listed((one) => one.rubrics ?? []) || text("reward.rubric")],
    ["Toolchain", listed((one) => one.toolchains ?? [])],
    ["Seed", seed && (seeds === "" || seeds === seed) ? seed : seedsApart],
    [run.stage.toUpperCase() + " steps", run.step !== null && (whole || count(run.step))],
    ["Training time", trainingTime(metrics)],
    ["Completions by", text("generation.backend") === "vllm" && "a vLLM server" + differed],
    ["Evaluation time", run.evaluation_s > 0 && duration(run.evaluation_s)],
    ["Graded in training", run.completions > 0 && graded.filter(Boolean).join(", ")],
    ["Machine", said.filter(Boolean).join(", ")],
  ];
}

// From the start of the first step to the end of the last, by the clock; else the steps' own times added up.
function trainingTime({ values, steps_per_point: width }) {
  const times = (values.time ?? []).filter(finite);
  const steps = (values.step_time ?? []).filter(finite);
  const total =
    times.length > 1 ? times.at(-1) - times[0] + (steps[0] ?? 0) : width * steps.reduce((sum, one) => sum + one, 0);
  return total > 0 && duration(total);
}

function heldOutSection(measured) {
  const columns = columnsOf(measured);
  return columns.length > 0 && section("held", "Held-out tasks", funnel(columns), groups(columns));
}

function endsSection({ outcomes: { counts, steps }, stages }) {
  const names = ordered(Object.keys(counts), stages);
  const sum = (name, from) => counts[name].slice(from).reduce((total, value) => total + value, 0);
  const total = (from) => names.reduce((all, name) => all + sum(name, from), 0);
  const recent = { name: `from step ${count(steps.at(-RECENT_POINTS))} on`, from: -RECENT_POINTS };
  const columns = [{ name: "all steps", from: 0 }, ...(steps.length > RECENT_POINTS ? [recent] : [])];
  const cell = (name, { from }) => ({ ...part(sum(name, from), total(from)), style: outcomeColour(name, stages) });
  const rows = names.map((name) => [outcomeWords(name), (column) => cell(name, column)]);
  return section("ends", "How far answers come in training", levels("How completions ended", "outcome", columns, rows));
}

function settingsTable(settings) {
  if (settings.length === 0) return el("p.empty", "There is no config.resolved.json.");
  const made = table("The resolved configuration", ["setting", "value"], settings);
  made.querySelector("table").classList.add("settings");
  return made;
}
