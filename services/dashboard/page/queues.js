// Queues of the graders, for operators: counts, states, workers, unfinished jobs and dead letters.

const MOST_JOBS = 50;
const CHANGES = {
  open: [
    ["Pause", "paused"],
    ["Drain", "draining"],
  ],
  paused: [["Resume", "open"]],
  draining: [["Resume", "open"]],
};
const COUNTS = ["workers", "slots", "queued", "running", "restarted", "dead_letters"];

class QueuesView extends View {
  constructor(parameters) {
    super("Queues", []);
    this.grader = parameters.get("grader");
    this.said = el("p.note", { role: "status" });
    const place = (render) => new Place(el("div"), render);
    this.counts = place((queues) => this.countsOf(queues));
    this.workers = place((workers) => this.workersOf(workers));
    this.jobs = place((jobs) => this.jobsOf(jobs));
    this.letters = place((letters) => this.lettersOf(letters));
    const places = [this.counts, this.workers, this.jobs, this.letters].map((one) => one.node);
    this.node = section("queues", "Queues", this.said, places);
    this.node.classList.add("first");
    this.read();
  }

  // Queues change though no run does.
  async changed() {
    await this.read();
  }

  async read() {
    try {
      const { queues, workers } = await ask("/api/queues");
      this.counts.show(queues);
      this.workers.show(workers);
      if (!(this.grader in queues)) return;
      this.jobs.show((await ask(`/api/queues/${this.grader}/jobs`)).jobs);
      this.letters.show((await ask(`/api/queues/${this.grader}/dead-letters`)).dead_letters);
    } catch (error) {
      this.said.textContent = error.message;
    }
  }

  button(text, method, path, body, question) {
    const onclick = async () => {
      if (question && !confirm(question)) return;
      try {
        const answer = await send(method, `/api/queues/${path}`, body);
        const [[what, value]] = Object.entries(answer);
        this.said.textContent = `${text}: ${what} ${value}`;
      } catch (error) {
        this.said.textContent = `${text}: ${error.message}`;
      }
      await this.read();
    };
    return el("button", { type: "button", onclick }, text);
  }

  countsOf(queues) {
    const rows = Object.entries(queues).map(([name, row]) => {
      const changes = CHANGES[row.state].map(([text, state]) => this.button(text, "PUT", name, { state }));
      const link = el("a", { href: "#/queues?" + new URLSearchParams({ grader: name }) }, name);
      return [link, row.state, ...COUNTS.map((key) => count(row[key])), el("span.bar", changes)];
    });
    const heads = ["grader", "state", ...COUNTS.map((key) => key.replace("_", " ")), "change"];
    return table("Jobs by grader; choose one to see its jobs", heads, rows);
  }

  workersOf(workers) {
    if (!workers.length) return el("p.empty", "No worker, live or dead in the last hour.");
    const rows = workers.map((worker) => {
      const times = [worker.age_s, worker.silent_s].map((seconds) => count(Math.round(seconds)));
      const state = worker.is_dead ? `dead: ${worker.cause}` : "live";
      return [worker.name, worker.host, count(worker.slots), worker.grader, ...times, state];
    });
    const heads = ["worker", "host", "slots", "grader", "age, s", "last heartbeat, s ago", "state"];
    return table("Workers, and those that died in the last hour", heads, rows);
  }

  jobsOf(jobs) {
    const rows = jobs.slice(0, MOST_JOBS).map(({ id, state, starts, runs }) => {
      const cancel = this.button("Cancel", "POST", `${this.grader}/cancel`, { jobs: [id] }, `Cancel ${id}?`);
      return [id, state, count(starts), runs.join(", "), cancel];
    });
    const more = jobs.length > MOST_JOBS ? `, the first ${MOST_JOBS} of ${jobs.length} or more` : "";
    if (!rows.length) return el("p.empty", "No unfinished job.");
    return table(`Unfinished jobs of ${this.grader}${more}`, ["job", "state", "starts", "runs", "end"], rows);
  }

  lettersOf(letters) {
    const path = `${this.grader}/dead-letters`;
    const rows = letters.map(({ job, history }) => {
      const text = el("pre");
      const ontoggle = async ({ target }) => {
        if (!target.open) return;
        text.textContent = "Reading …";
        const read = await ask(`/api/queues/${path}/${job}`).catch((error) => ({ payload: error.message }));
        text.replaceChildren(el("span", JSON.stringify(read.payload, null, 2)));
      };
      const shown = el("details", { ontoggle }, el("summary", "submission"), text);
      return [job, history.join("\n"), shown, this.button("Queue again", "POST", `${path}/${job}/requeue`)];
    });
    if (!rows.length) return el("p.empty", "No dead letter.");
    const question = `Delete all dead letters of ${this.grader}?`;
    const purge = this.button("Delete all dead letters", "DELETE", path, undefined, question);
    const heads = ["job", "starts that failed", "content", "grade"];
    return [table(`Dead letters of ${this.grader}`, heads, rows), el("p.bar", purge)];
  }
}
