// Which series of a run are drawn, how they are called, and in which size. One list for a run and for comparisons.
import { duration, number, percent } from "./words.js";

export const FULL = [0, 1];
export const PARTS = [0, 1, 2, 3, 4, 5].map((n) => "part-" + n);
export const DASHES = [null, "7 4", "2 3", "10 3 2 3", "4 2", "1 4"];

// key, title, show, and what else a chart needs.
export const SINGLE = [
  ["gradus/passed", "Pass rate in training", percent, { range: FULL, note: "of the step's completions" }],
  ["loss", "Loss", number, {}],
  ["grad_norm", "Gradient norm", number, { log: true }],
  ["learning_rate", "Learning rate", number, {}],
  ["entropy", "Entropy", number, { note: "how undecided the model is about its next token" }],
  ["kl", "KL to the reference", number, {}],
  [
    "frac_reward_zero_std",
    "Groups without signal",
    percent,
    { range: FULL, note: "prompts whose completions all earned the same" },
  ],
  ["completions/clipped_ratio", "Cut off", percent, { range: FULL, note: "completions that reached the length limit" }],
  ["gradus/faulted", "Faulted", percent, { range: FULL, note: "completions that could not be judged" }],
];
// Drawn only where they have something to say.
export const ONLY_IF_NOT_ZERO = new Set(["gradus/faulted", "completions/clipped_ratio", "kl"]);
export const CLIPPED = [
  ["clip_ratio/region_mean", "all"],
  ["clip_ratio", "all"],
  ["clip_ratio/high_mean", "above"],
  ["clip_ratio/low_mean", "below"],
];

export const SUPERVISED = [
  ["learning_rate", "Learning rate", number, {}],
  ["grad_norm", "Gradient norm", number, { log: true }],
  ["entropy", "Entropy", number, {}],
  ["mean_token_accuracy", "Tokens predicted right", percent, { range: FULL }],
  ["rewards/accuracies", "Pairs ranked right", percent, { range: FULL }],
  ["rewards/margins", "Margin of rewards", number, {}],
  ["accuracy", "Pairs ranked right by the reward model", percent, { range: FULL }],
  ["margin", "Margin of the reward model", number, {}],
  ["eval_perplexity", "Perplexity, held out", number, {}],
  ["length", "Length of blocks", number, { note: "tokens" }],
  ["num_tokens", "Tokens seen", number, {}],
];

export const COMPARED = [
  ["reward", "Reward", number, { range: FULL }, "large"],
  ["eval_loss", "Loss on what was held out", number, {}, "medium"],
  ...SINGLE.slice(0, 8).map((one) => [...one, "medium"]),
  ["completions/mean_length", "Completion length", number, { note: "tokens" }, "medium"],
  ["step_time", "Time per step", duration, {}, "medium"],
];

export const LENGTHS = ["mean", "max", "min"];
export const TIMES = ["generate", "grade", "update"];
export const PARITY = [
  ["generation/sync_logprob_difference_max", "after a sync, largest"],
  ["sampling/sampling_logp_difference/max", "of sampled tokens, largest"],
  ["sampling/sampling_logp_difference/mean", "of sampled tokens, mean"],
];

export const REPAIRED = ["turns/repaired", "repaired, of those asked again"];

const TAKEN = new Set([
  ...[...SINGLE, ...PARITY, ...CLIPPED, REPAIRED].map(([key]) => key),
  ...TIMES.map((part) => `time/${part}_s`),
  ...LENGTHS.map((stat) => `completions/${stat}_length`),
  ...["reward", "reward_std", "rewards/gradus/mean", "rewards/gradus/std", "gradus/cached"],
  ...["step_time", "time", "epoch", "eval_loss", "num_tokens"],
]);
const FAMILIES = [
  ...["gradus/component/", "gradus/stage/", "gradus/flag/"],
  ...["turns/pass_by_", "turns/tokens_", "turns/stopped/"],
];
export const isFurther = (name) => !TAKEN.has(name) && !FAMILIES.some((prefix) => name.startsWith(prefix));

export const family = (values, prefix) =>
  Object.keys(values)
    .filter((name) => name.startsWith(prefix))
    .sort();
export const anything = (column) => (column ?? []).some((value) => value !== null && value !== 0);
export const some = (column) => (column ?? []).some((value) => value !== null);
// An axis that series are drawn over has a name and, by step, a value.
export const AXES = { step: "steps", tokens: "tokens", time: "time" };
export function axisOf(log, axis) {
  const { steps, values } = log;
  if (axis === "tokens") return { xName: "tokens", at: along(steps, values.num_tokens) };
  const times = values.time ?? [];
  const start = times.find((value) => value !== null);
  const [xName, unit] = times.at(-1) - start > 3 * 3600 ? ["hours", 3600] : ["minutes", 60];
  const spent = times.map((value) => value && (value - start) / unit);
  return { xName, fractions: true, at: along(steps, spent) };
}
// The value at a step, on a straight line between the steps that have one; null outside of them.
function along(steps, column) {
  const known = steps.map((step, n) => [step, column?.[n] ?? null]).filter(([, value]) => value !== null);
  return (step) => {
    const n = known.findIndex(([at]) => at >= step);
    if (n < 0) return null;
    const [[before, low], [after, high]] = [known[Math.max(0, n - 1)], known[n]];
    if (after === step) return high;
    return n === 0 ? null : low + ((high - low) * (step - before)) / (after - before);
  };
}
export const last = (column) => [...(column ?? [])].reverse().find((value) => value !== null) ?? null;
