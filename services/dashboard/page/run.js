// One run: what it does now, what it did, how it was set up; or one evaluation.
import { el, facts, Place, section, table, list } from "./dom.js";
import { Gallery, stacked } from "./chart.js";
import {
  CHOICE,
  columnsOf,
  evaluationSections,
  examples,
  faultsSection,
  flags,
  funnel,
  groups,
  hero,
  levels,
  notices,
  part,
  reading,
  warnings,
} from "./figures.js";
import { badge, link } from "./runs.js";
import {
  AXES,
  anything,
  axisOf,
  CLIPPED,
  family,
  FULL,
  isFurther,
  last,
  LENGTHS,
  ONLY_IF_NOT_ZERO,
  PARITY,
  PARTS,
  REPAIRED,
  SINGLE,
  some,
  SUPERVISED,
  TIMES,
} from "./series.js";
import { ask, inlined, store, View } from "./store.js";
import { ago, count, counted, duration, finite, interval, NOTHING, number, percent } from "./words.js";

const RECENT_POINTS = 10;
const OUTCOME_STYLES = ["part-2", "part-1", "part-4", "part-3", "part-0", "part-5"];

// Passed first, then the stages from the last to the first, then faults.
function ordered(names, stages) {
  const order = ["passed", ...[...stages].reverse().map((stage) => "stopped at " + stage)];
  const rank = (name) => (name === "faulted" ? 99 : order.indexOf(name) < 0 ? 98 : order.indexOf(name));
  return [...names].sort((a, b) => rank(a) - rank(b));
}
const outcomeStyle = (names, name) => OUTCOME_STYLES[names.indexOf(name) % OUTCOME_STYLES.length];

export function heading(run, page) {
  const tabs = Object.entries({ run: "Overview", completions: "Completions" });
  const tab = ([name, text]) => [link(name, run.id, text, { "aria-current": name === page ? "page" : null })];
  return [
    !inlined && el("p.kicker", el("a", { href: "#/" }, "Runs"), " / "),
    el("h2.run-name", run.id, " ", badge(run)),
    run.why && run.state !== "finished" && el("p.note", run.why),
    run.kind !== "evaluation" &&
      !inlined &&
      el("nav.tabs", { "aria-label": "Pages of this run" }, list("ul", tabs.map(tab))),
  ];
}

const tile = ([name, value, note]) =>
  el("div", el("dt", name), el("dd", el("strong", value), note && el("span.note", " " + note)));

export class RunView extends View {
  constructor(parameters) {
    const id = parameters.get("id") ?? "";
    super(id, [id]);
    this.id = id;
    this.axis = "step";
    this.places = Object.fromEntries(
      Object.entries({
        head: (run) => heading(run, "run"),
        alarms: alarmBox,
        strip: (tiles) => el("dl.facts.strip", { "aria-label": "Now" }, tiles.map(tile)),
        top: ({ measured, comparisons }) => hero(measured, comparisons, { tasks: "held-out task" }),
        notes: notices,
        card: (items) => section("card", "The run", facts(items)),
        held: heldOutSection,
        ends: endsSection,
        flagged: (made) => section("flagged", "Flags", flags(...made) || el("p.empty", "No completion was flagged.")),
        samples: (found) => examples(found, CHOICE),
        faults: faultsSection,
        whole: evaluationSections,
        settings: settingsTable,
        log: (lines) => el("pre.config", { dir: "ltr" }, lines.join("\n") || "There is no training.log."),
      }).map(([name, render]) => [name, new Place(el("div", name === "alarms" ? { role: "status" } : {}), render)]),
    );
    const galleries = ["large", "charts", "flags", "supervised", "further"];
    this.galleries = Object.fromEntries(galleries.map((name) => [name, new Gallery()]));
    this.build();
    this.clock = setInterval(() => this.run && this.showStrip(), 5000);
    this.read();
  }

