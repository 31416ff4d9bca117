// Where everything stands: cards of the ranks on a circle or by tree level, and the curves between
// them.

const kMaxScale = 1.7, kMinScale = 0.3;

class Layout {
  constructor(replay, width, height) {
    this.tree = tree_of(replay);
    // Where there is little room, less of it is for the links.
    let best = null;
    for (const distance of [54, 24, 8]) {
      best = best || this.largest(replay, width, height, distance);
    }
    Object.assign(this, best || this.attempt(replay, width, height, kMinScale, 1));
    this.curves = new Map();
  }

  // The largest scale at which any two cards are `distance` apart; null: there is none.
  largest(replay, width, height, distance) {
    let best = null;
    for (let columns = 1; columns <= Math.min(replay.chunks, 6); ++columns) {
      for (let scale = kMaxScale; scale >= kMinScale - 1e-9; scale -= 0.05) {
        if (best && best.scale >= scale) break;
        const attempt = this.attempt(replay, width, height, scale, columns);
        const free = distance * Math.min(1, scale);
        if (!apart(attempt.centers, attempt.card, width, height, free)) continue;
        best = attempt;
        break;
      }
    }
    return best;
  }

  attempt(replay, width, height, scale, columns) {
    const card = card_size(replay, scale, columns);
    const centers = this.tree ? by_level(this.tree, replay.ranks, card, width, height)
                              : on_circle(replay.ranks, card, width, height);
    return { scale, columns, card, centers };
  }

  cell(chunk) {
    const { cell_w, cell_h, head, margin, gap } = this.card;
    const column = chunk % this.columns, row = Math.floor(chunk / this.columns);
    return { x: margin + column * (cell_w + gap), y: head + row * (cell_h + gap) };
  }

  // The curve from rank a to rank b; both directions and a second channel each have their own.
  curve(a, b, channel, shared) {
    const key = a + ">" + b + "#" + channel;
    if (!this.curves.has(key)) this.curves.set(key, this.make_curve(a, b, channel, shared));
    return this.curves.get(key);
  }

  make_curve(a, b, channel, shared) {
    const p = this.centers[a], q = this.centers[b];
    const dx = q.x - p.x, dy = q.y - p.y, length = Math.hypot(dx, dy) || 1;
    const bend =
        (shared ? Math.min(30, length * 0.13) : Math.min(16, length * 0.05)) + channel * 24;
    const control = {
      x: (p.x + q.x) / 2 - dy / length * bend,
      y: (p.y + q.y) / 2 + dx / length * bend,
    };
    if (this.tree && Math.abs(dy) < 1 && Math.abs(dx) > 1.9 * this.card.w) {
      // Between two leaves: below the cards that stand between them.
      control.y = p.y + this.card.h + (dx > 0 ? 40 : 64);
    }
    const from = border(p, control, this.card, 3), to = border(q, control, this.card, 7);
    return { from, control, to };
  }
}

function point_on({ from, control, to }, t) {
  const u = 1 - t;
  return {
    x: u * u * from.x + 2 * u * t * control.x + t * t * to.x,
    y: u * u * from.y + 2 * u * t * control.y + t * t * to.y
  };
}

