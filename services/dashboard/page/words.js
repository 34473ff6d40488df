// Numbers and names as the page shows them.

const NOTHING = "–";
const finite = (value) => typeof value === "number" && Number.isFinite(value);

// At most `digits` significant digits, without trailing zeros: 0.531, 17, 12,400.
function number(value, digits = 3) {
  if (!finite(value)) return NOTHING;
  let text;
  if (value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e7)) {
    const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    text = value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: places });
  } else text = value.toExponential(digits - 1);
  return text === "-0" ? "0" : text.replace(/-/g, "\u2212");
}

// 42.6%. What is not quite all or nothing is not rounded to it.
function percent(value) {
  if (!finite(value)) return NOTHING;
  const text = (100 * value).toFixed(1);
  if (text === "100.0" && value < 1) return "> 99.9%";
  if (text === "0.0" && value > 0) return "< 0.1%";
  return text.replace("-", "\u2212") + "%";
}

function duration(seconds) {
  if (!finite(seconds) || seconds < 0) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.1) return number(1000 * seconds) + " ms";
  if (seconds < 10) return seconds.toFixed(seconds < 1 ? 2 : 1) + " s";
  const whole = Math.round(seconds);
  const [minutes, rest] = [Math.floor(whole / 60), whole % 60];
  if (minutes < 60) return minutes ? `${minutes} min ${String(rest).padStart(2, "0")} s` : `${rest} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : count(Math.floor(hours / 24)) + " days";
}

// With its sign, to so many digits after the point, or to three significant ones.
function signed(value, places) {
  if (!finite(value)) return NOTHING;
  const text = places === undefined ? number(value) : value.toFixed(places).replace("-", "\u2212");
  return Number(text.replace("\u2212", "-")) === 0 ? text.replace("\u2212", "") : (value > 0 ? "+" : "") + text;
}

const count = (value) => (finite(value) ? Math.round(value).toLocaleString("en") : NOTHING);
const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
const ago = (time, now) => (time ? duration(Math.max(0, Math.round(now - time))) + " ago" : NOTHING);
// A difference of two shares in percentage points.
const points = (value) => signed(100 * value, 1);
// 12,000,000 has no room beneath a chart.
const compact = new Intl.NumberFormat("en", { notation: "compact" });
const inShort = (value) => (value < 1e5 ? value.toLocaleString("en") : compact.format(value));
// Beside an axis there is no room, and values are round.
const onAxis = new Map([
  [percent, (value) => number(100 * value) + "%"],
  [duration, (value) => number(value) + " s"],
]);

// One end of an interval of shares; like `percent`, it is 0 or 100 only when it is just that.
const end = (share) =>
  (100 * (share === 0 || share === 1 ? share : Math.min(0.999, Math.max(0.001, share)))).toFixed(1) + "%";
const interval = (rate) => (finite(rate?.low) ? `${end(rate.low)} to ${end(rate.high)}` : NOTHING);
const rateText = (rate) => (rate ? `${percent(rate.value)} (${interval(rate)})` : NOTHING);
const shareText = (some, all) => (all ? `${count(some)} (${percent(some / all)})` : NOTHING);
const spread = (found) =>
  found ? `${number(found.mean)} (${number(found.p50)} · ${number(found.p90)} · ${number(found.p99)})` : NOTHING;

// ------------------------------------------------------------------------------------ codes of graders, in words

const STAGE_NAMES = {
  extract: "search for an answer",
  types: "type check",
  check: "compiler",
  compile: "compiler",
  clippy: "lints",
  score: "score",
};
const stageWords = (stage) => STAGE_NAMES[stage] ?? stage;
// All stories are scored: the last stage stops none.
function stoppedAt(stage) {
  if (stage === "score") return "scored, did not pass";
  return `stopped at ${Object.hasOwn(STAGE_NAMES, stage) || stage === "tests" ? "the " : ""}${stageWords(stage)}`;
}

// Causes and flags, as docs/reference/results.md lists them.
const CODE_WORDS = {
  ...{ extract: "no answer found", types: "type error", check: "does not compile", compile: "does not compile" },
  ...{ clippy: "lints", tests: "tests failed", score: "below the mark", unknown: "for an unknown reason" },
  ...{ "types:mismatch": "type error", "types:syntax": "syntax error", "types:unbound": "unknown name" },
  ...{ "types:unbound module": "unknown module", "check:syntax": "syntax error" },
  ...{ "tests:assertion": "wrong result", "tests:exception": "exception in a test", "tests:stack": "stack overflow" },
  ...{ "tests:ended early": "ended before its tests did", "tests:limit": "limit reached in the tests" },
  ...{ "degenerate:empty": "nothing but comments", "degenerate:repetition": "repeats itself" },
  ...{ "degenerate:prose": "more prose than code", "degenerate:code_spam": "too many code blocks" },
  ...{ "degenerate:stub": "only a stub", "forged:report": "forged a test report", "compiler:crash": "crashed the compiler" },
  ...{ "extract:unclosed_think": "thinking does not end", "extract:unclosed_fence": "code fence does not end" },
  ...{ "extract:ignored_file": "file that the task does not allow", visibility: "private, made public" },
  ...{ "story:hidden_characters": "hidden characters", "story:mixed_scripts": "mixed scripts" },
  ...{ "story:message_to_judge": "addresses the judge", "story:too_long": "story too long" },
  ...{ "story:empty_benefit": "empty benefit", "think:unclosed": "thinking does not end" },
  ...{ "think:twice": "thinks twice", "think:nested": "nested thinking", "meaning:contradicts": "contradicts its reference" },
  ...{ "preference:cut": "text cut at its start", "preference:control_tokens": "control tokens" },
};
const FAMILY_WORDS = {
  ...{ forbidden: "forbidden: ", limit: "limit reached: ", fault: "not judged: ", generation: "not written: " },
  ...{ check: "compiler error ", clippy: "lint ", types: "type error ", compile: "compiler error ", meaning: "weak " },
};

// Words for a code such as `types:mismatch`. One that is not known keeps its own, without colons and underscores.
function inWords(code) {
  if (Object.hasOwn(CODE_WORDS, code)) return CODE_WORDS[code];
  const [family, ...rest] = String(code).split(":");
  const detail = rest.join(": ").replaceAll("_", " ");
  if (detail === "limit") return "limit reached in " + stageWords(family);
  if (detail && Object.hasOwn(FAMILY_WORDS, family)) return FAMILY_WORDS[family] + detail;
  return detail ? `${family}: ${detail}` : family.replaceAll("_", " ");
}
