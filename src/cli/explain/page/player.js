// The controls, and window.treering.

const kStepMilliseconds = 1500;

class Player {
  constructor(data) {
    this.replay = new Replay(data);
    this.position = 0;
    this.playing = false;
    this.target = null;  // where a single step that is on its way ends
    this.shown_step = -1;
    write_title(this.replay);
    write_numbers(this.replay);
    write_legend(this.replay);
    this.view = new View(this.replay);
    this.slider = element("slider");
    this.slider.max = this.replay.steps;
    const ticks = this.replay.steps <= 40 ? this.replay.steps + 1 : 0;
    for (let i = 0; i < ticks; ++i) element("ticks").append(node("i"));
    this.connect_controls();
    this.connect_keys();
    this.show(0);
  }

  // Everything on the screen follows from the position.
  show(position) {
    this.position = Math.min(this.replay.steps, Math.max(0, position));
    this.view.draw(this.position);
    const { step, steps } = this.replay;
    this.slider.value = this.position;
    this.slider.setAttribute("aria-valuetext", `step ${step} of ${steps}`);
    if (step === this.shown_step) return;
    this.shown_step = step;
    element("counter").textContent = `step ${step} / ${steps}`;
    write_words(this.replay, this.view);
    write_status(this.replay);
  }

  connect_controls() {
    const on = (id, act) => element(id).addEventListener("click", act);
    on("play", () => this.toggle());
    on("first", () => this.jump(0));
    on("back", () => this.step_by(-1));
    on("next", () => this.step_by(1));
    on("theme", () => {
      const { style } = document.documentElement;
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      style.colorScheme = (style.colorScheme || system) === "dark" ? "light" : "dark";
    });
    this.slider.addEventListener("input", () => this.jump(+this.slider.value));
    new ResizeObserver(() => {
      this.view.resize();
      this.show(this.position);
    }).observe(element("stage"));
  }

  connect_keys() {
    const keys = {
      " ": () => this.toggle(),
      ArrowRight: () => this.step_by(1),
      ArrowLeft: () => this.step_by(-1),
      Home: () => this.jump(0),
      End: () => this.jump(this.replay.steps),
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.tagName === "SELECT" || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
    // A button that has the focus would be pressed by the space bar too.
    document.addEventListener("keyup", (event) => {
      if (event.key === " " && event.target.tagName === "BUTTON") event.preventDefault();
    });
  }

  jump(position) {
    this.stop();
    this.show(position);
  }

  step_by(delta) {
    const from = this.target === null ? this.position : this.target;
    this.stop();
    const to = delta > 0 ? Math.floor(from + 1e-6) + 1 : Math.ceil(from - 1e-6) - 1;
    if (to < 0 || to > this.replay.steps) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (delta < 0 || still) {
      this.show(to);
      return;
    }
    this.show(from);
    this.target = to;
    this.animate();
  }

  toggle() {
    if (this.playing) {
      this.stop();
      return;
    }
    if (this.position >= this.replay.steps) this.show(0);
    this.target = null;
    this.playing = true;
    this.show_play();
    this.animate();
  }

  stop() {
    this.playing = false;
    this.target = null;
    this.show_play();
  }

  show_play() {
    element("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    const icon = this.playing ? "M5 3h4v14H5zM11 3h4v14h-4z" : "M5 3v14l12-7z";
    element("play-icon").setAttribute("d", icon);
  }

  animate() {
    let last = null;
    const run = this.run = {};  // a later animation ends this one
    const frame = (now) => {
      if (this.run !== run || (!this.playing && this.target === null)) return;
      const end = this.playing ? this.replay.steps : this.target;
      const elapsed = last === null ? 0 : now - last;
      last = now;
      const moved = elapsed / kStepMilliseconds * element("speed").value;
      this.show(Math.min(end, this.position + moved));
      if (this.position < end) requestAnimationFrame(frame);
      else this.stop();
    };
    requestAnimationFrame(frame);
  }
}

const player = new Player(JSON.parse(element("schedule").textContent));

// The state as data, for tests and for the curious: state()[rank][chunk] lists the ranks whose
// inputs the result holds after `step` steps; done says that every rank holds what the operation
// promises.
window.treering = {
  get step() { return player.replay.step; },
  get steps() { return player.replay.steps; },
  get done() { return player.replay.done(); },
  state: () => player.replay.state(),
  goto: (step) => player.jump(step),
};

// #step=2.5 opens there, #play plays, #test goes through all steps and writes into the page what it
// saw after each of them.
const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("step")) player.jump(+fragment.get("step"));
if (fragment.has("play")) player.toggle();
if (fragment.has("test")) {
  const trace = [];
  for (let step = 0; step <= window.treering.steps; ++step) {
    window.treering.goto(step);
    const { done } = window.treering;
    const status = element("status").textContent, words = element("words").textContent;
    trace.push({ step: window.treering.step, done, status, words, state: window.treering.state() });
  }
  const report = node("pre", JSON.stringify({ steps: window.treering.steps, trace }));
  report.id = "state";
  document.body.append(report);
}
