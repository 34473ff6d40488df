// Which page is shown, the colours, and whether the server is there.
import { el } from "./dom.js";
import { CompareView } from "./compare.js";
import { GradersView } from "./graders.js";
import { GroupsView } from "./groups.js";
import { RunView } from "./run.js";
import { RunsView } from "./runs.js";
import { store } from "./store.js";

const VIEWS = { "": RunsView, run: RunView, completions: GroupsView, compare: CompareView, graders: GradersView };
const main = document.getElementById("main");
let view = null;

function route() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(query ?? "");
  if (view?.stays?.(name, parameters)) return;
  const isFirst = view === null;
  view?.close?.();
  view = new (VIEWS[name] ?? RunsView)(parameters, name);
  main.replaceChildren(view.node);
  document.title = `${view.title}: Gradus`;
  for (const link of document.querySelectorAll("header [data-page]")) {
    const here = (name === "graders") === (link.dataset.page === "graders");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
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
  document.documentElement.style.setProperty(
    "color-scheme",
    { auto: "light dark", dark: "dark", light: "light" }[choice],
  );
}

function startTheme() {
  const select = document.getElementById("theme");
  const kept = localStorage.getItem("gradus-theme");
  select.value = ["light", "dark"].includes(kept) ? kept : "auto";
  if (select.value !== "auto") setTheme(select.value);
  select.addEventListener("change", () => {
    localStorage.setItem("gradus-theme", select.value);
    setTheme(select.value);
  });
}

startTheme();
store.addEventListener("connection", showConnection);
store.readAll().then(
  () => {
    route();
    addEventListener("hashchange", route);
    store.listen();
  },
  (error) => main.replaceChildren(el("p", { class: "empty", role: "alert" }, "Nothing can be shown: " + error.message)),
);
