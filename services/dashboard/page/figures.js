// What evaluations found: headline, rates with their intervals, changes, tables. For one evaluation, or two of the same tasks.

// What pages state first, by what the grader's tasks name (`Task.HEADLINE`); `key` is its name in comparisons.
const FIRST_FIGURES = {
  pass_rate: {
    ...{ name: "pass rate", key: "pass_rate", value: "pass_rate", low: "low", high: "high" },
    ...{ how: share, note: "pass@1, with its 95% interval", unit: " percentage points" },
    of: (m) => m.pass_at?.["1"],
    text: percent,
    interval,
    change: points,
    marks: (left) => left + "%",
    says: (model, rate, tasks) => `${model} passes ${percent(rate.value)} of ${tasks}.`,
  },
  mean_reward: {
    ...{ name: "mean reward", key: "reward", value: "reward", low: "reward_low", high: "reward_high" },
    ...{ how: { range: FULL }, note: "with its 95% interval", unit: " of mean reward" },
    of: (m) => m.mean_reward,
    text: (value) => (finite(value) ? value.toFixed(3) : NOTHING),
    interval: (rate) => `${rate.low.toFixed(3)} to ${rate.high.toFixed(3)}`,
    change: (value) => signed(value, 3),
    marks: (left) => number(left / 100),
    says: (model, rate, tasks) => `${model} earns a mean reward of ${rate.value.toFixed(3)} on ${tasks}.`,
  },
};
const firstFigure = (measured) => FIRST_FIGURES[measured.at(-1)?.headline ?? "pass_rate"];
const MODES = ["sampled", "greedy"];
const STAGE_WORDS = { extract: "an answer was found", types: "it type-checks", compile: "it compiles" };
const RATE_WORDS = {
  ...{ types: "type-checks", compile: "compiles", tests: "passes every test", check: "compiles" },
  ...{ clippy: "no lint", stories: "has stories", complete: "passes: every reference is answered" },
};
const MOST_ROWS = 200;
const MOST_LEVELS = 40;
const CUT_OFF_WARNING = 0.05;

const measuredIn = (evaluation, mode) => evaluation.measurements.find((one) => one.mode === mode);
const entries = (given) => Object.entries(given ?? {});
const keys = (columns, of) => [...new Set(columns.flatMap((one) => Object.keys(of(one) ?? {})))];

function described(measurement) {
  if (measurement.mode === "greedy") return "Greedy, one completion per task";
  return `${counted(measurement.samples, "completion")} per task at temperature ${number(measurement.temperature)}`;
}

// The ways of sampling of one evaluation, or the first that two both have: {name, style, m, evaluation}.
function columnsOf(measured) {
  if (measured.length === 1)
    return measured[0].measurements.map((m) => ({ name: described(m), style: "after", m, evaluation: measured[0] }));
  const mode = MODES.find((one) => measured.every((evaluation) => measuredIn(evaluation, one)));
  const column = (evaluation, n) => ({ name: evaluation.name, style: n ? "after" : "before", evaluation });
  return measured.map((one, n) => ({ ...column(one, n), m: measuredIn(one, mode) })).filter(({ m }) => m);
}

// ----------------------------------------------------------------------------------------------------- at the top

