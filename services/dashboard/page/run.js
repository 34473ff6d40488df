// One run: what it does now, what it did, how it was set up.
import { el, Place, bars, table } from "./dom.js";
import { Gallery, stacked } from "./chart.js";
import {
  anything,
  family,
  FULL,
  isFurther,
  last,
  LENGTHS,
  ONLY_IF_NOT_ZERO,
  PARITY,
  PARTS,
  SINGLE,
  some,
  SUPERVISED,
  TIMES,
} from "./figures.js";
import { badge, link } from "./runs.js";
import { ask, soon, store } from "./store.js";
import { ago, count, duration, NOTHING, number, percent } from "./words.js";

const RECENT_POINTS = 10;
const OUTCOME_STYLES = {
  passed: "part-2",
  "stopped at tests": "part-1",
  "stopped at clippy": "part-0",
  "stopped at compile": "part-4",
  "stopped at check": "part-3",
  "stopped at types": "part-3",
  "stopped at score": "part-1",
  "stopped at extract": "part-5",
  faulted: "part-5",
};

const ordered = (byOutcome) => {
  const names = Object.keys(byOutcome);
  const known = Object.keys(OUTCOME_STYLES).filter((name) => names.includes(name));
  return known.concat(names.filter((name) => !known.includes(name)));
};

export function heading(run, page) {
  const tabs = [
    ["run", "Overview"],
    ["completions", "Completions"],
  ];
  return [
    el("p", { class: "kicker" }, el("a", { href: "#/" }, "Runs"), " / "),
    el("h2", { class: "run-name" }, run.id, " ", badge(run)),
    run.why ? el("p", { class: "note" }, run.why) : null,
    el(
      "nav",
      { class: "tabs", "aria-label": "Pages of this run" },
      el(
        "ul",
        {},
        tabs.map(([name, text]) =>
          el("li", {}, link(name, run.id, text, { "aria-current": name === page ? "page" : null })),
        ),
      ),
    ),
  ];
}

const tile = (name, value, note) =>
  el(
    "div",
    {},
    el("dt", {}, name),
    el("dd", {}, el("strong", {}, value), note ? el("span", { class: "note" }, " " + note) : null),
  );

function supervisedTiles(run) {
  const { values } = some(run.metrics.values.loss) ? run.metrics : run.warm_start;
  return [
    ["Loss", number(last(values.loss))],
    ["Loss, held out", number(last(values.eval_loss))],
  ];
}

function section(id, title, ...children) {
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), children);
}

export class RunView {
  constructor(parameters) {
    this.id = parameters.get("id") ?? "";
    this.title = this.id;
    this.head = new Place(el("div", { class: "first" }), (run) => heading(run, "run"));
    this.alarms = new Place(el("div", { role: "status" }), alarmBox);
    this.strip = new Place(el("dl", { class: "facts strip", "aria-label": "Now" }), (tiles) =>
      tiles.map((one) => tile(...one)),
    );
    this.large = new Gallery();
    this.charts = new Gallery();
    this.flags = new Gallery();
    this.supervised = new Gallery();
    this.further = new Gallery();
    this.noFlags = el("p", { class: "empty" }, "No completion was flagged.");
    this.funnel = new Place(el("div"), funnelTable);
    this.outcomes = new Place(el("div"), (given) =>
      tallyTable("How completions ended", "outcome", given, (name) => OUTCOME_STYLES[name] ?? "part-0"),
    );
    this.buckets = new Place(el("div"), (given) =>
      tallyTable("Share of its tests that a completion passed", "tests passed", given, () => "after"),
    );
    this.evaluations = new Place(el("div"), evaluationsTable);
    this.settings = new Place(el("div"), settingsTable);
    this.log = new Place(
      el("pre", { class: "config", dir: "ltr" }),
      (lines) => lines.join("\n") || "There is no training.log.",
    );
    this.unread = new Place(el("p", { class: "note" }), (text) => text);
    this.build();
    this.refresh = soon(() => this.read());
    this.listener = (event) => (event.detail.all || event.detail.ids.includes(this.id)) && this.refresh();
    this.onGraders = () => this.run && this.showStrip();
    store.addEventListener("runs", this.listener);
    store.addEventListener("graders", this.onGraders);
    this.clock = setInterval(() => this.run && this.showStrip(), 5000);
    this.read();
  }

