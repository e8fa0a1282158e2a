// Where the parts of a stage's graph stand. Groups are laid out from top to bottom in the order of the forward pass; an
// open one has its forward operators on the left, read downwards, and its backward operators beside them, read upwards, so
// that an operator stands near its gradient. dagre orders the operators of a rank and routes the edges.

const NODE = { height: 46, gap: 26, side: 14 };
const CARD = { width: 436, height: 92 };
const GROUP = { gap: 54, head: 30, margin: 10, rowName: 78, laneGap: 30 };
const PILL = { height: 22 };
const TILE = { width: 20, height: 14 };
const LETTER_PIXELS = 6.3;
const BOLD_PIXELS = 7.3;

const laneOf = (node) => (node.phase === "forward" ? "forward" : "backward");

// doc: see figures/dataflow/document.py; open: a Set of ids of groups. Returns {width, height, groups, nodes, pills, edges,
// rows}, each with its place in pixels; edges have points and the edges of the document that they stand for.
function layoutDataflow(doc, open) {
  const nodes = new Map(doc.nodes.map((node) => [node.id, node]));
  const inside = new Map(doc.groups.map((group) => [group.id, open.has(group.id) ? layoutOnce(doc, nodes, group) : null]));
  const size = (id) => inside.get(id) ?? CARD;
  const between = withoutShortcuts(edgesBetween(doc, nodes));
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ nodesep: 40, ranksep: GROUP.gap, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id } of doc.groups) graph.setNode(id, { width: size(id).width, height: size(id).height });
  for (const { from, to, lane } of between) {
    const [upper, lower] = lane === "forward" ? [from, to] : [to, from];
    graph.setEdge(upper, lower, { weight: lane === "forward" ? 2 : 1 });
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const found = { width: width || CARD.width, height: height || CARD.height, groups: [], nodes: [], pills: [], edges: [], rows: [] };
  for (const group of doc.groups) {
    const { x, y } = graph.node(group.id);
    const part = inside.get(group.id);
    const place = { group, open: Boolean(part), x: x - size(group.id).width / 2, y: y - size(group.id).height / 2, width: size(group.id).width, height: size(group.id).height };
    found.groups.push(place);
    for (const name of part ? ["nodes", "pills", "rows"] : []) {
      found[name].push(...part[name].map((item) => ({ ...item, x: item.x + place.x, y: item.y + place.y })));
    }
    const moved = ({ x: px, y: py }) => ({ x: px + place.x, y: py + place.y });
    found.edges.push(...(part?.edges ?? []).map((edge) => ({ ...edge, points: edge.points.map(moved) })));
  }
  const placeOf = new Map(found.groups.map((place) => [place.group.id, place]));
  found.edges.push(...between.map((edge) => routed(edge, placeOf, graph)));
  return found;
}

// Edges between groups, those of one direction and lane together: {from, to, lane, edges}.
function edgesBetween(doc, nodes) {
  const found = new Map();
  for (const edge of doc.edges) {
    const [a, b] = [nodes.get(edge.a), nodes.get(edge.b)];
    if (!a || !b || a.group === b.group) continue;
    if (laneOf(a) !== laneOf(b) && !isTurn(a, b, doc)) continue; // kept for the backward pass: told at the operators
    const id = `${a.group} ${b.group} ${laneOf(b)}`;
    if (!found.has(id)) found.set(id, { from: a.group, to: b.group, lane: laneOf(b), edges: [] });
    found.get(id).edges.push(edge);
  }
  return [...found.values()];
}

// Without what a group gives to a distant one and no collective moves, where data also takes the way through the groups
// between: a table of positions that all blocks read would be a line to each of them. The operators of an open group tell it.
function withoutShortcuts(between) {
  const next = new Map(); // `lane group` -> the groups that it gives something
  for (const { from, to, lane } of between) next.set(`${lane} ${from}`, [...(next.get(`${lane} ${from}`) ?? []), to]);
  const hasDetour = ({ from, to, lane }) => {
    const reached = new Set([from]);
    const left = (next.get(`${lane} ${from}`) ?? []).filter((group) => group !== to);
    while (left.length) {
      const group = left.pop();
      if (group === to) return true;
      if (reached.has(group)) continue;
      reached.add(group);
      left.push(...(next.get(`${lane} ${group}`) ?? []));
    }
    return false;
  };
  return between.filter((edge) => edge.edges.some(({ seconds }) => seconds) || !hasDetour(edge));
}