  build() {
    const { large, charts, flags: flagged, supervised, further } = this.galleries;
    const node = (name) => this.places[name].node;
    const onchange = ({ target }) => this.draw((this.axis = target.value) && this.run);
    const options = Object.keys(AXES).map((value) => el("option", { value }, AXES[value]));
    this.axes = el("select", { id: "axis", onchange }, options);
    const axes = el("p.bar.axes", el("label", { for: "axis" }, "Curves over "), this.axes);
    this.sections = {
      training: section("training", "Training", axes, large.node, charts.node),
      supervised: section("supervised", "Supervised training", supervised.node),
      flags: section("flags", "Flags in training", flagged.node),
    };
    this.behind = section(
      "more",
      "Behind it",
      el("details", { id: "further" }, el("summary", "Everything else that was logged"), further.node),
      el("details", { id: "settings" }, el("summary", "Settings"), node("settings")),
      el("details", el("summary", "The end of training.log"), node("log")),
    );
    this.shown = el(
      "div",
      ["head", "alarms", ...(inlined ? ["top", "strip"] : ["strip", "top"]), "notes", "card", "whole"].map(node),
      [this.sections.training, this.sections.supervised, node("held"), node("ends"), this.sections.flags],
      ["flagged", "samples", "faults"].map(node),
      [reading(), this.behind],
    );
    this.message = el("p.empty", "Reading …");
    this.node = el("article.first", this.message, this.shown);
    this.shown.hidden = true;
  }

