// The words around the drawing: title, legend, numbers, and what each rank does in a step.

function node(name, text = "", ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function count(number, noun) { return `${number} ${noun}${number === 1 ? "" : "s"}`; }

function write_title(replay) {
  const { op, algorithm, ranks, root } = replay.data;
  document.title = `${op} by ${algorithm}, ${count(ranks, "rank")} - Treering`;
  element("title").textContent = `${op} by ${algorithm}`;
  let chunks = `the vector is cut into ${replay.chunks} chunks`;
  if (replay.chunks === 1) chunks = "the vector travels whole";
  if (op === "barrier") chunks = "no data, only news of who has come";
  const where = root === null ? "" : `, root ${root}`;
  element("subtitle").textContent = `${count(ranks, "rank")}${where}; ${chunks}`;
}

function write_numbers(replay) {
  const { data } = replay;
  const share = (bytes) => `${+(bytes / data.bytes).toPrecision(4)} S`;
  const most = (kind) => Math.max(...data.traffic.map(kind));
  const sent = most((t) => t.sent.bytes), cast = most((t) => t.cast.bytes);
  const window_bytes = most((t) => t.window_bytes);

  const facts = [["steps", `${replay.steps} (messages one after the other)`]];
  if (data.op !== "barrier") {
    facts.push(["S, the vector", `${data.bytes.toLocaleString("en")} bytes of ${data.type}`]);
    if (sent > 0 || cast === 0) facts.push(["a rank sends", `at most ${share(sent)}`]);
    if (cast > 0) facts.push(["to all at once", `at most ${share(cast)}`]);
    if (window_bytes > 0) facts.push(["in peers' memory", `at most ${share(window_bytes)}`]);
  }
  facts.push(["formula", data.formula], ["source", data.source]);
  if (data.proven_slots !== undefined) {
    const slots = count(data.proven_slots, "slot");
    facts.push(["proven", `complete, and no deadlock with ${slots} per link`]);
  }
  for (const [name, value] of facts) element("facts").append(node("dt", name), node("dd", value));
}

function sample(boxes, filled, kind) {
  const picture = svg(null, "svg", { viewBox: "0 0 52 14", width: 52, height: 14 });
  picture.setAttribute("aria-hidden", "true");
  const pitch = 52 / boxes, gap = boxes > 1 ? 1.5 : 0;
  for (let i = 0; i < boxes; ++i) {
    const name = i < filled ? `fill k0 ${kind}` : "track";
    svg(picture, "rect", { class: name, x: i * pitch, width: pitch - gap, height: 14 });
  }
  return picture;
}

function write_legend(replay) {
  const line = (picture, text) => element("legend").append(node("li", "", picture, text));
  if (replay.data.op === "barrier") {
    line(sample(Math.min(replay.ranks, 4), 1, "seen"),
         "One box per rank: filled if that rank is known to have come.");
  } else if (replay.folds()) {
    const boxes = Math.min(replay.ranks, 4);
    line(sample(boxes, 1, "seen"), "One box per rank: filled if the chunk contains that rank's " +
         "input. Pale: the own input, or a sum that passed through.");
    line(sample(boxes, Math.max(1, boxes - 1), "kept"),
         "Strong: kept in the result, not yet complete.");
  } else {
    line(sample(1, 1, "seen"), "Pale: the caller's own input, or a chunk that passed through.");
  }
  if (replay.data.op === "all_to_all") {
    line(sample(1, 1, "foreign"), "1→3: the part of rank 1 for rank 3; hatched: on its way.");
  }
  if (replay.data.algorithm === "tree") {
    const trees = sample(1, 0, "");
    trees.setAttribute("class", "roads");
    trees.replaceChildren();
    svg(trees, "path", { class: "of-chunk k0", d: "M0 4h52" });
    svg(trees, "path", { class: "of-chunk k1", d: "M0 11h52" });
    line(trees, "Two trees share the work: c0 takes the solid lines, c1 the dashed ones.");
  }
  const complete = sample(1, 0, "");
  svg(complete, "rect", { class: "whole on k0", width: 52, height: 14, rx: 3 });
  svg(complete, "path", { class: "check on", d: "M38 7l3 3 5.5-6.5" });
  line(complete, "Complete, as the operation promises.");
}

function write_words(replay, view) {
  element("step-title").textContent =
    replay.step === 0 ? "Start" : `Step ${replay.step} of ${replay.steps}`;
  const rows = [];
  for (let rank = 0; rank < replay.ranks; ++rank) {
    const mine = replay.fired.filter((f) => f.rank === rank);
    const now = mine.filter((f) => f.at === replay.step);
    const cell = node("td", "", ...now.map((f) => node("p", f.step.words)));
    if (!now.length) {
      cell.textContent = mine.some((f) => f.at > replay.step) ? "waits" : "has finished";
      cell.className = "idle";
    }
    const head = node("th", String(rank)), card = view.cards[rank].g;
    head.scope = "row";
    const row = node("tr", "", head, cell);
    row.addEventListener("pointerenter", () => card.classList.add("pointed"));
    row.addEventListener("pointerleave", () => card.classList.remove("pointed"));
    rows.push(row);
  }
  element("words").replaceChildren(...rows);
}

function write_status(replay) {
  const { op, algorithm, ranks } = replay.data, [complete, all] = replay.score();
  const at_end = replay.step === replay.steps;
  let text = op === "barrier" ? `${complete} of ${all} ranks know that all have come.`
                              : `${complete} of ${all} result chunks are complete.`;
  let kind = "";
  if (replay.done()) {
    kind = "done";
    text = op === "barrier" ? "Done: every rank knows that all have come."
                            : "Done: every rank holds all that it was promised.";
  } else if (at_end && replay.stuck.length) {
    kind = "stuck";
    const { rank, step } = replay.stuck[0], input = step.in.find((o) => o.space === "link");
    text = `Stuck: rank ${rank} waits on link ${input.link} for a message that never comes.`;
  } else if (at_end) {
    kind = "stuck";
    text = `Wrong: only ${text}`;
  }
  element("status").textContent = text;
  element("status").className = kind;
  const where = `${op} by ${algorithm} on ${ranks} ranks, step ${replay.step} of ${replay.steps}`;
  element("drawing").setAttribute("aria-label", `${where}. ${text}`);
}
