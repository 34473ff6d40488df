// Which figures of a run are drawn, how they are called, and in which size. One list for a run and for comparisons.
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
  ["gradus/cached", "Verdicts from the cache", percent, { range: FULL }],
];
// Drawn only where they have something to say.
export const ONLY_IF_NOT_ZERO = new Set(["gradus/faulted", "completions/clipped_ratio", "kl"]);

export const SUPERVISED = [
  ["learning_rate", "Learning rate", number, {}],
  ["grad_norm", "Gradient norm", number, { log: true }],
  ["entropy", "Entropy", number, {}],
  ["mean_token_accuracy", "Tokens predicted right", percent, { range: FULL }],
  ["rewards/accuracies", "Pairs ranked right", percent, { range: FULL }],
  ["rewards/margins", "Margin of rewards", number, {}],
  ["accuracy", "Pairs ranked right by the reward model", percent, { range: FULL }],
  ["margin", "Margin of the reward model", number, {}],
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

const TAKEN = new Set([
  ...SINGLE.map(([key]) => key),
  ...PARITY.map(([key]) => key),
  ...TIMES.map((part) => `time/${part}_s`),
  ...LENGTHS.map((stat) => `completions/${stat}_length`),
  "reward",
  "reward_std",
  "step_time",
  "time",
  "epoch",
  "eval_loss",
  "rewards/gradus/mean",
  "rewards/gradus/std",
]);
const FAMILIES = ["gradus/component/", "gradus/stage/", "gradus/flag/"];
export const isFurther = (name) => !TAKEN.has(name) && !FAMILIES.some((prefix) => name.startsWith(prefix));

export const family = (values, prefix) =>
  Object.keys(values)
    .filter((name) => name.startsWith(prefix))
    .sort();
export const anything = (column) => (column ?? []).some((value) => value !== null && value !== 0);
export const some = (column) => (column ?? []).some((value) => value !== null);
export const last = (column) => [...(column ?? [])].reverse().find((value) => value !== null) ?? null;
