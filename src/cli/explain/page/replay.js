// Replays a schedule: first when each step fires, then what every buffer holds after each of them.
// Nothing here is taken from the program that wrote the page but the steps themselves.

// A value is the list of the inputs that were folded into it, each as the number
// source rank * chunks + chunk of that rank's input. An input folded twice is in the list twice.
class Replay {
  constructor(data) {
    this.data = data;
    this.ranks = data.ranks;
    this.chunks = data.chunk_bytes.length;
    this.links = new Map(data.links.map((l) => [l.name, l]));
    this.find_times();
    this.goto(0);
  }

  // The rules of time: a step fires as soon as the step before it in its lane has fired, its
  // messages have arrived and the links it sends on are free; a message takes one unit, everything
  // else none.
  find_times() {
    const sent = this.by_link = new Map(), free_at = new Map(), taken = new Map();
    const lanes = [];
    this.data.schedule.forEach((steps, rank) => {
      const of_rank = new Map();
      steps.forEach((step, index) => {
        if (!of_rank.has(step.lane)) of_rank.set(step.lane, { rank, steps: [], next: 0, time: 0 });
        of_rank.get(step.lane).steps.push({ step, index, rank });
      });
      lanes.push(...of_rank.values());
    });
    this.fired = [];     // { at, rank, index, step }
    this.messages = [];  // { link, chunk, signal, leaves, taken_at: rank -> time, to, value }

    const fire = (lane) => {
      const { step, index, rank } = lane.steps[lane.next];
      let at = lane.time;
      for (const o of step.in) {
        if (o.space !== "link") continue;
        const message = (sent.get(o.link) || [])[taken.get(o.link + "@" + rank) || 0];
        if (!message) return false;
        at = Math.max(at, message.leaves + 1);
      }
      for (const o of step.out) {
        if (o.space === "link") at = Math.max(at, free_at.get(o.link) || 0);
      }
      for (const o of step.in) {
        if (o.space !== "link" || o.peek) continue;
        const reader = o.link + "@" + rank, position = taken.get(reader) || 0;
        sent.get(o.link)[position].taken_at.set(rank, at);
        taken.set(reader, position + 1);
      }
      for (const o of step.out) {
        if (o.space !== "link") continue;
        const link = this.links.get(o.link);
        const others = [...Array(this.ranks).keys()].filter((r) => r !== link.src);
        const message = {
          link, chunk: o.chunk, signal: step.verb === "publish", leaves: at, taken_at: new Map(),
          to: link.dst === "all" ? others : [link.dst], value: [],
        };
        if (!sent.has(o.link)) sent.set(o.link, []);
        sent.get(o.link).push(message);
        this.messages.push(message);
        free_at.set(o.link, at + 1);
      }
      lane.time = at;
      lane.next += 1;
      this.fired.push({ at, rank, index, step });
      return true;
    };

    for (let progress = true; progress;) {
      progress = false;
      for (const lane of lanes) {
        while (lane.next < lane.steps.length && fire(lane)) progress = true;
      }
    }
    // Steps of one unit do not feed other ranks; within a rank the recorded order holds.
    this.fired.sort((a, b) => a.at - b.at || a.rank - b.rank || a.index - b.index);
    this.steps = this.fired.reduce((last, f) => Math.max(last, f.at), 0);
    this.stuck = lanes.filter((l) => l.next < l.steps.length).map((l) => l.steps[l.next]);
  }

  reset() {
    const table = () => Array.from({ length: this.ranks }, () => Array(this.chunks).fill(null));
    this.step = -1;
    this.cursor = 0;
    this.out = table();     // [rank][chunk]: what the result holds
    this.passed = table();  // [rank][chunk]: the last value that went through without being kept
    this.touched = new Set();
    this.queues = new Map();  // link@reader -> messages taken
    this.known = Array.from({ length: this.ranks }, (_, r) => [r * this.chunks]);  // barrier only
    for (const m of this.messages) m.value = [];
    this.written = new Map();  // link -> messages written
  }

  // Everything that fires up to and including unit `step`.
  goto(step) {
    if (this.step === undefined || step < this.step) this.reset();
    while (this.step < step) {
      this.step += 1;
      this.touched = new Set();
      while (this.cursor < this.fired.length && this.fired[this.cursor].at === this.step) {
        this.execute(this.fired[this.cursor]);
        this.cursor += 1;
      }
    }
  }

