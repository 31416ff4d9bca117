// Draws a position of the replay: the integer part says which steps have fired, the fraction how
// far the messages have come that are under way.

const kColors = 8;

const element = (id) => document.getElementById(id);

function svg(parent, name, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

class View {
  constructor(replay) {
    this.replay = replay;
    this.root = element("drawing");
    element("stage").classList.toggle("many", replay.ranks > 8);
    this.find_roads();
    this.resize();
  }

  // A road is what one rank sends to another over one channel: a curve of the drawing.
  find_roads() {
    this.roads = new Map();
    const road = (from, to, channel, chunk) => {
      const key = `${from}>${to}#${channel}`;
      if (!this.roads.has(key)) this.roads.set(key, { from, to, channel, chunks: new Set() });
      this.roads.get(key).chunks.add(chunk);
      return this.roads.get(key);
    };
    // A message over a cast link reaches many ranks: one flight each. The last messages of a replay
    // that hangs are never taken.
    this.flights = [];
    for (const message of this.replay.messages) {
      const { src, channel } = message.link;
      for (const to of message.to) {
        const taken = message.taken_at.has(to) ? message.taken_at.get(to) : Infinity;
        this.flights.push({ message, taken, road: road(src, to, channel, message.chunk) });
      }
    }
    // Accesses to a peer's buffers: no message, the bytes move within the step.
    this.accesses = [];
    for (const { at, rank, step } of this.replay.fired) {
      for (const operand of [...step.in, ...step.out]) {
        const { space, peer, chunk } = operand;
        if (!["peer_in", "peer_out"].includes(space)) continue;
        const [from, to] = step.in.includes(operand) ? [peer, rank] : [rank, peer];
        this.accesses.push({ at, chunk, road: road(from, to, 0, chunk) });
      }
    }
  }

  // --- building ------------------------------------------------------------------------------

  resize() {
    const box = element("stage").getBoundingClientRect();
    const width = Math.max(300, box.width), height = Math.max(260, box.height - 34);
    this.layout = new Layout(this.replay, width, height);
    this.root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.root.setAttribute("width", width);
    this.root.setAttribute("height", height);
    this.root.replaceChildren();
    this.build_definitions();
    this.build_roads();
    this.cards = this.layout.centers.map((center, rank) => this.build_card(center, rank));
    this.layer = svg(this.root, "g");
    this.pills = new Map();
    this.drawn_step = -1;
  }

  build_definitions() {
    const defs = svg(this.root, "defs");
    const arrow = svg(defs, "marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, orient: "auto",
      markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse",
    });
    svg(arrow, "path", { d: "M0 .8 7 4 0 7.2z", fill: "context-stroke" });
    const hatch = svg(defs, "pattern", {
      id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)",
    });
    svg(hatch, "rect", { class: "hatch", width: 2, height: 5 });
  }

  build_roads() {
    const crowded = this.roads.size > 4 * this.replay.ranks;
    const group = svg(this.root, "g", { class: crowded ? "roads crowded" : "roads" });
    const { data, chunks } = this.replay;
    for (const road of this.roads.values()) {
      const back = (channel) => this.roads.has(`${road.to}>${road.from}#${channel}`);
      const two_way = back(0) || back(1);
      road.curve = this.layout.curve(road.from, road.to, road.channel, two_way);
      road.node = svg(group, "path", { d: curve_path(road.curve), "marker-end": "url(#arrow)" });
      // Each of two trees has its colour.
      const of_tree = data.algorithm === "tree" && chunks > 1 && road.chunks.size === 1;
      road.base = of_tree ? `of-chunk k${[...road.chunks][0] % kColors}` : "";
    }
  }

  build_card(center, rank) {
    const { card, scale } = this.layout;
    const x = center.x - card.w / 2, y = center.y - card.h / 2;
    const g = svg(this.root, "g", { class: "card", transform: `translate(${x} ${y})` });
    svg(g, "rect", { class: "paper", width: card.w, height: card.h, rx: 9 * scale });
    const title = svg(g, "text", {
      class: "rank", x: card.margin, y: 16.5 * scale, "font-size": 13 * scale,
    });
    title.textContent = `rank ${rank}`;
    if (rank === this.replay.data.root) {
      const tag = { class: "tag", dx: 6 * scale, "font-size": 10.5 * scale };
      svg(title, "tspan", tag).textContent = "root";
    }
    const cells = [];
    for (let chunk = 0; chunk < this.replay.chunks; ++chunk) {
      cells.push(this.build_cell(g, rank, chunk));
    }
    return { g, cells };
  }

  build_cell(parent, rank, chunk) {
    const { card, scale } = this.layout, { x, y } = this.layout.cell(chunk);
    const w = card.bar_w, h = card.cell_h;
    const g = svg(parent, "g", { class: "cell", transform: `translate(${x} ${y})` });
    const tip = svg(g, "title");
    const label = svg(g, "text", { class: "label", y: h * 0.76, "font-size": 11 * scale });
    label.textContent = this.replay.data.op === "barrier" ? "" : `c${chunk}`;
    const bar = svg(g, "g", { transform: `translate(${card.label_w} 0)` });
    svg(bar, "path", { class: "track", d: this.boxes(this.every_place(), w, h) });
    const fill = svg(bar, "path");
    const whole = svg(bar, "rect", { width: w, height: h, rx: 3 * scale });
    const note = svg(bar, "text", { x: 7 * scale, y: h * 0.75, "font-size": 10 * scale });
    const check = svg(bar, "path", {
      d: "M0 0l3 3 5.5-6.5",
      transform: `translate(${w - 14 * scale} ${h / 2}) scale(${scale})`,
    });
    const halo = svg(bar, "rect", { x: -2, y: -2, width: w + 4, height: h + 4, rx: 4 * scale });
    return { rank, chunk, tip, fill, whole, note, check, halo };
  }

  // --- what a value looks like ---------------------------------------------------------------

  color_class(value) {
    if (!value.length) return "";
    const { chunks, data } = this.replay;
    const number = data.op === "all_to_all" ? this.replay.source(value[0]) : value[0] % chunks;
    return `k${number % kColors}`;
  }

  // "c2"; of an all-to-all "1→3", the part of rank 1 for rank 3.
  name(value) {
    const chunk = value[0] % this.replay.chunks;
    if (this.replay.data.op === "barrier") return "here";
    if (this.replay.data.op !== "all_to_all") return `c${chunk}`;
    return `${this.replay.source(value[0])}→${chunk}`;
  }

  // Where a fold is drawn there is one box per rank, else a single one.
  every_place() {
    return Array.from({ length: this.replay.folds() ? this.replay.ranks : 1 }, (_, i) => i);
  }

  places(value) {
    if (!this.replay.folds()) return value.length ? [0] : [];
    return [...new Set(value.map((input) => this.replay.source(input)))];
  }

  boxes(places, width, height) {
    const pitch = width / this.every_place().length;
    const gap = this.replay.folds() ? Math.min(1.5, pitch * 0.2) : 0;
    const w = (pitch - gap).toFixed(2), h = height.toFixed(2);
    return places.map((i) => `M${(i * pitch).toFixed(2)} 0h${w}v${h}h-${w}z`).join("");
  }

  // --- drawing -------------------------------------------------------------------------------

  draw(position) {
    const step = Math.floor(position + 1e-9);
    if (step !== this.drawn_step) {
      this.replay.goto(step);
      this.drawn_step = step;
      this.cards.forEach((card) => this.draw_card(card));
    }
    this.draw_flights(position);
  }

  draw_card(card) {
    card.cells.forEach((cell) => this.draw_cell(cell));
    const promised = card.cells.filter((c) => this.replay.wanted(c.rank, c.chunk));
    const complete = promised.every((c) => this.replay.complete(c.rank, c.chunk));
    card.g.classList.toggle("complete", promised.length > 0 && complete);
  }

  draw_cell(cell) {
    const { rank, chunk } = cell, replay = this.replay;
    const kept = replay.out[rank][chunk], passed = replay.passed[rank][chunk];
    const own = replay.brings(rank, chunk) ? [rank * replay.chunks + chunk] : [];
    const value = kept || passed || own, color = this.color_class(value);
    const want = replay.wanted(rank, chunk);
    const complete = kept !== null && want !== null && replay.complete(rank, chunk);
    // A prefix sum is complete without the inputs of later ranks: its boxes stay.
    const whole = complete && (!replay.folds() || want.length === replay.ranks);

    let kind = "seen", words = passed ? "passed through" : "own input";
    if (kept) kind = replay.folds() ? "kept" : "foreign", words = "kept";
    if (complete) words = "complete";
    const boxes = whole ? [] : this.places(value);
    cell.fill.setAttribute("d", this.boxes(boxes, this.layout.card.bar_w, this.layout.card.cell_h));
    cell.fill.setAttribute("class", `fill ${color} ${kind}`);
    cell.whole.setAttribute("class", `whole ${color} ${whole ? "on" : ""}`);
    cell.check.setAttribute("class", `check ${complete ? "on" : ""} ${whole ? "" : "partial"}`);
    const touched = replay.step > 0 && replay.touched.has(`${rank}.${chunk}`);
    cell.halo.setAttribute("class", `halo ${touched ? "on" : ""}`);
    const named = replay.data.op === "all_to_all" && value.length > 0;
    cell.note.textContent = named ? this.name(value) : "";
    cell.note.setAttribute("class", `note ${complete ? "on-color" : ""}`);
    const sources = [...new Set(value.map((input) => replay.source(input)))].sort((a, b) => a - b);
    cell.tip.textContent = `rank ${rank}, chunk ${chunk}: ` +
      (sources.length ? `${words}, from rank ${sources.join(", ")}` : "nothing yet");
  }

  draw_flights(position) {
    const flying = new Map(), parked = new Map(), shown = new Set();
    for (const flight of this.flights) {
      const { message, road, taken } = flight;
      if (position < message.leaves || position >= taken) continue;
      const progress = Math.min(1, position - message.leaves);
      let t = 0.1 + 0.76 * progress * progress * (3 - 2 * progress);
      if (progress === 1) {
        // It has arrived but is not yet taken: it queues in front of the rank.
        t -= 0.12 * (parked.get(road) || 0);
        parked.set(road, (parked.get(road) || 0) + 1);
      }
      shown.add(flight);
      flying.set(road, message);
      const { x, y } = point_on(road.curve, t);
      this.pill(flight).setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    }
    for (const [flight, node] of this.pills) {
      if (shown.has(flight)) continue;
      node.remove();
      this.pills.delete(flight);
    }
    const reached = new Map();
    for (const a of this.accesses) if (a.at === this.replay.step) reached.set(a.road, a.chunk);
    for (const road of this.roads.values()) {
      const message = flying.get(road), classes = [road.base];
      if (message) classes.push("active", message.signal ? "" : this.color_class(message.value));
      if (reached.has(road)) classes.push("active memory", `k${reached.get(road) % kColors}`);
      road.node.setAttribute("class", classes.join(" "));
    }
  }

  pill(flight) {
    if (this.pills.has(flight)) return this.pills.get(flight);
    const { signal, value } = flight.message;
    const scale = Math.max(0.7, Math.min(1.35, 0.8 * this.layout.scale));
    const g = svg(this.layer, "g", { class: "pill" });
    this.pills.set(flight, g);
    if (signal) {
      svg(g, "circle", { r: 6 * scale, class: "signal" });
      return g;
    }
    const text = value.length ? this.name(value) : `c${flight.message.chunk}`;
    const folds = this.replay.folds();
    const w = (text.length > 3 ? 40 : 34) * scale, h = (folds ? 25 : 19) * scale;
    svg(g, "rect", {
      class: `body ${this.color_class(value)}`,
      x: -w / 2, y: -h / 2, width: w, height: h, rx: 6 * scale,
    });
    svg(g, "text", {
      class: "on-color", "text-anchor": "middle", "font-size": 12 * scale,
      y: folds ? -h / 2 + 13 * scale : 4.5 * scale,
    }).textContent = text;
    if (folds) {
      const x = -w / 2 + 4 * scale, y = h / 2 - 8.5 * scale;
      const bits = svg(g, "g", { transform: `translate(${x} ${y})` });
      const size = [w - 8 * scale, 5 * scale];
      svg(bits, "path", { class: "bits-off", d: this.boxes(this.every_place(), ...size) });
      svg(bits, "path", { class: "bits-on", d: this.boxes(this.places(value), ...size) });
    }
    return g;
  }
}
