// Which page is shown, and whether the server is there.

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
  const isFirst = view === null;
  view?.close();
  view = new VIEWS[name](new URLSearchParams(query ?? ""));
  main.replaceChildren(view.node);
  if (!inlined) document.title = `${view.title}: Gradus`;
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function showConnection(isThere) {
  const line = document.getElementById("connection");
  line.textContent = isThere ? "Live" : "The server does not answer; trying again …";
  line.classList.toggle("away", !isThere);
}

// What is closed on the screen is open on paper, but for the tables of charts.
function openForPrinting() {
  const closed = [...document.querySelectorAll("details:not([open], .figures)")];
  for (const one of closed) one.open = true;
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)), { once: true });
}

addEventListener("beforeprint", openForPrinting);
store.look().then(
  () => {
    document.getElementById("to-queues").hidden = !store.hasQueues;
    route();
    addEventListener("hashchange", route);
    if (inlined) document.getElementById("connection").textContent = "Made " + inlined.made;
    else store.follow(showConnection);
  },
  (error) => main.replaceChildren(el("p.empty", { role: "alert" }, "Nothing can be shown: " + error.message)),
);
