// Which page is shown, the colours, and whether the server is there.
import { el } from "./dom.js";
import { ChangesView, CompareView } from "./compare.js";
import { GroupsView } from "./groups.js";
import { QueuesView } from "./queues.js";
import { RunView } from "./run.js";
import { RunsView } from "./runs.js";
import { inlined, kept, store } from "./store.js";

const VIEWS = {
  "": RunsView,
  run: RunView,
  completions: GroupsView,
  compare: CompareView,
  changes: ChangesView,
  queues: QueuesView,
};
const main = document.getElementById("main");
let view = null;

function route() {
  let [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  if (inlined && !name) [name, query] = [inlined.start[0], new URLSearchParams({ id: inlined.start[1] })];
  if (!(name in VIEWS)) return;
  const parameters = new URLSearchParams(query ?? "");
  const isFirst = view === null;
  view?.close?.();
  view = new VIEWS[name](parameters);
  main.replaceChildren(view.node);
  if (!inlined) document.title = `${view.title}: Gradus`;
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function showConnection() {
  const line = document.getElementById("connection");
  line.textContent = store.connected ? "Live" : "The server does not answer; trying again …";
  line.classList.toggle("away", !store.connected);
}

// The style sheet follows the system; a choice is a change of the question it asks.
function setTheme(choice) {
  const asked = { auto: "screen and (prefers-color-scheme: dark)", dark: "screen", light: "not all" }[choice];
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule instanceof CSSMediaRule && (rule.dark || rule.media.mediaText.includes("prefers-color-scheme: dark"))) {
        rule.dark = true;
        rule.media.mediaText = asked;
      }
  document.documentElement.style.setProperty("color-scheme", choice === "auto" ? "light dark" : choice);
}

// What is closed on the screen is open on paper, but for the tables of charts.
function openForPrinting() {
  const closed = [...document.querySelectorAll("details:not([open], .figures)")];
  for (const one of closed) one.open = true;
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)), { once: true });
}

const theme = document.getElementById("theme");
const chosen = kept("gradus-theme");
theme.value = ["light", "dark"].includes(chosen) ? chosen : "auto";
if (theme.value !== "auto") setTheme(theme.value);
theme.addEventListener("change", () => {
  kept("gradus-theme", theme.value);
  setTheme(theme.value);
});
addEventListener("beforeprint", openForPrinting);
store.addEventListener("connection", showConnection);
store.readAll().then(
  () => {
    document.getElementById("to-queues").hidden = !store.hasQueues;
    route();
    addEventListener("hashchange", route);
    if (inlined) document.getElementById("connection").textContent = "Made " + inlined.made;
    else store.listen();
  },
  (error) => main.replaceChildren(el("p.empty", { role: "alert" }, "Nothing can be shown: " + error.message)),
);