  build() {
    this.sections = {
      training: section("training", "Training", this.large.node, this.charts.node),
      supervised: section("supervised", "Supervised training", this.supervised.node),
      held: section("held", "Held-out tasks", this.evaluations.node),
      ends: section(
        "ends",
        "How far answers come",
        this.funnel.node,
        el("div", { class: "panels tight" }, this.outcomes.node, this.buckets.node),
      ),
      flags: section("flags", "Flags", this.flags.node, this.noFlags),
    };
    this.node = el(
      "article",
      {},
      this.head.node,
      this.alarms.node,
      this.strip.node,
      Object.values(this.sections),
      section(
        "more",
        "Behind it",
        el("details", { id: "further" }, el("summary", {}, "Everything else that was logged"), this.further.node),
        el("details", { id: "settings" }, el("summary", {}, "Settings"), this.settings.node),
        el("details", {}, el("summary", {}, "The end of training.log"), this.log.node),
        this.unread.node,
      ),
    );
    this.message = el("p", { class: "empty" }, "Reading …");
    this.node.prepend(this.message);
    this.hide(true);
  }

  hide(value) {
    for (const child of this.node.children) if (child !== this.message) child.hidden = value;
    this.message.hidden = !value;
  }

  close() {
    store.removeEventListener("runs", this.listener);
    store.removeEventListener("graders", this.onGraders);
    clearInterval(this.clock);
    this.refresh.stop();
    this.closed = true;
  }

  async read() {
    try {
      const run = await ask("/api/run", { id: this.id });
      if (!this.closed) this.show(run);
    } catch (error) {
      this.message.textContent = error.message;
      this.hide(true);
    }
  }

  show(run) {
    this.run = run;
    this.hide(false);
    this.head.show({ id: run.id, state: run.state, why: run.why });
    this.alarms.show(run.alarms);
    this.showStrip();
    this.sections.training.hidden = !this.drawTraining(run);
    const supervised = some(run.metrics.values.reward) || run.metrics.steps.length === 0 ? run.warm_start : run.metrics;
    this.sections.supervised.hidden = !this.drawSupervised(supervised);
    this.sections.supervised.querySelector("h2").textContent =
      supervised === run.warm_start ? "Warm start" : "Supervised training";
    this.sections.held.hidden = run.evaluations.length === 0;
    this.evaluations.show(run.evaluations);
    this.sections.ends.hidden = run.funnel === null && run.completions === 0;
    this.funnel.show(run.funnel);
    this.outcomes.show(run.outcomes);
    this.buckets.show(run.buckets);
    this.sections.flags.hidden = !some(run.metrics.values.reward);
    this.drawFlags(run.metrics);
    this.drawFurther(run.metrics);
    this.settings.show(run.settings);
    this.log.show(run.log);
    const unread = Object.entries(run.unreadable);
    this.unread.show(
      unread.length
        ? "Could not be read and is left out: " + unread.map(([name, lines]) => `${name} (${lines})`).join(", ")
        : "",
    );
  }

