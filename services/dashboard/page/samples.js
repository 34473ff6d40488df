// Completions with what graders said of them, alone, side by side, and chosen from evaluations; and faults.

const codeBlock = (attributes, ...parts) => el("pre", { dir: "ltr", ...attributes }, el("code", parts));

const promptBlock = (prompt, leftOut) =>
  codeBlock({ class: "prompt" }, prompt + (leftOut ? ` […${count(leftOut)} more characters]` : ""));

function completion(sample, name, { kind = "", source = "completions.jsonl" } = {}) {
  const { passed, components, flags } = sample;
  return el(
    "section",
    { class: `completion ${kind} ${passed ? "passed" : "failed"}`, "aria-label": "Completion " + name },
    verdict(sample, name),
    reason(sample),
    codeBlock({}, sample.completion || el("em", "an empty completion")),
    sample.left_out > 0 && el("p.note", `${count(sample.left_out)} more characters are in ${source}`),
    rewardParts(Object.entries(components)),
    flags.length > 0 && list("ul.flags", flags.map(inWords), { "aria-label": "Flags" }),
    furtherDiagnostics(sample),
  );
}

function verdict(sample, name) {
  const text = sample.fault ? "faulted" : sample.passed ? "passed" : stoppedAt(sample.stage);
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

const diagnosticLine = (one) => `${stageWords(one.stage)}${one.line === null ? "" : ", line " + one.line}: ${one.message}`;

function reason(sample) {
  if (sample.fault) return el("p.reason", `Not graded, ${sample.fault.kind}: ${sample.fault.message}`);
  const [first] = sample.diagnostics;
  return first && el("p.reason", diagnosticLine(first).split("\n").slice(0, 8).join("\n"));
}

function rewardParts(parts) {
  const width = (value) => Math.min(100, Math.max(0, 100 * value)) + "%";
  const bar = ([name, value], n) =>
    value > 0 && el("span", { class: "fill " + partColour(name, n), style: { width: width(value) } });
  const key = (name, n) => el("span", { class: "key " + partColour(name, n), "aria-hidden": "true" });
  const items = parts.map(([name, value], n) => [key(name, n), `${name} ${number(value)}`]);
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
  const source = ({ name }) => `the completions of “${name}”`;
  const shown = sides.map((side) => completion(side, side.name, { source: source(side) }));
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