  close() {
    super.close();
    clearInterval(this.clock);
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
      this.shown.hidden = true;
      this.message.hidden = false;
    }
  }

  show(run) {
    this.run = run;
    this.shown.hidden = false;
    this.message.hidden = true;
    const { places, sections } = this;
    const isRun = run.kind !== "evaluation";
    const isDone = inlined || !["running", "stalled"].includes(run.state);
    for (const name of ["strip", "top", "card", "held", "ends", "flagged"]) places[name].node.hidden = !isRun;
    this.behind.hidden = !isRun;
    places.head.show({ id: run.id, kind: run.kind, state: run.state, why: run.why });
    places.alarms.show(run.alarms);
    places.settings.show(run.settings);
    places.log.show(run.log);
    const misses = isDone ? run.missing : run.missing.filter((text) => text.includes("could not be read"));
    if (!isRun) {
      places.whole.node.hidden = run.measured.length === 0;
      const waiting = "It is being measured; its figures appear at the end.";
      if (run.measured.length > 0) places.whole.show(run.measured[0]);
      else places.notes.show([run.state === "running" ? waiting : misses.join(" ")]);
      for (const one of Object.values(sections)) one.hidden = true;
      return;
    }
    this.showStrip();
    places.top.node.hidden = run.measured.length === 0;
    if (run.measured.length > 0) places.top.show({ measured: run.measured, comparisons: run.comparisons });
    const both = run.measured.map((one) => `“${one.name}”`).join(" and ");
    const differ = run.comparisons[0]?.warnings ?? [];
    const doubts = differ.map((text) => `${both} were measured with ${text}: they cannot be compared.`);
    if (run.graders.some((name) => name.includes("unsandboxed")))
      doubts.push("Some verdicts were made without a sandbox: answers could have forged them.");
    const faulted = `${counted(run.faulted, "training completion")} (${percent(run.faulted / run.completions)})`;
    if (run.faulted) doubts.push(`${faulted} could not be judged; see Faults.`);
    places.notes.show([...doubts, ...warnings(run.measured), ...misses]);
    places.card.show(runCard(run));
    this.draw(run);
    places.held.node.hidden = run.evaluations.length === 0 && run.measured.length === 0;
    places.held.show([run.measured, run.evaluations]);
    places.ends.node.hidden = run.completions === 0;
    places.ends.show({ outcomes: run.outcomes, buckets: run.buckets, stages: run.stages });
    places.flagged.node.hidden = run.completions === 0 && run.measured.length === 0;
    places.flagged.show([columnsOf(run.measured), { flags: run.flags, graded: run.completions - run.faulted }]);
    places.faults.show(run.faults);
  }

  showSamples(found) {
    this.places.samples.show({ ...found, faults: this.run.kind === "evaluation" ? found.faults : [] });
    this.places.faults.show(this.run.kind === "evaluation" ? [] : [...this.run.faults, ...found.faults]);
  }

  draw(run) {
    const { sections } = this;
    sections.training.hidden = !this.drawTraining(run);
    const supervised = some(run.metrics.values.reward) || run.metrics.steps.length === 0 ? run.warm_start : run.metrics;
    sections.supervised.hidden = !this.drawSupervised(supervised);
    sections.supervised.querySelector("h2").textContent =
      supervised === run.warm_start ? "Warm start" : "Supervised training";
    sections.flags.hidden = !this.drawFlags(run.metrics);
    this.drawFurther(run.metrics);
    const { values } = run.metrics;
    for (const [value, column] of Object.entries({ tokens: values.num_tokens, time: values.time }))
      this.axes.querySelector(`[value=${value}]`).disabled = !some(column);
  }

  // Draws in a gallery over the chosen axis.
  over(gallery, title, size, plan) {
    const axis = this.axis === "step" ? null : axisOf(this.run.metrics, this.axis);
    return this.galleries[gallery].draw(title, size, { ...plan, axis });
  }

  showStrip() {
    const { run } = this;
    const now = run.newest;
    const steps = count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
    const some_ = (value) => value > 0 && percent(value);
    const log = some(run.metrics.values.loss) ? run.metrics.values : run.warm_start.values;
    const isRewarded = now.reward !== undefined;
    const when = [run.phase, !inlined && ago(run.changed_at, store.now)].filter(Boolean).join(", ");
    const tiles = [
      ["Step", run.step === null ? NOTHING : steps, when],
      ["Loss", !isRewarded && number(last(log.loss))],
      ["Loss, held out", !isRewarded && number(last(log.eval_loss))],
      ["Reward", number(now.reward), now.reward_std === undefined ? "" : "± " + number(now.reward_std)],
      ["Groups without signal", isRewarded && some_(now.frac_reward_zero_std)],
      ["Cut off", isRewarded && some_(now["completions/clipped_ratio"])],
      ["Time per step", duration(run.step_time)],
    ];
    this.places.strip.show(tiles.filter(([, value]) => value && value !== NOTHING));
  }

  drawTraining(run) {
    const { steps: x, values, steps_per_point: width } = run.metrics;
    const { reward = [], reward_std: spread = [] } = values;
    const share = (value) => Math.min(1, Math.max(0, value));
    const known = (n) => finite(reward[n]) && finite(spread[n]);
    const around = (sign) => reward.map((mean, n) => (known(n) ? share(mean + sign * spread[n]) : null));
    const band = { name: "± one standard deviation within the step", style: "band", silent: true };
    const more = spread.map((value) => (value === null ? "" : " ± " + number(value)));
    const any = this.over("large", "Reward", "large", {
      x,
      range: FULL,
      note: width > 1 ? `each point is the mean of ${width} steps` : "",
      lines: [
        { name: "reward", style: "raw", y: reward, more },
        { name: "running mean", style: "bold", y: running(reward), silent: true },
      ],
      areas: some(spread) ? [{ ...band, low: around(-1), high: around(1) }] : [],
    });
    if (!any) return false;
    const draw = (title, size, plan) => this.over("charts", title, size, { x, ...plan });
    this.drawStacks(run, draw);
    this.drawHeldOut(run, draw);
    for (const [key, title, show, further] of SINGLE)
      draw(title, "small", { show, ...further, lines: raw(values[key], ONLY_IF_NOT_ZERO.has(key) ? anything : some) });
    const lengths = LENGTHS.map((stat) => [`completions/${stat}_length`, stat]);
    draw("Completion length", "small", { note: "tokens", lines: linesOf(lengths, values) });
    this.drawTurns(values, draw);
    const { steps, shares } = run.repeats;
    const repeated = Object.entries(shares).filter(([name]) => name !== "graded afresh");
    const areas = stacked(repeated.map(([name, y], n) => [name, y, PARTS[n]]));
    draw("Repeated answers", "small", { x: steps, range: FULL, show: percent, note: "of the step's verdicts", areas });
    const clipped = { show: percent, note: "tokens whose ratio was clipped", lines: linesOf(CLIPPED, values) };
    draw("Clipped updates", "small", clipped);
    const parity = { log: true, note: "difference of log-probabilities", lines: linesOf(PARITY, values) };
    draw("Trainer against generation server", "small", parity);
    return true;
  }

  // Only runs with several turns log any of these.
  drawTurns(values, draw) {
    const named = (prefix, word) => family(values, prefix).map((key) => [key, word + key.slice(prefix.length)]);
    const passes = linesOf([...named("turns/pass_by_", "by turn "), REPAIRED], values);
    draw("Pass rate by turn", "medium", { range: FULL, show: percent, lines: passes });
    draw("Tokens per turn", "small", { lines: linesOf(named("turns/tokens_", "turn "), values) });
    const reasons = named("turns/stopped/", "").map(([key, name], n) => [name, values[key], PARTS[n % 6]]);
    draw("Why chains end", "small", { range: FULL, show: percent, areas: stacked(reasons) });
  }

  drawStacks(run, draw) {
    const { values } = run.metrics;
    const prefix = "gradus/component/";
    const logged = family(values, prefix).map((key) => [key.slice(prefix.length), values[key]]);
    const [at, given] = logged.length > 0 ? [{}, logged] : [{ x: run.parts.steps }, Object.entries(run.parts.values)];
    const parts = stacked(given.map(([name, y], n) => [name, y, PARTS[n % 6]]));
    draw("Parts of the reward", "medium", { ...at, areas: given.length > 1 ? parts : [] });
    const { steps: x, shares } = run.outcomes;
    const names = ordered(Object.keys(shares), run.stages);
    const outcomes = stacked(names.map((name) => [name, shares[name], outcomeStyle(names, name)]));
    draw("Where answers stop", "medium", { x, range: FULL, show: percent, areas: outcomes });
    const times = stacked(TIMES.map((part, n) => [part, values[`time/${part}_s`], PARTS[n]]));
    const whole = times.length > 0 ? [] : raw(values.step_time);
    draw("Time per step", "medium", { show: duration, areas: times, lines: whole });
  }

  drawHeldOut(run, draw) {
    const at = (one) => one.step ?? (one.name === "after" ? run.step : null);
    const marks = run.evaluations.filter((one) => at(one) !== null);
    const of = (mode) => marks.map((one) => one.figures.find((found) => found.mode === mode) ?? {});
    const rated = ["sampled", "greedy"].filter((mode) => of(mode).some((one) => finite(one.pass_rate)));
    const ends = rated.length > 0 ? of(rated[0]).map(({ low, high }, n) => ({ x: at(marks[n]), low, high })) : [];
    const rates = (mode) => of(mode).map((one) => one.pass_rate ?? null);
    draw("Held-out pass rate", "medium", {
      x: marks.map(at),
      range: FULL,
      show: percent,
      whiskers: ends.filter(({ low, high }) => finite(low) && finite(high)),
      note: "pass@1, with the 95% interval of the first curve",
      lines: rated.map((mode, n) => ({ name: mode, style: n ? "part-1" : "raw", dots: true, y: rates(mode) })),
    });
  }

  drawSupervised({ steps: x, values }) {
    const { supervised } = this.galleries;
    // What was measured now and then beside what every step has.
    const both = (key) => [
      ...raw(values[key]).map((line) => ({ ...line, name: "training" })),
      ...raw(values["eval_" + key]).map((line) => ({ ...line, name: "held out", style: "part-1", dots: true })),
    ];
    const lines = both("loss");
    if (!supervised.draw("Loss", "medium", { x, lines })) return false;
    const epochs = (values.epoch ?? []).map((value) => (value === null ? null : Number(value.toFixed(3))));
    const known = epochs.map((_, n) => n).filter((n) => epochs[n] !== null);
    const pick = (column) => known.map((n) => column[n]);
    const byEpoch = lines.map((line) => ({ ...line, y: pick(line.y) }));
    supervised.draw("Loss by epoch", "medium", { x: pick(epochs), xName: "epoch", fractions: true, lines: byEpoch });
    for (const [key, title, show, more] of SUPERVISED)
      supervised.draw(title, "small", { x, show, ...more, lines: some(values[key]) ? both(key) : [] });
    return true;
  }

  drawFlags({ steps: x, values }) {
    const lines = family(values, "gradus/flag/").map((key, n) => ({
      name: key.slice("gradus/flag/".length),
      style: PARTS[n % 6],
      dash: n < 6 ? null : "5 3",
      y: values[key].map((value, k) => value ?? (finite(values.reward?.[k]) ? 0 : null)),
    }));
    return this.over("flags", "Share of verdicts that carry a flag", "large", { x, show: percent, named: true, lines });
  }

  drawFurther({ steps: x, values }) {
    const names = Object.keys(values).filter(isFurther).sort();
    for (const name of names) this.over("further", name, "small", { x, lines: raw(values[name], anything) });
    this.node.querySelector("#further").hidden = names.length === 0;
  }
}