  showStrip() {
    const { run } = this;
    const now = run.newest;
    const grader = (store.graders?.graders ?? []).find((one) => one.name === run.grader);
    const away = !store.asksApi ? "no --api was given" : store.graders?.trouble ? "the API is away" : "";
    const steps = count(run.step) + (run.max_steps ? " of " + count(run.max_steps) : "");
    const tiles = [
      [
        "Step",
        run.step === null ? NOTHING : steps,
        [run.phase, ago(run.changed_at, store.now)].filter(Boolean).join(", "),
      ],
      ["Reward", number(now.reward), now.reward_std === undefined ? "" : "± " + number(now.reward_std)],
      ["Groups without signal", percent(now.frac_reward_zero_std)],
      ["Cut off", percent(now["completions/clipped_ratio"])],
      [
        "Held-out pass rate",
        percent(run.held_out?.pass_rate),
        run.held_out ? `${run.held_out.name}, ${run.held_out.mode}` : "",
      ],
      ["Time per step", duration(now.step_time)],
      ["Queue depth", grader && !away ? count(grader.depth) : NOTHING, away],
      [
        "Grading, 95th percentile",
        grader && !away ? duration(grader.p95_s) : NOTHING,
        away || (grader ? (grader.lately ? "of the last minutes" : "since the API started") : ""),
      ],
    ];
    if (now.reward === undefined) tiles.splice(1, 3, ...supervisedTiles(run));
    this.strip.show(run.grader ? tiles : tiles.slice(0, -2).filter(([, value]) => value !== NOTHING));
  }

  drawTraining(run) {
    const { steps: x, values, steps_per_point: width } = run.metrics;
    const around = (sign) =>
      (values.reward ?? []).map((mean, n) =>
        mean === null || (values.reward_std?.[n] ?? null) === null
          ? null
          : Math.min(1, Math.max(0, mean + sign * values.reward_std[n])),
      );
    const spread = (values.reward_std ?? []).map((value) => (value === null ? "" : " ± " + number(value)));
    const grows = width > 1 ? `each point is the mean of ${width} steps` : "";
    const any = this.large.draw(
      "Reward",
      "large",
      values.reward
        ? {
            x,
            range: FULL,
            note: grows,
            lines: [
              { name: "reward", style: "raw", y: values.reward, more: spread },
              { name: "running mean", style: "bold", y: running(values.reward), silent: true },
            ],
            areas: some(values.reward_std)
              ? [
                  {
                    name: "± one standard deviation within the step",
                    style: "band",
                    low: around(-1),
                    high: around(1),
                    silent: true,
                  },
                ]
              : [],
          }
        : null,
    );
    if (!any) return false;
    this.drawStacks(run, x, values);
    this.drawHeldOut(run);
    for (const [key, title, show, more] of SINGLE) {
      const wanted = values[key] && (ONLY_IF_NOT_ZERO.has(key) ? anything(values[key]) : some(values[key]));
      this.charts.draw(title, "small", wanted ? { x, show, ...more, lines: [{ style: "raw", y: values[key] }] } : null);
    }
    this.drawLines(
      "Completion length",
      "small",
      x,
      LENGTHS.map((stat) => [`completions/${stat}_length`, stat]),
      values,
      { note: "tokens" },
    );
    this.drawLines("Trainer against generation server", "small", x, PARITY, values, {
      log: true,
      note: "difference of log-probabilities",
    });
    return true;
  }

  drawStacks(run, x, values) {
    const stack = (title, size, at, named, more) => {
      const kept = named.filter(([, , column]) => anything(column));
      this.charts.draw(
        title,
        size,
        kept.length
          ? {
              x: at,
              ...more,
              areas: stacked(
                kept.map(([name]) => name),
                kept.map(([, , y]) => y),
                kept.map(([, style]) => style),
              ),
            }
          : null,
      );
    };
    const components = family(values, "gradus/component/").map((key, n) => [
      key.slice("gradus/component/".length),
      PARTS[n % 6],
      values[key],
    ]);
    stack("Parts of the reward", "medium", x, components.length > 1 ? components : [], {});
    const shares = run.outcomes.shares;
    stack(
      "Where answers stop",
      "medium",
      run.outcomes.steps,
      ordered(shares).map((name) => [name, OUTCOME_STYLES[name] ?? "part-0", shares[name]]),
      { range: FULL, show: percent },
    );
    stack(
      "Time per step",
      "medium",
      x,
      TIMES.map((part, n) => [part, PARTS[n], values[`time/${part}_s`]]),
      { show: duration },
    );
    if (!TIMES.some((part) => anything(values[`time/${part}_s`])))
      this.charts.draw(
        "Time per step",
        "medium",
        values.step_time ? { x, show: duration, lines: [{ style: "raw", y: values.step_time }] } : null,
      );
  }