const isTurn = (a, b, doc) => a.group === b.group && doc.groups.at(-1).id === a.group;

const laneX = (place, lane) => (place.open ? place.x + place.width * (lane === "forward" ? 0.3 : 0.75) : place.x + place.width * (lane === "forward" ? 0.25 : 0.75));

function routed({ from, to, lane, edges }, placeOf, graph) {
  const [a, b] = [placeOf.get(from), placeOf.get(to)];
  const down = lane === "forward";
  const [upper, lower] = down ? [from, to] : [to, from];
  const middle = (graph.edge(upper, lower)?.points ?? []).slice(1, -1).map(({ x, y }) => ({ x: x + (down ? -12 : 12), y }));
  if (!down) middle.reverse();
  const far = middle.length > 1; // it passes other groups
  const start = { x: laneX(a, lane), y: down ? a.y + a.height : a.y };
  const end = { x: laneX(b, lane), y: down ? b.y : b.y + b.height };
  return { edges, lane, points: [start, ...(far ? middle : []), end] };
}

// A group that was open before keeps its layout.
function layoutOnce(doc, nodes, group) {
  doc.layouts ??= new Map();
  if (!doc.layouts.has(group.id)) doc.layouts.set(group.id, layoutGroup(doc, nodes, group));
  return doc.layouts.get(group.id);
}

// One open group: {width, height, nodes, pills, edges, rows} relative to its upper left corner.
function layoutGroup(doc, nodes, group) {
  const members = doc.nodes.filter((node) => node.group === group.id);
  const lanes = { forward: laneParts(doc, nodes, group, members, "forward"), backward: laneParts(doc, nodes, group, members, "backward") };
  const rows = rowsOf(members);
  const ranks = rankBoth(lanes, rows);
  const found = { nodes: [], pills: [], edges: [], rows: [] };
  let left = GROUP.margin + GROUP.rowName;
  const top = GROUP.head + GROUP.margin;
  for (const lane of ["forward", "backward"]) {
    const placed = layoutLane(lanes[lane], ranks, lane);
    found.nodes.push(...placed.nodes.map((item) => ({ ...item, x: item.x + left, y: item.y + top })));
    found.pills.push(...placed.pills.map((item) => ({ ...item, x: item.x + left, y: item.y + top })));
    found.edges.push(...placed.edges.map((edge) => ({ ...edge, points: edge.points.map(({ x, y }) => ({ x: x + left, y: y + top })) })));
    left += placed.width + (placed.width ? GROUP.laneGap : 0);
  }
  found.width = Math.max(left - GROUP.laneGap + GROUP.margin, CARD.width);
  found.height = top + ranks.count * (NODE.height + NODE.gap) - NODE.gap + GROUP.margin;
  const step = NODE.height + NODE.gap;
  for (const { name, first, last } of ranks.rows) {
    found.rows.push({ name, x: GROUP.margin, y: top + first * step - NODE.gap / 2, width: found.width - 2 * GROUP.margin, height: (last - first + 1) * step });
  }
  found.edges.push(...acrossLanes(doc, group, found.nodes));
  return found;
}

// The nodes, pills and edges of one lane. A pill stands for what is no node of the group: another group, a stored weight.
function laneParts(doc, nodes, group, members, lane) {
  const own = new Map(members.filter((node) => laneOf(node) === lane).map((node) => [node.id, node]));
  const pills = new Map();
  const pill = (id, text, at, near) => {
    if (!pills.has(id)) pills.set(id, { id, text, at, near });
    return id;
  };
  const edges = [];
  for (const edge of doc.edges) {
    const [inA, inB] = [own.has(edge.a), own.has(edge.b)];
    if (!inA && !inB) continue;
    const [a, b] = [nodes.get(edge.a), nodes.get(edge.b)];
    if (inA && inB && !edge.next) edges.push({ edge, a: edge.a, b: edge.b });
    if (inA && inB && edge.next) {
      edges.push({ edge, a: edge.a, b: pill("next", "next block", "end") });
      edges.push({ edge, a: pill("before", "block before", "start"), b: edge.b });
    }
    if (inB && !inA && !edge.next) {
      if (edge.end && edge.seconds) edges.push({ edge, a: pill(`weight ${edge.b}`, edge.end, "near", edge.b), b: edge.b });
      else if (a && a.group !== group.id && laneOf(a) === lane) {
        edges.push({ edge, a: pill(`from ${a.group}`, `from ${label(doc, a.group)}`, "start"), b: edge.b });
      }
    }
    if (inA && !inB && !edge.next) {
      if (edge.end) edges.push({ edge, a: edge.a, b: pill(`end ${edge.a}`, edge.end, "near", edge.a) });
      else if (b && b.group !== group.id && laneOf(b) === lane) {
        edges.push({ edge, a: edge.a, b: pill(`to ${b.group}`, `to ${label(doc, b.group)}`, "end") });
      }
    }
  }
  return { own, pills, edges: merged(edges), lane };
}