const raw = (y, wanted = some) => (wanted(y) ? [{ style: "raw", y }] : []);
const linesOf = (keys, values) =>
  keys.filter(([key]) => anything(values[key])).map(([key, name], n) => ({ name, style: PARTS[n], y: values[key] }));

function running(column) {
  const window = Math.max(2, Math.floor(column.length / 10));
  return column.map((value, n) => {
    const kept = column.slice(Math.max(0, n - window + 1), n + 1).filter((one) => one !== null);
    return value === null ? null : kept.reduce((sum, one) => sum + one, 0) / kept.length;
  });
}

function alarmBox(alarms) {
  if (alarms.length === 0) return null;
  const head = el("h2", { id: "alarms" }, alarms.length === 1 ? "One alarm" : `${alarms.length} alarms`);
  const items = alarms.map((alarm) => [el("strong", alarm.title + ". "), alarm.detail]);
  return el("section.notices.alarm", { "aria-labelledby": "alarms" }, head, list("ul", items));
}

// What is known of how and on what it was trained.
function runCard(run) {
  const settings = new Map(run.settings);
  const own = run.stage === "reward" ? "reward_model" : run.stage;
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
  const shown = SETTINGS.map(([name, words]) => [words, text(`${own}.${name}`)]).filter(([, value]) => value);
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
    ["Settings", shown.map(([words, value]) => `${words} ${value}`).join(", ")],
    ["Machine", said.filter(Boolean).join(", ")],
  ];
}