  drawLines(title, size, x, keys, values, more) {
    const lines = keys
      .filter(([key]) => anything(values[key]))
      .map(([key, name], n) => ({ name, style: PARTS[n], y: values[key] }));
    this.charts.draw(title, size, lines.length ? { x, ...more, lines } : null);
  }

  drawHeldOut(run) {
    const at = (one) => one.step ?? (one.name === "after" ? run.step : null);
    const marks = run.evaluations.filter((one) => at(one) !== null);
    const modes = ["sampled", "greedy"].map((mode) => [
      mode,
      marks.map((one) => one.figures.find((found) => found.mode === mode) ?? {}),
    ]);
    const rated = modes.filter(([, figures]) => figures.some((one) => typeof one.pass_rate === "number"));
    const whiskers = (rated[0]?.[1] ?? [])
      .map((one, n) => ({ x: at(marks[n]), low: one.low, high: one.high }))
      .filter((one) => typeof one.low === "number" && typeof one.high === "number");
    this.charts.draw(
      "Held-out pass rate",
      "medium",
      rated.length
        ? {
            x: marks.map(at),
            range: FULL,
            show: percent,
            whiskers,
            note: "pass@1, with the 95% interval of the first curve",
            lines: rated.map(([mode, figures], n) => ({
              name: mode,
              style: n ? "part-1" : "raw",
              dots: true,
              y: figures.map((one) => one.pass_rate ?? null),
            })),
          }
        : null,
    );
  }

  drawSupervised(log) {
    const { steps: x, values } = log;
    const losses = [
      ["loss", "training"],
      ["eval_loss", "held out"],
    ].filter(([key]) => some(values[key]));
    const lines = losses.map(([key, name], n) => ({
      name,
      style: n ? "part-1" : "raw",
      dots: key === "eval_loss",
      y: values[key],
    }));
    const any = this.supervised.draw("Loss", "medium", lines.length ? { x, lines } : null);
    const epochs = (values.epoch ?? []).map((value) => (value === null ? null : Number(value.toFixed(3))));
    const known = epochs.map((_, n) => n).filter((n) => epochs[n] !== null);
    const pick = (column) => known.map((n) => column[n]);
    this.supervised.draw(
      "Loss by epoch",
      "medium",
      any && known.length
        ? {
            x: pick(epochs),
            xName: "epoch",
            fractions: true,
            lines: lines.map((line) => ({ ...line, y: pick(line.y) })),
          }
        : null,
    );
    for (const [key, title, show, more] of SUPERVISED) {
      const measured = some(values["eval_" + key])
        ? [{ name: "held out", style: "part-1", dots: true, y: values["eval_" + key] }]
        : [];
      const trained = { name: measured.length ? "training" : undefined, style: "raw", y: values[key] };
      this.supervised.draw(
        title,
        "small",
        some(values[key]) && any ? { x, show, ...more, lines: [trained, ...measured] } : null,
      );
    }
    return any;
  }

  drawFlags({ steps: x, values }) {
    const names = family(values, "gradus/flag/");
    const lines = names.map((key, n) => ({
      name: key.slice("gradus/flag/".length),
      style: PARTS[n % 6],
      dash: DASH(n),
      y: values[key].map((value, k) => value ?? ((values.reward?.[k] ?? null) === null ? null : 0)),
    }));
    this.noFlags.hidden = this.flags.draw(
      "Share of verdicts that carry a flag",
      "large",
      lines.length ? { x, show: percent, named: true, lines } : null,
    );
  }

