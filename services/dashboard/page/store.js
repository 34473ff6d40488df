// The answers of the server, events for the views when they change, and the base of views. A file holds its answers.

const data = document.getElementById("data");
export const inlined = data && JSON.parse(data.textContent);
const SOON_MS = 700;
const AGAIN_MS = 5000;

export async function ask(path, parameters = {}) {
  const key = () => [path, ...Object.entries(parameters).map(([name, value]) => `&${name}=${value}`)].join("");
  if (inlined) return inlined.answers[key()];
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given);
  const answer = await fetch(path + (query.size ? "?" + query : ""), { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/enter");
  if (!answer.ok)
    throw new Error((await answer.json().catch(() => ({}))).detail ?? `the server answered ${answer.status}`);
  return answer.json();
}

export async function send(method, path, body) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (answer.status === 401) location.assign("/enter");
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.detail ?? `the server answered ${answer.status}`);
  return told;
}

class Store extends EventTarget {
  constructor() {
    super();
    this.runs = new Map();
    this.folder = "";
    this.leftOut = false;
    this.hasQueues = false;
    this.skew = 0;
    this.connected = null;
  }

  get now() {
    return Date.now() / 1000 + this.skew;
  }

  tell(kind, detail = {}) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }

  async readAll() {
    const told = await ask("/api/runs");
    if (!told) return;
    this.skew = told.now - Date.now() / 1000;
    this.folder = told.folder;
    this.leftOut = told.left_out;
    this.hasQueues = told.has_queues;
    this.runs = new Map(told.runs.map((run) => [run.id, run]));
    this.tell("runs", { all: true });
  }

  listen() {
    const source = new EventSource("/events");
    source.onopen = () => this.reconnected();
    source.onerror = () => {
      this.setConnected(false);
      // A browser tries again by itself unless the answer was a refusal.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.listen(), AGAIN_MS);
    };
    source.onmessage = (event) => this.take(JSON.parse(event.data));
  }

  // Whatever was missed while the connection was away is asked for anew.
  reconnected() {
    this.readAll().then(
      () => this.setConnected(true),
      () => this.setConnected(false),
    );
  }

  setConnected(value) {
    this.connected = value;
    this.tell("connection");
  }

  take(news) {
    if (news.all) return this.reconnected();
    for (const id of news.gone ?? []) this.runs.delete(id);
    for (const run of news.runs ?? []) this.runs.set(run.id, run);
    const ids = [...(news.gone ?? []), ...(news.runs ?? []).map((run) => run.id)];
    if (ids.length) this.tell("runs", { ids });
  }
}

export const store = new Store();

// Kept by the browser, if it lets a page keep anything.
export function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// Calls `action` soon after it was asked to, and never twice at a time.
export function soon(action) {
  let timer = null;
  let running = false;
  let again = false;
  const go = async () => {
    timer = null;
    running = true;
    try {
      await action();
    } finally {
      running = false;
      if (again) ask_();
    }
  };
  function ask_() {
    again = running;
    if (!running && timer === null) timer = setTimeout(go, SOON_MS);
  }
  return Object.assign(ask_, { stop: () => clearTimeout(timer) });
}

// A page that reads its data again soon after one of its runs changed.
export class View {
  constructor(title, ids) {
    this.title = title;
    this.refresh = soon(() => this.read());
    this.listener = ({ detail }) => (detail.all || detail.ids.some((id) => ids.includes(id))) && this.refresh();
    store.addEventListener("runs", this.listener);
  }

  close() {
    store.removeEventListener("runs", this.listener);
    this.refresh.stop();
    this.closed = true;
  }
}