const label = (doc, id) => doc.groups.find((group) => group.id === id).label;

// One line for all edges of the document between the same two ends.
function merged(edges) {
  const found = new Map();
  for (const { edge, a, b } of edges) {
    const id = `${a} ${b}`;
    if (!found.has(id)) found.set(id, { a, b, edges: [] });
    found.get(id).edges.push(edge);
  }
  return [...found.values()];
}

// Runs of forward operators of the same part of the block, such as its attention: the rows of both lanes.
function rowsOf(members) {
  const rows = [];
  for (const node of members.filter((member) => member.phase === "forward")) {
    if (rows.at(-1)?.name !== node.part) rows.push({ name: node.part, nodes: [] });
    rows.at(-1).nodes.push(node.id);
  }
  return rows.length ? rows : [{ name: "", nodes: [] }];
}

// The rank of every node and pill of both lanes: those of one row in the same ranks, whatever their number in each lane.
function rankBoth(lanes, rows) {
  const rowOf = new Map(rows.flatMap((row, place) => row.nodes.map((id) => [id, place])));
  let pointer = rows.length - 1; // backward operators come to the rows from below
  for (const node of lanes.backward.own.values()) {
    if (node.phase === "update") continue;
    let place = pointer;
    while (place >= 0 && rows[place].name !== node.part) place -= 1;
    if (place >= 0) pointer = place;
    rowOf.set(node.id, pointer);
  }
  for (const node of lanes.backward.own.values()) {
    if (node.phase === "update") rowOf.set(node.id, Math.max(0, rows.findIndex((row) => row.name === node.part)));
  }
  const rank = new Map();
  const sorted = {};
  for (const lane of Object.values(lanes)) {
    for (const { id, at, near } of lane.pills.values()) {
      const above = (at === "start") === (lane.lane === "forward");
      rowOf.set(id + lane.lane, at === "near" ? rowOf.get(near) ?? 0 : above ? 0 : rows.length - 1);
    }
    sorted[lane.lane] = inLayoutOrder(lane);
  }
  const row = (lane, id) => rowOf.get(lane.pills.has(id) ? id + lane.lane : id) ?? 0;
  for (const lane of Object.values(lanes)) { // no edge leads to a row above
    for (const { id, before } of sorted[lane.lane]) {
      const least = Math.max(row(lane, id), ...before.map((other) => row(lane, other)));
      rowOf.set(lane.pills.has(id) ? id + lane.lane : id, least);
    }
  }
  let start = 0;
  const found = [];
  rows.forEach(({ name }, place) => {
    let last = start;
    for (const lane of Object.values(lanes)) {
      for (const { id, before } of sorted[lane.lane]) {
        if (row(lane, id) !== place) continue;
        const at = Math.max(start, ...before.map((other) => (rank.get(lane.lane + other) ?? -1) + 1));
        rank.set(lane.lane + id, at);
        last = Math.max(last, at);
      }
    }
    found.push({ name, first: start, last });
    start = last + 1;
  });
  return { of: (lane, id) => rank.get(lane + id) ?? 0, count: start, rows: found };
}

// The ids of a lane from top to bottom, each with those above it that it is connected to.
function inLayoutOrder(lane) {
  const ids = [...lane.own.keys(), ...lane.pills.keys()];
  const before = new Map(ids.map((id) => [id, []]));
  for (const { a, b } of lane.edges) before.get(lane.lane === "forward" ? b : a).push(lane.lane === "forward" ? a : b);
  const done = new Map();
  const visit = (id) => {
    if (done.has(id)) return;
    done.set(id, null); // a cycle, which a stage does not have, would end here
    before.get(id).forEach(visit);
    done.delete(id);
    done.set(id, { id, before: before.get(id) });
  };
  ids.forEach(visit);
  return [...done.values()];
}