  drawFurther({ steps: x, values }) {
    const names = Object.keys(values).filter(isFurther).sort();
    for (const name of names)
      this.further.draw(
        name,
        "small",
        anything(values[name]) ? { x, lines: [{ style: "raw", y: values[name] }] } : null,
      );
    this.node.querySelector("#further").hidden = names.length === 0;
  }
}

const DASH = (n) => (n < 6 ? null : "5 3");

function running(column) {
  const window = Math.max(2, Math.floor(column.length / 10));
  return column.map((value, n) => {
    const kept = column.slice(Math.max(0, n - window + 1), n + 1).filter((one) => one !== null);
    return value === null ? null : kept.reduce((sum, one) => sum + one, 0) / kept.length;
  });
}

export function alarmBox(alarms) {
  if (alarms.length === 0) return null;
  return el(
    "section",
    { class: "notices alarm", "aria-labelledby": "alarms" },
    el("h2", { id: "alarms" }, alarms.length === 1 ? "One alarm" : `${alarms.length} alarms`),
    el(
      "ul",
      {},
      alarms.map((alarm) => el("li", {}, el("strong", {}, alarm.title + ". "), alarm.detail)),
    ),
  );
}

function funnelTable(funnel) {
  if (!funnel) return null;
  const levels = funnel.levels.map(({ name, shares }) => ({
    name,
    shares: shares.map((share, n) => ({ text: percent(share), share, style: n ? "after" : "before" })),
  }));
  return bars("Verdicts that came at least so far", "level", funnel.columns, levels);
}

function tallyTable(caption, first, { counts, steps }, style) {
  const names = ordered(counts).filter(
    (name) => counts[name].some((value) => value > 0) || counts[name].length === 0,
  );
  if (steps.length === 0 || names.length === 0) return null;
  const sum = (name, from) => counts[name].slice(from).reduce((total, value) => total + value, 0);
  const columns = [["all steps", 0]];
  if (steps.length > RECENT_POINTS) columns.push([`from step ${count(steps.at(-RECENT_POINTS))} on`, -RECENT_POINTS]);
  const totals = columns.map(([, from]) => Object.keys(counts).reduce((total, name) => total + sum(name, from), 0));
  const share = (name, [, from], n) => ({
    text: `${count(sum(name, from))} (${percent(sum(name, from) / totals[n])})`,
    share: sum(name, from) / totals[n],
    style: style(name),
  });
  const all = Object.keys(counts).some((name) => name.endsWith("%")) ? Object.keys(counts) : names;
  return bars(
    caption,
    first,
    columns.map(([name]) => name),
    all.map((name) => ({ name, shares: columns.map((column, n) => share(name, column, n)) })),
  );
}

function evaluationsTable(evaluations) {
  if (evaluations.length === 0) return null;
  const interval = (one) => (typeof one.low === "number" ? ` [${percent(one.low)}, ${percent(one.high)}]` : "");
  const rows = evaluations.flatMap((one) =>
    one.figures.map((found) => [
      one.name,
      found.mode,
      percent(found.pass_rate) + interval(found),
      number(found.reward),
      count(found.graded),
      count(found.faulted),
    ]),
  );
  return table(
    "Measured on held-out tasks",
    ["evaluation", "how", "pass@1 and its 95% interval", "reward", "graded", "faulted"],
    rows,
  );
}

function settingsTable(settings) {
  if (settings.length === 0) return el("p", { class: "empty" }, "There is no config.resolved.json.");
  const made = table("The resolved configuration", ["setting", "value"], settings);
  made.querySelector("table").classList.add("settings");
  const rows = [...made.querySelectorAll("tbody tr")];
  const filter = (event) =>
    rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(event.target.value.toLowerCase())));
  return [el("label", { class: "filter" }, "Find ", el("input", { type: "search", oninput: filter })), made];
}