const tone = ({ low, high }) => (low > 0 ? "up" : high < 0 ? "down" : "flat");
const pValue = ({ p_value: p }) => (p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`).replace(/ /g, "\u00a0");

// `tasks`: how they are called; `unmeasured`: what to say where nothing was.
function headline(measured, comparisons, tasks) {
  const [found] = comparisons;
  const first = firstFigure(measured);
  if (found) {
    const { before, after, change } = found[first.key];
    const on = `on ${count(found.tasks)} ${tasks}${found.tasks === 1 ? "" : "s"}`;
    const names = measured.map((one) => one.name);
    const how = found.mode === "greedy" ? "Greedy" : `${counted(found.after.samples, "completion")} per task`;
    const text = {
      up: `The ${first.name} ${on} rose from ${first.text(before)} to ${first.text(after)}.`,
      down: `The ${first.name} ${on} fell from ${first.text(before)} to ${first.text(after)}.`,
      flat: `The ${first.name} ${on} did not change measurably: ${first.text(before)} for ${names[0]}, ${first.text(after)} for ${names[1]}.`,
    }[tone(change)];
    const ends = `95% interval ${first.change(change.low)} to ${first.change(change.high)}`;
    const test = first.key === "pass_rate" ? `; ${found.test.method}, ${pValue(found.test)}` : "";
    const lead = `${first.change(change.value)}${first.unit}, ${ends}. ${how}${test}.`;
    return [text, lead, tone(change)];
  }
  for (const mode of MODES)
    for (const evaluation of [...measured].reverse()) {
      const m = measuredIn(evaluation, mode);
      const rate = m && first.of(m);
      if (!rate) continue;
      const text = first.says(evaluation.model || "The model", rate, counted(m.tasks, tasks));
      const sure = measured.length > 1 ? " gradus report and gradus compare say how sure a difference is." : "";
      const lead = `95% interval ${first.interval(rate)}. ${described(m)}.${sure}`;
      return [text, lead, "none", measured.length > 1 ? null : mode];
    }
  return [`What the model can do on ${tasks}s was not measured.`, "", "none"];
}

function hero(measured, comparisons, { tasks = "task", cards = [] } = {}) {
  const [text, lead, how, told] = headline(measured, comparisons, tasks);
  const panels = MODES.map((mode) => panel(measured, comparisons, mode, mode === told)).filter(Boolean);
  return el(
    "section.hero",
    { "aria-labelledby": "figures" },
    el("h2", { id: "figures", class: "headline " + how }, text),
    lead && el("p.lead", lead),
    cards.length > 0 && facts(cards, "cards"),
    panels.length > 0 && el("div.panels", panels),
  );
}

// One way of sampling. `isTold`: its rate stands in the headline.
function panel(measured, comparisons, mode, isTold) {
  const shown = measured.map((one) => [one, measuredIn(one, mode)]).filter(([, m]) => m);
  if (shown.length === 0) return null;
  const found = comparisons.find((one) => one.mode === mode);
  const first = firstFigure(measured);
  const change = found?.[first.key].change;
  const { gained, lost } = found?.test ?? {};
  const title = described(shown.at(-1)[1]);
  const marks = [0, 25, 50, 75, 100].map((left) => el("span", { style: { left: left + "%" } }, first.marks(left)));
  return el(
    "article.panel",
    el("h3", title),
    shown.map(([one, m], n) => rateBar(first, one.name, m, shown.length === 2 && n === 0 ? "before" : "after", isTold)),
    el("div.scale", { "aria-hidden": "true" }, marks),
    change &&
      el(
        "p",
        { class: "change " + tone(change) },
        el("strong", first.change(change.value)),
        first.unit,
        el(
          "span.note",
          `95% interval ${first.change(change.low)} to ${first.change(change.high)}, on tasks judged both times`,
        ),
      ),
    furtherRates(first, shown, title),
    fallbacks([
      ...shown.flatMap(([one, m]) => ratesOf(m).map(([label, rate]) => [shown.length > 1 ? `${label} of ${one.name}` : label, rate])),
      ["change of pass@1", found?.pass_rate.change],
      ["change of the reward", found?.reward.change],
    ]),
    finite(gained) &&
      el(
        "p.note",
        `Of the tasks judged both times, ${count(gained)} turned from wrong to right and ${count(lost)} from right to wrong ` +
          `(${found.test.method}, ${pValue(found.test)}).`,
      ),
  );
}

function rateBar(first, name, m, style, isTold) {
  const rate = first.of(m);
  const at = (share) => 100 * Math.min(1, Math.max(0, share)) + "%";
  const basis = `${count(m.passed)} of ${counted(m.graded, "verdict")} passed`;
  return el(
    "div",
    { class: "rate " + style },
    el("p.figure", el("span.name", name), !isTold && el("strong", first.text(rate?.value))),
    el(
      "div.track",
      { "aria-hidden": "true" },
      rate && el("span.interval", { style: { left: at(rate.low), width: at(rate.high - rate.low) } }),
      rate && el("span.point", { style: { left: at(rate.value) } }),
    ),
    el("p.note", (rate ? (isTold ? "" : `95% interval ${first.interval(rate)} · `) : "nothing was graded · ") + basis),
  );
}

const ratesOf = (m) => [
  ...entries(m.pass_at).map(([k, rate]) => [`pass@${k}`, rate]),
  ["mean reward", m.mean_reward],
];

// The methods of intervals that are fallbacks, with their reasons. `rates` are [label, rate].
function fallbacks(rates) {
  const labels = new Map();
  for (const [label, rate] of rates) {
    const method = String(rate?.method ?? "");
    if (method.includes(":")) labels.set(method, [...(labels.get(method) ?? []), label]);
  }
  const texts = [...labels].map(([method, of]) => `${[...new Set(of)].join(", ")} – ${method}`);
  return texts.length > 0 && el("p.note", `Intervals by a fallback: ${texts.join("; ")}.`);
}

// Resampling values that are all alike shows no spread, and says nothing about how sure one can be.
function rewardText(rate) {
  if (!rate) return NOTHING;
  const [value, low, high] = [rate.value, rate.low, rate.high].map((one) => one.toFixed(3));
  return rate.low === rate.high ? `${value} (all alike)` : `${value} (${low} to ${high})`;
}

function furtherRates(first, shown, title) {
  const cells = (of) => shown.map(([, m]) => of(m));
  const ks = [...new Set(cells((m) => Object.keys(m.pass_at ?? {})).flat())].map(Number);
  const further = ks.filter((k) => k > 1 || first.key !== "pass_rate").sort((a, b) => a - b);
  const rows = further.map((k) => [`pass@${k}`, ...cells((m) => rateText(m.pass_at?.[k]))]);
  if (first.key === "pass_rate") rows.push(["mean reward", ...cells((m) => rewardText(m.mean_reward))]);
  for (const [name, key] of Object.entries({ "faults, in no rate": "faulted", "tasks without a verdict": "unjudged" }))
    if (cells((m) => m[key]).some((value) => value > 0)) rows.push([name, ...cells((m) => count(m[key]))]);
  const made = table("Further figures, " + title, ["", ...shown.map(([one]) => one.name)], rows);
  made.classList.add("others");
  made.querySelector("caption").className = "unseen";
  return made;
}

// --------------------------------------------------------------------------------------------------------- tables

// Rows are [label, cell of a column: a text or a rate]; a row without any value, and one of nothing but zeros, is left out.
function matrix(caption, columns, rows) {
  const made = rows.map(([label, cell]) => [label, ...columns.map(cell)]);
  const texts = made.map(([label, ...cells]) => [label, ...cells.map((one) => (isText(one) ? one : rateText(one)))]);
  const kept = texts.filter(([, ...cells]) => cells.some((one) => one !== NOTHING && one !== "0"));
  const rates = made.flatMap(([label, ...cells]) => cells.map((one) => [label, one]));
  return kept.length > 0 && [table(caption, ["", ...columns.map((one) => one.name)], kept), fallbacks(rates)];
}
const isText = (value) => typeof value === "string";

function levels(caption, first, columns, rows) {
  const shares = (cell) => columns.map((column) => ({ style: column.style, ...cell(column) }));
  const named = (name, note) => (note ? [name, el("span.note", " " + note)] : name);
  const made = rows
    .slice(0, MOST_LEVELS)
    .map(([name, cell, note]) => ({ name: named(name, note), shares: shares(cell) }));
  const names = columns.map((one) => one.name);
  return made.length > 0 && bars(caption, first, names, made);
}

const part = (some, all) => ({ text: shareText(some, all), share: all ? some / all : 0 });

function funnel(columns) {
  const { stages } = columns.at(-1).evaluation;
  const known = new Set(columns.flatMap(({ m }) => Object.keys(m.stopped_at ?? {})));
  const own = columns.at(-1).evaluation.grader_stages ?? [];
  const order = stages.filter((stage) => own.includes(stage) || known.has(stage));
  const beyond = (m, n) => m.passed + order.slice(n + 1).reduce((sum, stage) => sum + (m.stopped_at?.[stage] ?? 0), 0);
  const text = (stage) => STAGE_WORDS[stage] ?? `it got past ${stage}`;
  const rows = [
    ["verdicts", ({ m }) => part(m.graded, m.graded)],
    ...order.slice(0, -1).map((stage, n) => [text(stage), ({ m }) => part(beyond(m, n), m.graded)]),
    [order.at(-1) === "tests" ? "every test passes" : "passes", ({ m }) => part(m.passed, m.graded)],
  ];
  return levels("Completions that came so far", "level", columns, rows);
}

// The cell of a row: the value at a path in a measurement, a rate or what `show` makes of it.
const at =
  (path, show = (rate) => rate) =>
  ({ m }) =>
    show(path.split(".").reduce((value, name) => value?.[name], m) ?? null);

function rates(columns) {
  const rules = columns.at(-1).evaluation.rules ?? {};
  // What passes stands in the headline.
  const isFirst = (name) => rules[name] === "passed" && columns.at(-1).evaluation.headline === "pass_rate";
  const names = keys(columns, ({ m }) => m.details?.rates).filter((name) => !isFirst(name));
  return matrix("Shares of the verdicts, with 95% intervals over tasks", columns, [
    ...names.map((name) => [RATE_WORDS[name] ?? name, ({ m }) => m.details?.rates?.[name] ?? null]),
    ["tests that pass, on average", at("details.partial_tests")],
    ["cut off at the limit", at("details.truncated", count)],
    ["answers with names that do not exist", at("details.invented.answers")],
    ["assigns or loops (imperative)", at("details.imperative")],
    ["faults, in no rate", at("faulted", count)],
    ["never written, in no rate", ({ m }) => count(unwritten(m))],
  ]);
}

const unwritten = (m) => entries(m.details?.generation_errors).reduce((sum, [, value]) => sum + value, 0);

// Counts by name, the most frequent first, as shares of `all`.
function tally(caption, first, columns, counts, all, words = inWords) {
  const total = (name) => columns.reduce((sum, one) => sum + (counts(one)?.[name] ?? 0), 0);
  const names = keys(columns, counts).sort((a, b) => total(b) - total(a));
  const rows = names.map((name) => [words(name), (one) => part(counts(one)?.[name] ?? 0, all(one))]);
  return levels(caption, first, columns, rows);
}

const asked = ({ m }) => m.graded + m.faulted + unwritten(m);

function groups(columns) {
  return ["difficulty", "kind"].map((column) => {
    const of = ({ m }) => m.details?.groups?.[column] ;
    const names = keys(columns, of);
    if (names.length < 2) return null;
    const cell = (name) => (one) => {
      const found = of(one)?.[name];
      const rate = rateText(found?.rate);
      return { share: found?.rate?.value, text: finite(found?.mean_reward) ? `${rate}, reward ${number(found.mean_reward)}` : rate };
    };
    const tasks = (name) => Math.max(...columns.map((one) => of(one)?.[name]?.tasks ?? 0));
    const rows = names.map((name) => [name, cell(name), counted(tasks(name), "task")]);
    const found = names.flatMap((name) => columns.map((one) => [name, of(one)?.[name]?.rate]));
    return [levels(`Tasks that pass, by ${column}`, column, columns, rows), fallbacks(found)];
  });
}

function speed(columns) {
  const of = (path, show = spread) => at("details." + path, show);
  return matrix("Means, and in brackets p50 · p90 · p99", columns, [
    ["tokens of prompts", of("speed.prompt_tokens", count)],
    ["tokens of completions", of("speed.completion_tokens", count)],
    ["tokens per second, all together", of("speed.tokens_per_s", number)],
    ["seconds per completion", of("speed.latency_s")],
    ["tokens per completion", of("completion_tokens")],
    ["words per completion", of("text.words", number)],
    ["distinct-1, different words of all", of("text.distinct_1", percent)],
    ["distinct-2, of pairs of words", of("text.distinct_2", percent)],
    ["lines of code per answer", of("answer_lines")],
  ]);
}

function turns(columns) {
  const most = Math.max(0, ...columns.map(({ m }) => m.turns?.asked ?? 0));
  const caption = "Answers that did not pass, asked for again with what the grader said; shares are of first answers";
  const solved = Array.from({ length: most }, (_, n) => [`green by turn ${n + 1}`, at(`turns.green_by.${n + 1}`)]);
  const median = (found) => (found?.median_turns === null ? "never" : number(found?.median_turns));
  return matrix(caption, columns, [
    ...solved,
    ["turns to green, median of all", at("turns", median)],
    ["broken off", at("turns.broken", count)],
    ["prompt too long", at("turns.refused", count)],
  ]);
}

// How often each flag was raised; `training`: {flags, graded} of a run's own completions.
function flags(columns, training = null) {
  const sources = columns.map(({ name, m }) => ({ name, flags: m.flags, graded: m.graded }));
  if (training?.graded) sources.push({ name: "in training", ...training });
  const names = keys(sources, (one) => one.flags).sort();
  const rows = names.map((name) => [inWords(name), (one) => shareText(one.flags?.[name] ?? 0, one.graded)]);
  return matrix("Completions that were flagged", sources, rows);
}

// --------------------------------------------------------------------------------------------------------- pages

function notices(texts) {
  const head = el("h2", { id: "notices" }, "Before you rely on this");
  return texts.length > 0 && el("section.notices", { "aria-labelledby": "notices" }, head, list("ul", texts));
}

function warnings(measured) {
  return measured.flatMap((one) => {
    const sum = (of) => one.measurements.reduce((total, m) => total + (of(m) ?? 0), 0);
    const where = measured.length > 1 ? ` of “${one.name}”` : "";
    const [faulted, lost, broken] = [sum((m) => m.faulted), sum(unwritten), sum((m) => m.turns?.broken)];
    const names = [...(one.graders ?? []), ...(one.toolchains ?? [])];
    const judged = names.filter((name) => String(name).includes("unsandboxed"));
    const isCut = (m) => m.details?.truncated > CUT_OFF_WARNING * Math.max(1, m.graded);
    const cut = one.measurements.filter(isCut);
    return [
      faulted > 0 && `${counted(faulted, "completion")}${where} could not be judged and count in no rate: see Faults.`,
      lost > 0 && `${counted(lost, "completion")}${where} were never written and count in no rate: see Faults.`,
      ...cut.map(
        (m) =>
          `${described(m)}${where}: ${counted(m.details.truncated, "completion")} were cut off at ` +
          `${counted(one.max_new_tokens, "token")}. ` +
          "They count as they stand; a higher limit may change the rates.",
      ),
      broken > 0 &&
        `${counted(broken, "chain")} of turns${where} broke off by a fault or a generation error and count as not green. ` +
          "Run the same command again to resume.",
      one.graders?.length > 1 &&
        `Several revisions judged${where}: ${one.graders.join(", ")}. Run gradus eval again to judge alike.`,
      ...judged.map((name) => `Judged without a sandbox${where}: ${name}. Answers could have forged such verdicts.`),
    ].filter(Boolean);
  });
}

// What was measured, [label, how one says it of an evaluation].
const CARD = [
  ["Model", (one) => one.model],
  ["Served", (one) => (one.served ? "by an endpoint" : "in the measuring process")],
  ["Asked as", (one) => ({ chat: "messages of a chat", text: "one text" })[one.asked_as]],
  ["Tasks", (one) => `${one.tasks} (sha256 ${String(one.tasks_sha256).slice(0, 12)})`],
  ["Grader", (one) => one.graders?.join(", ")],
  ["Rubric", (one) => one.rubrics?.join(", ")],
  ["Toolchain", (one) => one.toolchains?.join(", ")],
  ["Sampling", (one) => one.measurements.map(described).join("; ")],
  ["Top p", (one) => finite(one.top_p) && number(one.top_p)],
  ["New tokens, at most", (one) => count(one.max_new_tokens)],
  ["Seed", (one) => String(one.seed)],
  ["Measured", (one) => one.created],
  ["Took", (one) => duration(one.duration_s)],
  ["Machine", ({ machine }) => [machine?.system, machine?.gpu].filter(Boolean).join(", ")],
];

const evaluationCard = (one) => CARD.map(([label, of]) => [label, of(one)]);

const READING = [
  "A task passes when every one of its tests passes. pass@k is the chance that at least one of k completions passes, by the unbiased estimator 1 − C(n−c, k) / C(n, k).",
  "Intervals hold the true value with 95% confidence. With several completions per task they come from a bootstrap over tasks, with one from Wilson's score interval; changes are compared task by task, by a bootstrap that keeps both sides of a task together, or by Newcombe's interval where all tasks changed alike. They cover the choice of tasks and of completions, not of another training seed.",
  "With one completion per task the test is McNemar's, exact; with more, signs of the tasks' changes are flipped at random.",
  "Faults and generation errors are failures of ours and not of the model. They have no reward and are left out of every rate. Completions that were cut off at the limit are judged as they stand.",
  "The reward of a step is the mean over its completions, as the trainer logged it; the band is one standard deviation of those completions.",
  "An answer that does not pass may be asked for again with what the grader said of it. It is green by a turn when every test passed in this turn or an earlier one; what a fault broke off is not green. All other figures are of first answers.",
  "A task that failed both times at the same stage is frozen when its reward moved by less than 0.05.",
  "Tokens per second, all together, are by the time in which anything was being written.",
];

function reading() {
  const words = el("details", el("summary", "What the figures are"), list("ul.words", READING));
  return section("reading", "How to read this", words);
}

const FAULTS =
  "Completions that could not be written or judged: a failure of ours and not of the model. They have no reward and are in no rate.";
const faultsSection = (faults) =>
  faults.length > 0 && section("faults", "Faults", el("p", FAULTS), faultsTable(faults));

const CHOICE =
  "Of each task the middle one by how far its completions came; of more tasks than are shown, those at even distances.";
const samplesSection = (groups) =>
  groups.length > 0 && section("samples", "Completions", el("p.note", CHOICE), exampleGroups(groups));

// All of one evaluation but its completions.
function evaluationSections(evaluation) {
  const columns = columnsOf([evaluation]);
  const causes = tally(
    "Completions that did not pass, by what stopped it; shares are of all that were asked for",
    "cause",
    columns,
    ({ m }) => m.details?.causes,
    asked,
  );
  const names = tally(
    "Names that do not exist, and the answers that have them",
    "name",
    columns,
    ({ m }) => m.details?.invented?.names,
    ({ m }) => m.graded,
    (name) => name,
  );
  const order = evaluation.components ?? [];
  const parts = keys(columns, ({ m }) => m.components).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const cells = parts.map((name) => [name, ({ m }) => number(m.components?.[name])]);
  const flagged = flags(columns);
  const repairs = turns(columns);
  const byGroup = groups(columns).filter(Boolean);
  return [
    hero([evaluation], []),
    notices(warnings([evaluation])),
    section("card", "What was measured", facts(evaluationCard(evaluation))),
    section("funnel", "How far answers come", funnel(columns), el("h3", "Rates"), rates(columns)),
    causes && section("causes", "What stopped the others", causes),
    names && section("names", "Invented names", names),
    repairs && section("turns", "Turns", repairs),
    byGroup.length > 0 && section("groups", "Kinds of task", byGroup),
    section(
      "spread",
      "Lengths and speed",
      speed(columns),
      matrix("Parts of the reward, means over verdicts", columns, cells),
    ),
    flagged && section("flags", "Flags", flagged),
  ];
}

// All of a comparison but its completions; `measured` are both evaluations.
function comparisonSections(measured, comparisons) {
  const [found] = comparisons;
  if (!found) return [hero(measured, [])];
  const names = measured.map((one) => one.name);
  const rewards = ({ change }) => `${signed(change.value, 3)} (${signed(change.low, 3)} to ${signed(change.high, 3)})`;
  const onOneSide = `${count(found.only_before)} before, ${count(found.only_after)} after`;
  const cards = [
    ...entries(found.turns).map(([name, value]) => [name[0].toUpperCase() + name.slice(1), value && count(value)]),
    ["Frozen", found.frozen.length && count(found.frozen.length)],
    ["Change of the reward", rewards(found.reward)],
    ["Judged on one side only", found.only_before + found.only_after > 0 && onOneSide],
  ];
  const doubts = found.warnings.map((text) => `Measured with ${text}: a difference may come from that.`);
  const afters = Object.keys(found.migration).map((stage) => "after: " + stageWords(stage));
  const cells = (row) => Object.keys(found.migration).map((stage) => (row[stage] ? count(row[stage]) : "·"));
  const moved = entries(found.migration).map(([stage, row]) => ["before: " + stageWords(stage), ...cells(row)]);
  const changed = found.problems.filter((one) => one.pass_change || one.reward_change);
  const card = CARD.map(([label, of]) => [label, ...measured.map((one) => of(one) || NOTHING)]);
  const taskRow = ({ before, after, ...one }) => [
    one.id,
    one.kind ?? one.difficulty ?? "",
    one.turn,
    `${before.passed}/${before.graded} → ${after.passed}/${after.graded}`,
    `${number(before.mean_reward)} → ${number(after.mean_reward)} (${signed(one.reward_change, 3)})`,
    `${inWords(before.cause ?? before.stage)} → ${inWords(after.cause ?? after.stage)}`,
  ];
  const shown = changed.slice(0, MOST_ROWS).map(taskRow);
  const frozen = "Frozen: failed both times at the same stage, and the reward moved by less than 0.05";
  const columnsOfTasks = ["task", "kind", "what", "passed", "reward", "stopped"];
  return [
    hero(measured, comparisons, { cards }),
    notices([...doubts, ...warnings(measured)]),
    section("card", "What was compared", table("Both evaluations", ["", ...names], card)),
    section(
      "stages",
      "Where answers stop",
      table("Tasks by where their middle completion stopped, before and after", ["", ...afters], moved),
    ),
    section(
      "changes",
      "Task by task",
      changed.length === 0
        ? el("p.empty", "Nothing changed.")
        : table("The largest gains first, the largest losses last", columnsOfTasks, shown),
      changed.length > MOST_ROWS &&
        el("p.note", `${count(changed.length - MOST_ROWS)} more changed tasks are in the JSON.`),
      found.frozen.length > 0 && el("details", el("summary", frozen), list("ul.flags", found.frozen)),
    ),
  ];
}