  read(rank, operand) {
    if (operand.space === "in") return [rank * this.chunks + operand.chunk];
    if (operand.space === "peer_in") return [operand.peer * this.chunks + operand.chunk];
    if (operand.space === "peer_out") return this.out[operand.peer][operand.chunk] || [];
    if (operand.space === "out") return this.out[rank][operand.chunk] || [];
    if (operand.space !== "link") return [];
    const reader = operand.link + "@" + rank, position = this.queues.get(reader) || 0;
    if (!operand.peek) this.queues.set(reader, position + 1);
    return this.by_link.get(operand.link)[position].value;
  }

  // out_1 = out_2 = ... = in_1 (op) in_2 (op) ...
  execute({ rank, step }) {
    let value = step.in.flatMap((o) => this.read(rank, o));
    if (this.data.op === "barrier") {
      // The bytes of a barrier mean nothing: what counts is who is known to have come.
      this.known[rank] = [...new Set([...this.known[rank], ...value])].sort((a, b) => a - b);
      value = this.known[rank];
    }
    let kept = false, sent = -1;
    for (const o of step.out) {
      if (o.space === "out") this.keep(rank, o.chunk, value), kept = true;
      if (o.space === "peer_out") this.keep(o.peer, o.chunk, value), kept = true;
      if (o.space !== "link") continue;
      const position = this.written.get(o.link) || 0;
      this.by_link.get(o.link)[position].value = value;
      this.written.set(o.link, position + 1);
      sent = o.chunk;
    }
    if (!kept && sent >= 0 && step.in.some((o) => o.space === "link")) {
      this.passed[rank][sent] = value;
      this.touched.add(rank + "." + sent);
    }
  }

  keep(rank, chunk, value) {
    this.out[rank][chunk] = value;
    this.touched.add(rank + "." + chunk);
  }

  // What the operation promises: the inputs that chunk `chunk` of `rank`'s result is made of; null:
  // nothing.
  wanted(rank, chunk) {
    const { op, root } = this.data, id = (r, c) => r * this.chunks + c;
    const fold = (from, to) =>
        from < to ? Array.from({ length: to - from }, (_, i) => id(from + i, chunk)) : null;
    switch (op) {
      case "all_reduce":
        return fold(0, this.ranks);
      case "reduce":
        return rank === root ? fold(0, this.ranks) : null;
      case "reduce_scatter":
        return rank === chunk ? fold(0, this.ranks) : null;
      case "scan":
        return fold(0, rank + 1);
      case "exscan":
        return fold(0, rank);
      case "broadcast":
        return [id(root, chunk)];
      case "all_gather":
        return [id(chunk, chunk)];
      case "gather":
        return rank === root ? [id(chunk, chunk)] : null;
      case "scatter":
        return rank === chunk ? [id(root, chunk)] : null;
      case "all_to_all":
        return [id(chunk, rank)];
      case "barrier":
        return fold(0, this.ranks);
    }
    throw new Error("unknown operation " + op);
  }

  folds() {
    return ["all_reduce", "reduce", "reduce_scatter", "scan", "exscan", "barrier"].includes(
        this.data.op);
  }

  // Does the caller of `rank` bring input for this chunk?
  brings(rank, chunk) {
    const { op, root } = this.data;
    if (op === "broadcast" || op === "scatter") return rank === root;
    if (op === "all_gather" || op === "gather") return rank === chunk;
    return true;
  }

  complete(rank, chunk) {
    const want = this.wanted(rank, chunk), have = this.out[rank][chunk];
    if (!want) return true;
    if (this.data.op === "barrier" && this.ranks === 1) return true;
    if (!have || have.length !== want.length) return false;
    const sorted = [...have].sort((a, b) => a - b);
    return want.every((input, i) => input === sorted[i]);
  }

  // [complete chunks, chunks that are to be complete in the end]
  score() {
    let complete = 0, all = 0;
    for (let r = 0; r < this.ranks; ++r) {
      for (let c = 0; c < this.chunks; ++c) {
        if (!this.wanted(r, c)) continue;
        all += 1;
        complete += this.complete(r, c);
      }
    }
    return [complete, all];
  }

  done() {
    const [complete, all] = this.score();
    return complete === all && this.step === this.steps && this.stuck.length === 0;
  }

  source(input) { return Math.floor(input / this.chunks); }

  // [rank][chunk]: the ranks whose inputs the result holds, in rank order.
  state() {
    return this.out.map(
        (row) => row.map((v) => v ? v.map((i) => this.source(i)).sort((a, b) => a - b) : []));
  }
}
