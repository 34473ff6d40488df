// The page of `gradus tasks doctor`: each row with its state, and repairs to accept. Nothing is sent:
// what is saved is a download.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ROWS = DATA.rows;
const STATES = { usable: "usable", repaired: "has a repair", "needs you": "needs you" };
const SHOWN_AT_ONCE = 50;
const accepted = new Set();
let shownState = "";
let shownCount = SHOWN_AT_ONCE;

const plural = (count, noun) => count + " " + noun + (count === 1 ? "" : "s");
const isRepair = (row) => row.state === "repaired" && !row.joined_to;
const keeperOf = (row) => ROWS.find((other) => other.where === row.joined_to);

// Whether a row's task is saved: usable rows are, repaired ones when they are accepted.
function isTaken(row) {
  if (row.joined_to) return accepted.has(keeperOf(row));
  return row.state === "usable" || accepted.has(row);
}

function save(name, rows) {
  const text = rows.map((row) => JSON.stringify(row) + "\n").join("");
  const address = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  const link = el("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const saveTasks = () =>
  save(
    DATA.name + ".tasks.jsonl",
    ROWS.filter((row) => isTaken(row) && !row.joined_to).map((row) => row.task ?? row.row),
  );

function saveOthers() {
  const others = ROWS.filter((row) => !isTaken(row));
  const reason = (row) => (isRepair(row) || row.joined_to ? "its repair was not accepted: " : "") + row.cause;
  save(
    DATA.name + ".rejected.jsonl",
    others.map((row) => ({ where: row.where, id: row.id, reasons: [reason(row)], row: row.row })),
  );
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// The fields that a repair changes, before and after.
function changes(row) {
  const fields = [...new Set([...Object.keys(row.row), ...Object.keys(row.task)])];
  const changed = fields.filter((field) => JSON.stringify(row.row[field]) !== JSON.stringify(row.task[field]));
  const side = (title, value) =>
    el("div.completion", el("p.note", title), value === undefined ? el("p.empty", "none") : el("pre", asText(value)));
  return changed.map((field) =>
    el("div.group", el("h4", field), el("div.sides", side("before", row.row[field]), side("after", row.task[field]))),
  );
}

function acceptBox(row, redraw) {
  const box = el("input", { type: "checkbox", onchange: () => {
    if (box.checked) accepted.add(row);
    else accepted.delete(row);
    redraw();
  } });
  box.checked = accepted.has(row);
  return el("label", box, " Accept the repair");
}

// A part that is made when it is opened: a file may have thousands of rows.
function folded(title, make) {
  const node = el("details", el("summary", title));
  node.addEventListener("toggle", () => node.open && node.children.length === 1 && node.append(...make()));
  return node;
}

function card(row, redraw) {
  const failing = row.failing.map((test) => [el("p.note", "Fails, line " + test.line + " of the tests"), el("pre", test.text)]);
  const look = { usable: "running", repaired: "", "needs you": "stopped" }[row.state];
  return el(
    "article.card",
    { "aria-label": row.where },
    el("h3.run-name", row.id || row.where, el("span.state", { class: "state " + look }, STATES[row.state])),
    row.id && el("p.note", row.where),
    row.cause && el("p", row.cause),
    failing,
    row.state === "repaired" && [el("p.note", "Repair"), list("ul.words", row.repairs)],
    row.advice && el("p.note", "What to do: " + row.advice),
    row.weak && el("p.trouble", "Weak tests: " + row.weak),
    list("ul.words", row.warnings),
    isRepair(row) && el("div.bar", acceptBox(row, redraw)),
    isRepair(row) && folded("What changes", () => changes(row)),
    folded("The row as it was read", () => [el("pre", asText(row.row))]),
  );
}

function rowsInView() {
  return ROWS.filter((row) => !shownState || row.state === shownState);
}

function drawPage() {
  const counts = Object.fromEntries(DATA.states.map((state) => [state, ROWS.filter((row) => row.state === state).length]));
  const weak = ROWS.filter((row) => row.weak).length;
  const good = counts["usable"] + counts["repaired"];
  const headline = good + " of " + plural(ROWS.length, "row") + " can be used";
  const tasksButton = el("button", { type: "button", onclick: saveTasks });
  const othersButton = el("button", { type: "button", onclick: saveOthers });
  const cards = el("div.first");
  const more = el("button", { type: "button", onclick: () => {
    shownCount += SHOWN_AT_ONCE;
    drawCards();
  } });
  const note = el("p.note", { role: "status" });

  function drawButtons() {
    const taken = ROWS.filter(isTaken);
    const tasks = taken.filter((row) => !row.joined_to).length;
    tasksButton.replaceChildren("Save " + plural(tasks, "task"));
    tasksButton.disabled = tasks === 0;
    othersButton.replaceChildren("Save the other " + plural(ROWS.length - taken.length, "row"));
    othersButton.disabled = taken.length === ROWS.length;
    note.replaceChildren(plural(accepted.size, "repair") + " accepted");
  }
  function drawCards() {
    const rows = rowsInView();
    cards.replaceChildren(...rows.slice(0, shownCount).map((row) => card(row, drawButtons)));
    if (rows.length === 0) cards.append(el("p.empty", "No row is in this state."));
    more.hidden = rows.length <= shownCount;
    more.replaceChildren("Show more of " + rows.length);
  }
  function acceptShown(accept) {
    for (const row of rowsInView().filter(isRepair)) {
      if (accept) accepted.add(row);
      else accepted.delete(row);
    }
    drawButtons();
    drawCards();
  }

  const options = ["", ...DATA.states].map((state) =>
    el("option", { value: state }, state ? STATES[state] + " (" + counts[state] + ")" : "all rows (" + ROWS.length + ")"),
  );
  const select = el("select", { "aria-label": "State of the rows to show", onchange: () => {
    shownState = select.value;
    shownCount = SHOWN_AT_ONCE;
    drawCards();
  } }, options);
  const main = document.getElementById("main");
  main.replaceChildren(
    el("div.hero", el("h2.headline", headline), el("p.lead", summary(counts, weak))),
    el("div.bar", tasksButton, othersButton, note),
    el(
      "div.bar",
      select,
      counts["repaired"] > 0 && el("button", { type: "button", onclick: () => acceptShown(true) }, "Accept all repairs"),
      counts["repaired"] > 0 && el("button", { type: "button", onclick: () => acceptShown(false) }, "Accept none"),
    ),
    cards,
    el("div.bar", more),
  );
  drawButtons();
  drawCards();
}

function summary(counts, weak) {
  const parts = [
    plural(counts["usable"], "row") + " as they are, " + counts["repaired"] + " with a repair that was tried.",
    counts["needs you"] > 0 && counts["needs you"] + " need you: no repair was found.",
    weak > 0 && "Tests of " + plural(weak, "row") + " let broken solutions pass.",
    "Hidden tests are quoted: this page is for their author.",
  ];
  return parts.filter(Boolean).join(" ");
}

document.getElementById("connection").replaceChildren(visible(DATA.name + ", " + DATA.grader));
document.querySelector(".brand a").removeAttribute("href");
drawPage();
