// Which logged series are drawn, and how they are called. One list for every way of training, and for comparisons.

const FULL = [0, 1];
const PARTS = [0, 1, 2, 3, 4, 5].map((n) => "part-" + n);
const share = { show: percent, range: FULL };
const both = (key) => [
  [key, "training"],
  ["eval_" + key, "held out"],
];

// Title, [key, name] of each line, and what else the chart needs. The first line is the one that runs are compared by.
const CHARTS = [
  ["Pass rate", [["gradus/passed"]], { ...share, note: "of the step's completions" }],
  ["Loss", both("loss"), {}],
  ["KL to the reference", [["kl"]], {}],
  ["Entropy", [["entropy"]], { note: "how undecided the model is about its next token" }],
  ["Gradient norm", [["grad_norm"]], { log: true }],
  ["Learning rate", [["learning_rate"]], {}],
  ["Groups without signal", [["frac_reward_zero_std"]], { ...share, note: "all completions earned the same" }],
  ["Cut off", [["completions/clipped_ratio"]], { ...share, note: "completions that reached the length limit" }],
  ["Faulted", [["gradus/faulted"]], { ...share, note: "completions that could not be judged" }],
  ["Completion length", ["mean", "max", "min"].map((one) => [`completions/${one}_length`, one]), { note: "tokens" }],
  [
    "Clipped updates",
    [
      ["clip_ratio/region_mean", "all"],
      ["clip_ratio/high_mean", "above"],
      ["clip_ratio/low_mean", "below"],
    ],
    { show: percent, note: "tokens whose ratio was clipped" },
  ],
  [
    "Trainer against generation server",
    [
      ["generation/sync_logprob_difference_max", "after a sync, largest"],
      ["sampling/sampling_logp_difference/max", "of sampled tokens, largest"],
      ["sampling/sampling_logp_difference/mean", "of sampled tokens, mean"],
    ],
    { log: true, note: "difference of log-probabilities" },
  ],
  ["Tokens predicted right", both("mean_token_accuracy"), share],
  ["Pairs ranked right", both("rewards/accuracies"), share],
  ["Margin of rewards", both("rewards/margins"), {}],
  ["Pairs ranked right by the reward model", both("accuracy"), share],
  ["Margin of the reward model", both("margin"), {}],
  ["Perplexity, held out", [["eval_perplexity"]], {}],
  ["Time per step", [["step_time"]], { show: duration }],
];

// Title, how keys begin, a word before the rest of the key, and what else the chart needs.
const FAMILIES = [
  ["Parts of the reward", "gradus/component/", "", { isStacked: true }],
  ["Flags", "gradus/flag/", "", { show: percent, note: "share of the verdicts", isNamed: true }],
  ["Pass rate by turn", "turns/pass_by_", "by turn ", share],
  ["Tokens per turn", "turns/tokens_", "turn ", {}],
  ["Why chains end", "turns/stopped/", "", { ...share, isStacked: true }],
  ["Parts of a step", "time/", "", { show: duration, isStacked: true }],
];

// The value of an axis by step: null where there is none.
const AXES = {
  step: ["steps", (step) => step],
  epoch: ["epochs", (_, row) => row.epoch],
  tokens: ["tokens", (_, row) => row.num_tokens],
  time: ["minutes", (_, row) => (finite(row.time) ? row.time / 60 : null)],
};

const some = (column) => (column ?? []).some((value) => value !== null);
// What runs are compared by beside CHARTS.
const REWARD = ["Reward", [["reward"]], { range: FULL }];
const HELD_OUT = ["Loss on what was held out", [["eval_loss"]], {}];
const DASHES = [undefined, [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [1, 4]];

// Zeros of these are figures: of a run in which all fails there is nothing else.
const ZERO_COUNTS = new Set(["reward", "gradus/passed"]);
const isDrawn = (key, values) =>
  (values[key] ?? []).some((value) => value !== null && (value !== 0 || ZERO_COUNTS.has(key)));
const last = (column) => [...(column ?? [])].reverse().find((value) => value !== null) ?? null;

// The lines of a chart, of those series that hold anything; held-out values are measured now and then.
function linesOf(keys, values) {
  const known = keys.filter(([key]) => isDrawn(key, values));
  const measured = ([key]) => key.startsWith("eval_");
  const line = (one, n) => ({ name: one[1], colour: one[1] ? PARTS[n % 6] : "after", y: values[one[0]], measured: measured(one) });
  return known.map(line);
}

function familyLines(prefix, word, values) {
  const keys = Object.keys(values).filter((key) => key.startsWith(prefix) && isDrawn(key, values));
  // What does not occur in a step is not logged.
  const filled = (value, n) => value ?? (finite(values.reward?.[n]) ? 0 : null);
  const isPart = prefix === "gradus/component/";
  return keys.sort().map((key, n) => ({
    name: word + key.slice(prefix.length).replace(/_s$/, ""),
    colour: isPart ? partColour(key.slice(prefix.length), n) : PARTS[n % 6],
    dash: n < 6 ? undefined : [5, 3],
    y: values[key].map(filled),
  }));
}

function running(column) {
  const window = Math.max(2, Math.floor(column.length / 10));
  return column.map((value, n) => {
    const kept = column.slice(Math.max(0, n - window + 1), n + 1).filter(finite);
    return value === null ? null : kept.reduce((sum, one) => sum + one, 0) / kept.length;
  });
}

// All charts of a log: Reward first, which is large.
function drawLog({ steps: x, values, steps_per_point: width }, draw) {
  const { reward = [], reward_std: spread = [] } = values;
  const around = (sign) => reward.map((mean, n) => (finite(mean) && finite(spread[n]) ? mean + sign * spread[n] : null));
  const more = spread.map((value) => (value === null ? "" : " ± " + number(value)));
  draw("Reward", "large", {
    x,
    range: FULL,
    note: [width > 1 && `each point is the mean of ${width} steps`, spread.length && "the band is one standard deviation"]
      .filter(Boolean)
      .join("; "),
    lines: [
      { name: "reward", colour: "after", faint: true, y: reward, low: around(-1), high: around(1), more },
      { name: "running mean", colour: "after", bold: true, y: running(reward), silent: true },
    ],
  });
  for (const [title, keys, more_] of CHARTS) draw(title, "small", { x, ...more_, lines: linesOf(keys, values) });
  for (const [title, prefix, word, more_] of FAMILIES)
    draw(title, "small", { x, ...more_, lines: familyLines(prefix, word, values) });
}

const DRAWN = new Set([...CHARTS.flatMap(([, keys]) => keys.map(([key]) => key)), "reward", "reward_std", "time", "epoch"]);
const isFurther = (key) => !DRAWN.has(key) && !FAMILIES.some(([, prefix]) => key.startsWith(prefix));
