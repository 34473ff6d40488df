// The answers of the server, and the runs that views show, asked for again and again. A file holds its answers.

const data = document.getElementById("data");
const inlined = data && JSON.parse(data.textContent);
const LOOK_MS = 2000;

async function ask(path, parameters = {}) {
  if (inlined) return inlined.answers[path];
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return request(path + "?" + new URLSearchParams(given), {});
}

const send = (method, path, body) => request(path, { method, body: body && JSON.stringify(body) });

async function request(address, how) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const answer = await fetch(address, { headers, ...how });
  if (answer.status === 401) location.assign("/enter");
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.detail ?? `the server answered ${answer.status}`);
  return told;
}

const store = {
  runs: new Map(),
  views: new Set(),
  version: 0,
  skew: 0,

  get now() {
    return Date.now() / 1000 + this.skew;
  },

  // Asks what changed, and waits until those who show it have read it.
  async look() {
    const told = (await ask("/api/runs", { since: this.version })) ?? { runs: [], ids: [] };
    this.skew = told.now - Date.now() / 1000;
    Object.assign(this, { version: told.version, folder: told.folder, leftOut: told.left_out, hasQueues: told.has_queues });
    const gone = [...this.runs.keys()].filter((id) => !told.ids.includes(id));
    for (const id of gone) this.runs.delete(id);
    for (const run of told.runs) this.runs.set(run.id, run);
    const ids = [...gone, ...told.runs.map((run) => run.id)];
    await Promise.all([...this.views].map((view) => view.changed(ids)));
  },

  async follow(showConnection) {
    if (!document.hidden)
      await this.look().then(
        () => showConnection(true),
        () => showConnection(false),
      );
    setTimeout(() => this.follow(showConnection), LOOK_MS);
  },
};

// A page that reads its data again when one of its runs changed.
class View {
  constructor(title, ids) {
    this.title = title;
    this.ids = ids;
    store.views.add(this);
  }

  async changed(ids) {
    if (ids.some((id) => this.ids.includes(id))) await this.read();
  }

  close() {
    store.views.delete(this);
    this.closed = true;
  }
}