const nodeWidth = (node) => {
  const { shown, more } = shownTiles(node);
  const spec = shown.at(-1)?.role === "output" ? shown.at(-1).spec : "";
  const tiles = 16 + shown.length * (TILE.width + 4) + (more ? 36 : 16) + LETTER_PIXELS * 0.95 * spec.length;
  return Math.round(Math.max(104, 26 + BOLD_PIXELS * node.label.length + LETTER_PIXELS * node.time.length, tiles));
};

// Three inputs and the output have room; the detail below the graph shows all.
function shownTiles(node) {
  const inputs = node.tiles.filter((tile) => tile.role !== "output");
  return { shown: [...inputs.slice(0, 3), ...node.tiles.filter((tile) => tile.role === "output")], more: Math.max(0, inputs.length - 3) };
}

function layoutLane(lane, ranks, name) {
  if (!lane.own.size) return { nodes: [], pills: [], edges: [], width: 0 };
  const graph = new dagre.graphlib.Graph();
  const spine = (rank) => `spine ${rank}`; // an empty node in each rank, so that all ranks have the same height
  const rankOf = (id) => (id.startsWith("spine ") ? Number(id.slice(6)) : ranks.of(name, id));
  const ranker = (inner) => {
    // dagre has put a rank for the labels of edges between any two, and a root above all.
    for (const id of inner.nodes()) inner.node(id).rank = graph.hasNode(id) ? 2 * rankOf(id) : -1;
  };
  graph.setGraph({ nodesep: NODE.side, edgesep: 8, ranksep: NODE.gap, ranker });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of lane.own.values()) graph.setNode(node.id, { width: nodeWidth(node), height: NODE.height });
  for (const { id, text } of lane.pills.values()) graph.setNode(id, { width: 18 + LETTER_PIXELS * text.length, height: PILL.height });
  for (let rank = 0; rank < ranks.count; rank += 1) {
    graph.setNode(spine(rank), { width: 0, height: NODE.height });
    if (rank) graph.setEdge(spine(rank - 1), spine(rank), { weight: 4 });
  }
  for (const { a, b } of lane.edges) graph.setEdge(...(name === "forward" ? [a, b] : [b, a]));
  dagre.layout(graph);
  const places = [...lane.own.keys(), ...lane.pills.keys()].map((id) => graph.node(id));
  const left = Math.min(...places.map((place) => place.x - place.width / 2));
  const right = Math.max(...places.map((place) => place.x + place.width / 2));
  const at = (id) => {
    const { x, y, width, height } = graph.node(id);
    return { x: x - width / 2 - left, y: y - height / 2, width, height };
  };
  const edges = lane.edges.map(({ a, b, edges: all }) => {
    const points = graph.edge(...(name === "forward" ? [a, b] : [b, a])).points.map(({ x, y }) => ({ x: x - left, y }));
    return { edges: all, lane: name, points: name === "forward" ? points : points.reverse() };
  });
  return {
    nodes: [...lane.own.values()].map((node) => ({ node, ...at(node.id) })),
    pills: [...lane.pills.values()].map(({ id, text }) => ({ text, ...at(id) })),
    edges,
    width: right - left,
  };
}

// What a forward operator leaves for a backward one: drawn where a collective moves it, or an end of it is looked at.
function acrossLanes(doc, group, placed) {
  const places = new Map(placed.map((place) => [place.node.id, place]));
  const crossing = doc.edges.filter(({ a, b, next }) => !next && places.has(a) && places.has(b) && laneOf(places.get(a).node) !== laneOf(places.get(b).node));
  return merged(crossing.map((edge) => ({ edge, a: edge.a, b: edge.b }))).map(({ a, b, edges }) => {
    const [from, to] = [places.get(a), places.get(b)];
    const start = { x: from.x + from.width, y: from.y + from.height / 2 };
    const end = { x: to.x, y: to.y + to.height / 2 };
    return { edges, lane: "across", points: [start, end] };
  });
}