function curve_path({ from, control, to }) {
  const text = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M${text(from)}Q${text(control)} ${text(to)}`;
}

function card_size(replay, scale, columns) {
  const rows = Math.ceil(replay.chunks / columns);
  const segments = replay.folds() ? replay.ranks : 1;
  const bar_w = (segments === 1 ? 66 : Math.max(50, Math.min(110, 12 * segments))) * scale;
  const label_w = 21 * scale, cell_w = label_w + bar_w, cell_h = 15 * scale;
  const margin = 8 * scale, gap = 4 * scale, head = 24 * scale;
  const w = 2 * margin + columns * cell_w + (columns - 1) * gap;
  const h = head + rows * (cell_h + gap) - gap + margin;
  return { w, h, cell_w, cell_h, bar_w, label_w, margin, gap, head };
}

function on_circle(n, card, width, height) {
  const rx = width / 2 - card.w / 2 - 10, ry = height / 2 - card.h / 2 - 10;
  if (n === 1) return [{ x: width / 2, y: height / 2 }];
  const start = n === 2 ? Math.PI : -Math.PI / 2;
  // Equal steps along the ellipse's length, not in angle: neighbours are equally far apart.
  const fine = 1440, lengths = [0];
  // Many cards need the room in the corners: a squarer oval.
  const oval = (v) => n > 8 ? Math.sign(v) * Math.sqrt(Math.abs(v)) : v;
  const at = (i) => {
    const a = start + 2 * Math.PI * i / fine;
    return { x: width / 2 + rx * oval(Math.cos(a)), y: height / 2 + ry * oval(Math.sin(a)) };
  };
  for (let i = 1; i <= fine; ++i) {
    const p = at(i - 1), q = at(i);
    lengths.push(lengths[i - 1] + Math.hypot(q.x - p.x, q.y - p.y));
  }
  const centers = [];
  for (let r = 0, i = 0; r < n; ++r) {
    while (lengths[i] < lengths[fine] * r / n) ++i;
    centers.push(at(i));
  }
  return centers;
}

// The tree that chunk 0 takes, if the algorithm is one of trees: { root, children, depth }.
function tree_of(replay) {
  const { data, ranks } = replay;
  if (!["tree", "binomial"].includes(data.algorithm) || ranks < 3) return null;
  const near = Array.from({ length: ranks }, () => new Set());
  const carries = (m) => data.op === "gather" || data.op === "scatter" || m.chunk === 0;
  for (const m of replay.messages.filter(carries)) {
    near[m.link.src].add(m.to[0]);
    near[m.to[0]].add(m.link.src);
  }
  const turn = replay.fired.find((f) => f.step.last && f.step.out.some((o) => o.chunk === 0));
  const root = data.root !== null ? data.root : turn ? turn.rank : 0;
  const place = (r) => (r - (data.root || 0) + ranks) % ranks;
  const children = Array.from({ length: ranks }, () => []), depth = Array(ranks).fill(-1);
  depth[root] = 0;
  for (const queue = [root]; queue.length;) {
    const r = queue.shift();
    for (const q of [...near[r]].sort((x, y) => place(x) - place(y))) {
      if (depth[q] >= 0) continue;
      depth[q] = depth[r] + 1;
      children[r].push(q);
      queue.push(q);
    }
  }
  return depth.includes(-1) ? null : { root, children, depth };
}

// Leaves stand side by side, a parent above the middle of its children.
function by_level(tree, ranks, card, width, height) {
  const slot = Array(ranks).fill(0);
  let leaves = 0;
  const visit = (r) => {
    const children = tree.children[r];
    children.forEach(visit);
    const last = children.length - 1;
    slot[r] = last >= 0 ? (slot[children[0]] + slot[children[last]]) / 2 : leaves++;
  };
  visit(tree.root);
  // Room below for the curves between the leaves.
  const levels = Math.max(...tree.depth), below = 76;
  const span_x = width - card.w - 24, span_y = height - card.h - 12 - below;
  const across = (r) => leaves > 1 ? slot[r] / (leaves - 1) : 0.5;
  return slot.map((_, r) => ({
    x: 12 + card.w / 2 + span_x * across(r),
    y: 12 + card.h / 2 + span_y * tree.depth[r] / levels,
  }));
}

function apart(centers, card, width, height, distance) {
  for (let i = 0; i < centers.length; ++i) {
    const p = centers[i];
    if (p.x - card.w / 2 < 2 || p.x + card.w / 2 > width - 2) return false;
    if (p.y - card.h / 2 < 2 || p.y + card.h / 2 > height - 2) return false;
    for (let j = 0; j < i; ++j) {
      const q = centers[j];
      const free_x = Math.abs(p.x - q.x) - card.w, free_y = Math.abs(p.y - q.y) - card.h;
      if (Math.max(free_x, free_y) < distance) return false;
    }
  }
  return true;
}

// Where the line from the middle of a card towards `target` leaves the card.
function border(center, target, card, margin) {
  const dx = target.x - center.x, dy = target.y - center.y;
  const fx = (card.w / 2 + margin) / Math.abs(dx || 1e-9);
  const fy = (card.h / 2 + margin) / Math.abs(dy || 1e-9);
  const f = Math.min(fx, fy);
  return { x: center.x + dx * f, y: center.y + dy * f };
}