const SETTINGS = [
  ["learning_rate", "learning rate"],
  ["num_generations", "completions per prompt"],
  ["per_device_train_batch_size", "batch"],
  ["gradient_accumulation_steps", "accumulation"],
  ["loss_type", "loss"],
  ["beta", "beta"],
  ["temperature", "temperature"],
  ["max_completion_length", "new tokens"],
];

// From the start of the first step to the end of the last, by the clock; else the steps' own times added up.
function trainingTime({ values, steps_per_point: width }) {
  const times = (values.time ?? []).filter(finite);
  const steps = (values.step_time ?? []).filter(finite);
  const total =
    times.length > 1 ? times.at(-1) - times[0] + (steps[0] ?? 0) : width * steps.reduce((sum, one) => sum + one, 0);
  return total > 0 && duration(total);
}

function heldOutSection([measured, evaluations]) {
  const columns = columnsOf(measured);
  const found = columns.length > 0 && [funnel(columns), groups(columns)];
  return section("held", "Held-out tasks", found, evaluations.length > 2 && evaluationsTable(evaluations));
}

function endsSection({ outcomes, buckets, stages }) {
  const names = ordered(Object.keys(outcomes.counts), stages);
  const ended = tallyTable("How completions ended", "outcome", outcomes, names, (name) => outcomeStyle(names, name));
  const caption = "Share of its tests that a completion passed";
  const tests = tallyTable(caption, "tests passed", buckets, Object.keys(buckets.counts), () => "after");
  return section("ends", "How far answers come in training", el("div.panels.tight", ended, tests));
}

function tallyTable(caption, first, { counts, steps }, names, style) {
  const sum = (name, from) => counts[name].slice(from).reduce((total, value) => total + value, 0);
  const total = (from) => names.reduce((all, name) => all + sum(name, from), 0);
  const recent = { name: `from step ${count(steps.at(-RECENT_POINTS))} on`, from: -RECENT_POINTS };
  const columns = [{ name: "all steps", from: 0 }, ...(steps.length > RECENT_POINTS ? [recent] : [])];
  const cell = (name, { from }) => ({ ...part(sum(name, from), total(from)), style: style(name) });
  const rows = names.map((name) => [name, (column) => cell(name, column)]);
  return total(0) > 0 && el("div", levels(caption, first, columns, rows));
}

function evaluationsTable(evaluations) {
  const rate = (found) => percent(found.pass_rate) + (finite(found.low) ? ` (${interval(found)})` : "");
  const cells = (found) => [found.mode, rate(found), number(found.reward), count(found.graded), count(found.faulted)];
  const rows = evaluations.flatMap((one) => one.figures.map((found) => [one.name, ...cells(found)]));
  const head = ["evaluation", "how", "pass@1 and its 95% interval", "reward", "graded", "faulted"];
  return table("Measured on held-out tasks", head, rows);
}

function settingsTable(settings) {
  if (settings.length === 0) return el("p.empty", "There is no config.resolved.json.");
  const made = table("The resolved configuration", ["setting", "value"], settings);
  made.querySelector("table").classList.add("settings");
  const rows = [...made.querySelectorAll("tbody tr")];
  const filter = (event) =>
    rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(event.target.value.toLowerCase())));
  return [el("label.filter", "Find ", el("input", { type: "search", oninput: filter })), made];
}
