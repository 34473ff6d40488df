// Completions with what graders said of them, alone, side by side, and chosen from evaluations; and faults.

const codeBlock = (attributes, ...parts) => el("pre", { dir: "ltr", ...attributes }, el("code", parts));

const promptBlock = (prompt, leftOut) =>
  codeBlock({ class: "prompt" }, prompt + (leftOut ? ` […${count(leftOut)} more characters]` : ""));

// `spans`: the text in pieces, with those marked that differ; `more`: what follows the rest.
function completion(sample, name, { kind = "", spans = null, source = "completions.jsonl", more = null } = {}) {
  const { passed, components, flags } = sample;
  const marked = spans?.map(([text, changed]) => (changed ? el("mark", text) : text));
  return el(
    "section",
    { class: `completion ${kind} ${passed ? "passed" : "failed"}`, "aria-label": "Completion " + name },
    verdict(sample, name),
    reason(sample),
    codeBlock({}, sample.completion ? (marked ?? highlighted(sample.completion)) : el("em", "an empty completion")),
    sample.left_out > 0 && el("p.note", `${count(sample.left_out)} more characters are in ${source}`),
    rewardParts(Object.entries(components)),
    flags.length > 0 && list("ul.flags", flags, { "aria-label": "Flags" }),
    furtherDiagnostics(sample),
    more,
  );
}

function verdict(sample, name) {
  const text = sample.fault ? "faulted" : sample.passed ? "passed" : "stopped at " + sample.stage;
  const facts = [
    sample.fault ? "" : "reward " + number(sample.reward),
    sample.advantage === null ? "" : "advantage " + signed(sample.advantage),
    sample.tests ? `${sample.tests.passed} of ${sample.tests.total} tests` : "",
    sample.cached ? "from the cache" : "",
  ];
  const mark = el("span", { "aria-hidden": "true" }, sample.passed ? "✓ " : "✗ ");
  const badge = el("span.badge", mark, text + (sample.cut_off ? ", cut off at the limit" : ""));
  return el("h4.verdict", el("span.name", name), badge, el("span.note", facts.filter(Boolean).join(" · ")));
}

const diagnosticLine = (one) => `${one.stage}${one.line === null ? "" : ", line " + one.line}: ${one.message}`;

function reason(sample) {
  if (sample.fault) return el("p.reason", `Not graded, ${sample.fault.kind}: ${sample.fault.message}`);
  const [first] = sample.diagnostics;
  return first && el("p.reason", diagnosticLine(first).split("\n").slice(0, 8).join("\n"));
}

function rewardParts(parts) {
  const width = (value) => Math.min(100, Math.max(0, 100 * value)) + "%";
  const style = (n) => PARTS[n % PARTS.length];
  const bar = ([, value], n) => value > 0 && el("span", { class: "fill " + style(n), style: { width: width(value) } });
  const key = (n) => el("span", { class: "key " + style(n), "aria-hidden": "true" });
  const items = parts.map(([name, value], n) => [key(n), `${name} ${number(value)}`]);
  const legend = list("ul.legend", items, { "aria-label": "Parts of the reward" });
  return parts.length > 0 && [el("div.parts-rail", { "aria-hidden": "true" }, parts.map(bar)), legend];
}

function furtherDiagnostics(sample) {
  const rest = sample.diagnostics.slice(1).map(diagnosticLine);
  const more = sample.more_diagnostics;
  const all = list("ul.diagnostics", more > 0 ? [...rest, `and ${more} more`] : rest);
  return all.children.length > 0 && el("details", el("summary", `${rest.length + more} more diagnostics`), all);
}

// ------------------------------------------------------------------------------------------------ of evaluations

function exampleGroups(groups) {
  return groups.map(({ title, tasks, cards }) =>
    el(
      "details.group",
      { open: title !== "Right both times" },
      el("summary", el("h3", title), el("span.note", `${counted(tasks, "task")}, ${cards.length} shown`)),
      cards.map(exampleCard),
    ),
  );
}

function exampleCard({ task, prompt, prompt_left_out: leftOut, sides }) {
  const texts = sides.map((side) => side.completion);
  const spans = sides.length === 2 ? difference(...texts) : null;
  const source = ({ name }) => `the completions of “${name}”`;
  const shown = sides.map((side, n) => completion(side, side.name, { spans: spans?.[n], source: source(side) }));
  return el("article.card", el("h4", task), promptBlock(prompt, leftOut), el("div.sides", shown));
}

function faultsTable(faults) {
  if (faults.length === 0) return null;
  const steps = ({ first_step: first, last_step: last }) =>
    first === null ? "" : first === last ? `, step ${count(first)}` : `, steps ${count(first)} to ${count(last)}`;
  const caption = "Faults that say the same are counted together; the message is the first one's";
  const rows = faults.map((one) => [
    one.where + steps(one),
    one.kind,
    count(one.count),
    el("span.message", one.message.split("\n").slice(0, 10).join("\n").slice(0, 600)),
  ]);
  return table(caption, ["where", "kind", "count", "message"], rows);
}

// ---------------------------------------------------------------------------------------------------------- texts

// Strings and numbers told apart, by patterns that hold for most languages, and no parser.
const CODE_TOKEN = /(?<string>"(?:\\[\s\S]|[^"\\\n])*")|(?<number>\b[0-9][0-9A-Za-z_.]*)/g;
const MOST_CODE_CHARS = 20_000;

function highlighted(text) {
  if (text.length > MOST_CODE_CHARS) return [text];
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(CODE_TOKEN)) {
    const kind = found.groups.string ? "code-s" : "code-n";
    parts.push(text.slice(end, found.index), el("span", { class: kind }, found[0]));
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

// What differs between two texts, word by word: the longest common subsequence of their tokens.
const MOST_TOKENS = 1500;
const LEAST_LIKENESS = 0.4;
const TOKEN = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;

// Both texts as lists of [text, changed]; null where they are too long to compare, or have next to nothing in common.
function difference(before, after) {
  const [a, b] = [before.match(TOKEN) ?? [], after.match(TOKEN) ?? []];
  if (a.length > MOST_TOKENS || b.length > MOST_TOKENS) return null;
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  if (2 * common[0] < LEAST_LIKENESS * (a.length + b.length)) return null;
  const [left, right] = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pushSpan(left, a[i++], false);
      pushSpan(right, b[j++], false);
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1]))
      pushSpan(left, a[i++], true);
    else pushSpan(right, b[j++], true);
  }
  return [left, right];
}

function pushSpan(spans, text, changed) {
  const end = spans.at(-1);
  if (end && end[1] === changed) end[0] += text;
  else spans.push([text, changed]);
}
