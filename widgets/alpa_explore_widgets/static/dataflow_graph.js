// The graph of a stage: folded blocks that open, operators with their tiles, collectives on the edges.

const ZOOM = { least: 0.1, most: 2, step: 1.25, opening: 0.8 };
const EDGE = { thinnest: 1.2, thickest: 13 };
const DRAG_PIXELS = 4;

function curve(points) {
  // Smooth, and vertical at both ends of each part.
  let path = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i += 1) {
    const [p, q] = [points[i - 1], points[i]];
    const middle = (p.y + q.y) / 2;
    path += `C${p.x} ${middle} ${q.x} ${middle} ${q.x} ${q.y}`;
  }
  return path;
}

function sideways([start, end]) {
  const middle = (start.x + end.x) / 2;
  return `M${start.x} ${start.y}C${middle} ${start.y} ${middle} ${end.y} ${end.x} ${end.y}`;
}

const HEIGHTS = [240, 900]; // of the graph

function render({ model, el }) {
  el.classList.add("alpa-flow");
  const bar = html("div", "alpa-flow-bar");
  const view = html("div", "alpa-flow-view");
  const detail = html("div", "alpa-flow-detail");
  detail.setAttribute("aria-live", "polite");
  el.append(bar, view, detail);

  let doc = null;
  let placed = null;
  let newest = 0;
  let outdated = false;
  let zoom = 0;
  let focused = ""; // id of the group or node that the keyboard is at
  let shown = ""; // id of the node in the detail
  const open = new Set();
  const [arrow, hatch] = ["arrow", "hatch"].map((name) => `alpa-${name}-${Math.random().toString(36).slice(2)}`);
  const items = new Map(); // id -> {element, place, kind}

  const nodeOf = (id) => doc.nodes.find((node) => node.id === id);
  const keyOf = (node, key = node.keys[0]) => `stage:${doc.stage}/${key}`;
  let selection = keyParts(""); // read once, used for every node
  const chosen = (node) => {
    if ((selection.get("stage") ?? String(doc.stage)) !== String(doc.stage)) return false;
    node.places ??= node.keys.map(keyParts);
    return node.places.some((place) => [...place].every(([kind, value]) => (selection.get(kind) ?? value) === value));
  };
  const selects = () => Boolean(model.get("selection"));
  const named = () => selection.get("operator");

  // Drawing

  const drawGroup = (place) => {
    const { group } = place;
    const card = svg("g", { class: `alpa-flow-group${place.open ? " alpa-open" : ""}`, transform: `translate(${place.x} ${place.y})` });
    card.append(svg("rect", { class: "alpa-flow-box", width: place.width, height: place.height, rx: 7 }));
    const head = svg("g", { class: "alpa-flow-head" }, svg("rect", { class: "alpa-flow-hit", width: place.width, height: place.open ? GROUP.head : place.height, rx: 7 }));
    const times = group.count > 1 ? ` × ${group.count}` : "";
    head.append(svg("path", { class: "alpa-flow-fold", d: place.open ? "M12 12h9l-4.5 7z" : "M13 11v9l7-4.5z" }));
    head.append(svg("text", { x: 26, y: 20, class: "alpa-flow-title" }, `${group.label}${times}`));
    if (place.open) head.append(svg("text", { x: place.width - 12, y: 20, "text-anchor": "end", class: "alpa-flow-quiet" }, openNote(group)));
    else drawTotals(head, place);
    card.append(head);
    const words = Object.entries(group.phases).map(([phase, { text }]) => `${phase} ${text}`).join(", ");
    makeItem(head, group.id, "group", place, `${group.label}${times}, block: ${words}`);
    head.setAttribute("aria-expanded", String(place.open));
    head.append(svg("title", {}, [`${group.label}${times}`, words, group.note, place.open ? "Click or Enter: fold" : "Click or Enter: open"].filter(Boolean).join("\n")));
    return card;
  };

  const openNote = (group) => (group.count > 1 ? `one of ${group.count} equal blocks` : "");

  const drawTotals = (head, place) => {
    const longest = Math.max(...doc.groups.flatMap((group) => Object.values(group.phases).map(({ compute, moved }) => compute + moved)), 1e-30);
    const names = { forward: [12, 44], backward: [place.width / 2 + 6, 44], update: [12, 82] };
    const room = place.width / 2 - 24;
    for (const [phase, { compute, moved, text }] of Object.entries(place.group.phases)) {
      const [x, y] = names[phase];
      head.append(svg("text", { x, y, class: "alpa-flow-quiet" }, phase));
      head.append(svg("text", { x: phase === "update" ? x + 52 : x + room, y, "text-anchor": phase === "update" ? "start" : "end", class: "alpa-flow-number" }, text));
      if (phase === "update") continue;
      const [width, more] = [(room * compute) / longest, (room * moved) / longest];
      head.append(svg("rect", { class: "alpa-flow-compute", x, y: y + 6, width: Math.max(width, 1), height: 8 }));
      if (moved) head.append(svg("rect", { class: "alpa-flow-moved", fill: `url(#${hatch})`, x: x + width, y: y + 6, width: Math.max(more, 1.5), height: 8 }));
    }
  };

  const drawNode = (place) => {
    const { node } = place;
    const card = svg("g", { class: `alpa-flow-node alpa-${node.phase}`, transform: `translate(${place.x} ${place.y})` });
    card.append(svg("rect", { class: "alpa-flow-box", width: place.width, height: place.height, rx: 4 }));
    card.append(svg("text", { x: 8, y: 16, class: "alpa-flow-label" }, node.label));
    card.append(svg("text", { x: place.width - 8, y: 16, "text-anchor": "end", class: "alpa-flow-number" }, node.time));
    const { shown: tiles, more } = shownTiles(node);
    let x = 8;
    for (const item of tiles) {
      const output = item.role === "output";
      if (output) {
        card.append(svg("text", { x, y: 35, class: "alpa-flow-quiet" }, more ? `+${more} →` : "→"));
        x += more ? 36 : 16;
      }
      const picture = tile(doc.specs[item.spec], doc.sizes, [], TILE.width, TILE.height);
      picture.setAttribute("transform", `translate(${x} 24)`);
      picture.classList.add(`alpa-${item.role}`);
      card.append(picture);
      x += TILE.width + 4;
      if (output) card.append(svg("text", { x, y: 35, class: "alpa-flow-spec" }, item.spec));
    }
    const longest = Math.max(...doc.nodes.map(({ seconds }) => seconds), 1e-30);
    card.append(svg("rect", { class: "alpa-flow-compute", x: 1, y: place.height - 4, width: Math.max(1, (place.width - 2) * (node.seconds / longest)), height: 3 }));
    const reads = node.tiles.filter(({ role }) => role !== "output").map(({ spec }) => spec).join(", ");
    const writes = node.tiles.filter(({ role }) => role === "output").map(({ spec }) => spec).join(", ");
    makeItem(card, node.id, "node", place, `${node.text[0]} (${node.label}), ${node.phase}, ${node.text[2]}, reads ${reads || "nothing"}, writes ${writes || "nothing"}`);
    card.append(svg("title", {}, node.text.join("\n")));
    return card;
  };

  const makeItem = (element, id, kind, place, name) => {
    element.setAttribute("role", "button");
    element.setAttribute("tabindex", id === focused ? "0" : "-1");
    element.setAttribute("aria-label", name);
    element.dataset.id = id;
    items.set(id, { element, place, kind });
  };

  // Of one kind, in each microbatch or once an iteration, widths are in proportion to seconds.
  const drawEdge = (edge, longest) => {
    const slowest = [...edge.edges].sort((x, y) => y.seconds - x.seconds)[0];
    const { seconds, label, once } = slowest;
    const path = edge.lane === "across" ? sideways(edge.points) : curve(edge.points);
    const ends = [...new Set(edge.edges.flatMap(({ a, b }) => [a, b]))].filter(Boolean);
    const kinds = `${seconds ? " alpa-moves" : ""}${seconds && once ? " alpa-once" : ""}`;
    const group = svg("g", { class: `alpa-flow-edge alpa-${edge.lane}${kinds}`, "data-ends": ends.join(" ") });
    const width = seconds ? Math.max(EDGE.thinnest, (EDGE.thickest * seconds) / longest[once]) : undefined;
    group.append(svg("path", { d: path, ...(width ? { style: `stroke-width:${width.toFixed(1)}px` } : { "marker-end": `url(#${arrow})` }) }));
    const texts = edge.edges.flatMap(({ text }) => text);
    if (texts.length) group.append(svg("title", {}, texts.slice(0, 8).join("\n")));
    return { group, label, points: edge.points };
  };

  const drawLabel = ({ label, points }) => {
    const at = points.length % 2 ? points[(points.length - 1) / 2] : { x: (points[points.length / 2 - 1].x + points[points.length / 2].x) / 2, y: (points[points.length / 2 - 1].y + points[points.length / 2].y) / 2 };
    const width = label.length * 5.9 + 10;
    return svg("g", { class: "alpa-flow-edge-label", transform: `translate(${at.x} ${at.y})` }, svg("rect", { x: -width / 2, y: -8, width, height: 16, rx: 8 }), svg("text", { y: 4, "text-anchor": "middle" }, label));
  };

  const draw = () => {
    if (!doc) return;
    outdated = !el.clientWidth; // hidden in another tab: drawn when it is shown
    if (outdated) return;
    placed = layoutDataflow(doc, open);
    items.clear();
    if (!focused || !isThere(focused)) focused = placed.groups[0]?.group.id ?? "";
    const canvas = svg("svg", { class: "alpa-flow-canvas", role: "group", "aria-label": model.get("label") });
    const head = svg("marker", { id: arrow, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "alpa-flow-arrow" }));
    const hatching = svg("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 5, height: 5, class: "alpa-hatch-ground" }), svg("rect", { width: 2.2, height: 5, class: "alpa-hatch-line" }));
    canvas.append(svg("defs", {}, head, hatching));
    const longest = Object.fromEntries([true, false].map((once) => [once, Math.max(1e-30, ...doc.edges.filter((edge) => edge.once === once).map(({ seconds }) => seconds))]));
    canvas.append(...placed.groups.map(drawGroup));
    for (const row of placed.rows) {
      canvas.append(svg("path", { class: "alpa-flow-row", d: `M${row.x} ${row.y}h${row.width}` }));
      canvas.append(svg("text", { class: "alpa-flow-part", x: row.x, y: row.y + 18 }, row.name.replaceAll("_", " ")));
    }
    const edges = placed.edges.map((edge) => drawEdge(edge, longest));
    canvas.append(...edges.map(({ group }) => group));
    for (const pill of placed.pills) {
      const box = svg("g", { class: "alpa-flow-pill", transform: `translate(${pill.x} ${pill.y})` }, svg("rect", { width: pill.width, height: pill.height, rx: pill.height / 2 }));
      box.append(svg("text", { x: pill.width / 2, y: pill.height / 2 + 4, "text-anchor": "middle" }, pill.text));
      canvas.append(box);
    }
    canvas.append(...placed.nodes.map(drawNode), ...edges.filter(({ label }) => label).map(drawLabel));
    view.replaceChildren(canvas);
    const isFirst = !zoom;
    setZoom(zoom || Math.min(1, Math.max(ZOOM.opening, (view.clientWidth - 4) / placed.width)));
    if (isFirst) { // of a wide graph the first block, which may be far from its side
      const { x, y, width } = placed.groups[0];
      view.scrollTo({ left: (x + width / 2) * zoom - view.clientWidth / 2, top: y * zoom - 8 });
    }
    highlight();
  };

  const isThere = (id) => placed.groups.some(({ group }) => group.id === id) || placed.nodes.some(({ node }) => node.id === id);

  const setZoom = (value, about = null) => {
    const before = zoom || 1;
    zoom = Math.min(ZOOM.most, Math.max(ZOOM.least, value));
    const canvas = view.firstElementChild;
    if (!canvas) return;
    const at = about ?? { x: view.clientWidth / 2, y: view.clientHeight / 2 };
    const place = { x: (view.scrollLeft + at.x) / before, y: (view.scrollTop + at.y) / before };
    canvas.setAttribute("viewBox", `0 0 ${placed.width} ${placed.height}`);
    canvas.setAttribute("width", placed.width * zoom);
    canvas.setAttribute("height", placed.height * zoom);
    view.scrollTo({ left: place.x * zoom - at.x, top: place.y * zoom - at.y });
  };
  const fit = () => setZoom(Math.min((view.clientWidth - 4) / placed.width, (view.clientHeight - 4) / placed.height, 1));

  // The selection, and what is looked at

  const highlight = () => {
    if (!doc || outdated) return;
    const none = !selects();
    for (const [id, { element, kind }] of items) {
      const on = kind === "node" ? chosen(nodeOf(id)) : doc.nodes.some((node) => node.group === id && chosen(node));
      const target = kind === "node" ? element : element.parentNode;
      target.classList.toggle("alpa-faded", !none && !on);
      target.classList.toggle("alpa-chosen", !none && on && Boolean(named()));
      if (kind === "node") element.setAttribute("aria-pressed", String(!none && on && Boolean(named())));
    }
    const node = named() ? doc.nodes.find(chosen) : null;
    showDetail(node ?? (shown ? nodeOf(shown) : null));
    markEdges(node?.id ?? "");
    el.dispatchEvent(new CustomEvent("alpa-drawn", { bubbles: true }));
  };

  const markEdges = (id) => {
    for (const edge of view.querySelectorAll(".alpa-flow-edge")) {
      edge.classList.toggle("alpa-near", Boolean(id) && edge.dataset.ends.split(" ").includes(id));
    }
  };

  const showDetail = (node) => {
    if (!node) {
      detail.replaceChildren(html("p", "alpa-flow-hint", hintText()));
      return;
    }
    const words = html("div", "alpa-flow-words", html("b", "", node.text[0]), ...node.text.slice(1, 6).map((line) => html("p", "", line)), html("p", "", meshWords(doc.sizes)));
    const tensors = node.tiles.map((item) => {
      const part = html("div", "alpa-flow-tensor", html("b", "", `${item.role} ${item.spec}`), html("span", "", item.name), meshPicture(doc.specs[item.spec], doc.sizes));
      part.append(html("span", "", item.words[item.words.length - 1] ?? ""));
      part.title = [item.name, item.shape, ...item.words].join("\n");
      return part;
    });
    detail.replaceChildren(words, ...tensors);
  };

  const hintText = () =>
    doc?.sizes.length
      ? `${doc.legend} A tile is a tensor: cut where it is sharded, filled what the first device holds, hatched where a sum is pending. Choose an operator to see its tensors on every device.`
      : "On one device nothing is cut. Choose an operator to see its tensors.";

  const select = (node) => {
    const on = selects() && named() && chosen(node);
    model.set("selection", on ? "" : keyOf(node));
    model.save_changes();
  };

  const toggle = (id) => {
    const before = items.get(id)?.place;
    const at = before ? { x: before.x * zoom - view.scrollLeft, y: before.y * zoom - view.scrollTop } : null;
    if (open.has(id)) open.delete(id);
    else open.add(id);
    focused = id;
    draw();
    const after = items.get(id)?.place;
    if (at && after) view.scrollTo({ left: Math.max(0, after.x * zoom - Math.max(at.x, 8)), top: Math.max(0, after.y * zoom - Math.max(Math.min(at.y, 40), 8)) });
    focusItem(id, true);
  };

  const act = (id) => (items.get(id).kind === "group" ? toggle(id) : select(nodeOf(id)));

  const focusItem = (id, still = false) => {
    const item = items.get(id);
    if (!item) return;
    items.get(focused)?.element.setAttribute("tabindex", "-1");
    focused = id;
    item.element.setAttribute("tabindex", "0");
    item.element.focus({ preventScroll: true });
    if (!still) reveal(item.place);
  };

  const reveal = ({ x, y, width, height, open: isOpen }) => {
    const high = isOpen ? GROUP.head : height;
    const [left, top, right, bottom] = [x * zoom - 12, y * zoom - 12, (x + width) * zoom + 12, (y + high) * zoom + 12];
    const to = { left: view.scrollLeft, top: view.scrollTop };
    if (left < to.left || right - left > view.clientWidth) to.left = left;
    else if (right > to.left + view.clientWidth) to.left = right - view.clientWidth;
    if (top < to.top) to.top = top;
    else if (bottom > to.top + view.clientHeight) to.top = bottom - view.clientHeight;
    view.scrollTo(to);
  };

  // The nearest item in a direction, where one that is connected counts as nearer; below the head of an open block its first
  // operator.
  const neighbour = (id, direction) => {
    if (direction[1] > 0 && open.has(id)) return doc.nodes.find(({ group }) => group === id)?.id;
    const middle = ({ x, y, width, height, open: isOpen }) => ({ x: x + width / 2, y: y + (isOpen ? GROUP.head / 2 : height / 2) });
    const connected = new Set(doc.edges.filter(({ a, b }) => a === id || b === id).flatMap(({ a, b }) => [a, b]));
    const others = [...items].filter(([other]) => other !== id).map(([other, { place }]) => ({ id: other, ...middle(place) }));
    const nearness = (place) => (connected.has(place.id) ? 0.5 : 1);
    return nearestTowards(others, middle(items.get(id).place), direction, { nearness, least: 8, narrow: 60 })?.id;
  };

  const onKey = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id;
    if (!id || event.ctrlKey || event.metaKey || event.altKey) return;
    if (ARROWS[event.key]) {
      const next = neighbour(id, ARROWS[event.key]);
      if (next) focusItem(next);
    } else if (event.key === "Enter" || event.key === " ") act(id);
    else if (event.key === "+" || event.key === "=") setZoom(zoom * ZOOM.step);
    else if (event.key === "-") setZoom(zoom / ZOOM.step);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  let drag = null;
  const onDown = (event) => {
    if (event.button) return;
    drag = { x: event.clientX, y: event.clientY, left: view.scrollLeft, top: view.scrollTop, moved: false };
  };
  const onMove = (event) => {
    if (!drag) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < DRAG_PIXELS) return;
    drag.moved = true;
    view.classList.add("alpa-dragging");
    view.scrollTo(drag.left - dx, drag.top - dy);
  };
  const onUp = () => {
    view.classList.remove("alpa-dragging");
    if (drag?.moved) view.addEventListener("click", (event) => event.stopPropagation(), { once: true, capture: true });
    if (drag?.moved) setTimeout(() => (drag = null));
    drag = null;
  };
  const onClick = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id;
    if (!id) return;
    if (items.get(id).kind === "node") focusItem(id, true);
    act(id);
  };
  const onOver = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id ?? "";
    const node = id && items.get(id)?.kind === "node" ? id : "";
    const selected = named() ? doc?.nodes.find(chosen)?.id ?? "" : "";
    markEdges(node || selected);
  };
  const onFocus = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id;
    if (!id || id === focused) return;
    items.get(focused)?.element.setAttribute("tabindex", "-1");
    focused = id;
    items.get(id)?.element.setAttribute("tabindex", "0");
  };
  const onWheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // without, the wheel scrolls
    event.preventDefault();
    const box = view.getBoundingClientRect();
    setZoom(zoom * Math.exp(-event.deltaY / 300), { x: event.clientX - box.left, y: event.clientY - box.top });
  };
  view.addEventListener("keydown", onKey);
  view.addEventListener("pointerdown", onDown);
  addEventListener("pointermove", onMove);
  addEventListener("pointerup", onUp);
  view.addEventListener("click", onClick);
  view.addEventListener("pointerover", onOver);
  view.addEventListener("focusin", onFocus);
  view.addEventListener("wheel", onWheel, { passive: false });

  const openAll = makeButton("Open all", "Open every block, or fold all.", () => {
    const all = open.size < doc.groups.length;
    open.clear();
    if (all) doc.groups.forEach(({ id }) => open.add(id));
    openAll.textContent = all ? "Fold all" : "Open all";
    draw();
    // A few folded blocks at the zoom that fitted all operators would be too small to read.
    if (zoom < 1 && placed.width * zoom < view.clientWidth - 4) setZoom(Math.min(1, (view.clientWidth - 4) / placed.width));
  });
  // Find: each Enter goes to the next operator with these letters, in its block, which is opened.
  const find = html("input", "alpa-flow-find"), found = html("span", "alpa-flow-found");
  Object.assign(find, { type: "search", placeholder: "Find an operator", title: "Enter: the next one with these letters" });
  find.setAttribute("aria-label", "Find an operator");
  found.setAttribute("role", "status");
  let match = -1;
  const matches = () => (find.value && doc ? doc.nodes.filter((node) => node.text.join(" ").toLowerCase().includes(find.value.toLowerCase())) : []);
  find.addEventListener("input", () => {
    match = -1;
    found.textContent = find.value ? `${matches().length} found` : "";
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    const all = matches();
    if (!all.length) return;
    match = (match + (event.shiftKey ? all.length - 1 : 1)) % all.length;
    const node = all[match];
    if (!open.has(node.group)) {
      open.add(node.group);
      draw();
    }
    shown = node.id;
    highlight();
    markEdges(node.id);
    for (const [id, { element }] of items) element.classList.toggle("alpa-found", id === node.id);
    reveal(items.get(node.id).place);
    found.textContent = `${match + 1} of ${all.length}`;
  });
  const legend = html("span", "alpa-flow-legend");
  legend.innerHTML = '<i class="alpa-legend-data"></i>data <i class="alpa-legend-moves"></i>collective, wide as its time <i class="alpa-legend-once"></i>once an iteration <b>59 µs + 172 µs</b> computing + collectives';
  bar.append(
    makeButton("Fit", "Show the whole graph (key 0).", () => fit()),
    makeButton("−", "Smaller (key −, or Ctrl and the wheel).", () => setZoom(zoom / ZOOM.step)),
    makeButton("+", "Larger (key +, or Ctrl and the wheel).", () => setZoom(zoom * ZOOM.step)),
    openAll,
    find,
    found,
    legend,
  );
  bar.querySelectorAll("button")[1].setAttribute("aria-label", "Smaller");
  bar.querySelectorAll("button")[2].setAttribute("aria-label", "Larger");

  // What arrives from Python

  const followSelection = () => {
    selection = keyParts(model.get("selection"));
    if (!doc) return;
    const node = named() ? doc.nodes.find(chosen) : null;
    if (node && !open.has(node.group)) {
      open.add(node.group);
      draw();
    }
    highlight();
    if (node && items.has(node.id) && !view.contains(document.activeElement)) reveal(items.get(node.id).place);
  };
  const unpack = counted(async () => {
    const packed = model.get("packed");
    el.classList.toggle("alpa-figure-waiting", !packed?.byteLength);
    const number = ++newest;
    const text = packed?.byteLength ? await unpacked(packed) : "";
    if (number !== newest) return; // a newer graph arrived meanwhile
    const before = doc;
    doc = text ? JSON.parse(text) : null;
    if (!doc) return view.replaceChildren();
    el.style.setProperty("--alpa-stage", doc.color);
    if (before?.stage !== doc.stage) open.clear(); // the zoom stays
    selection = keyParts(model.get("selection"));
    for (const id of [...open]) if (!doc.groups.some((group) => group.id === id)) open.delete(id);
    draw();
    followSelection();
    return undefined;
  });
  // As high as the window has room for, with the detail below it.
  const setHeight = () => {
    if (!el.clientWidth || !el.closest(".alpa-explorer")) return;
    const room = roomBelow(view) - detail.offsetHeight;
    view.style.height = `${Math.min(Math.max(room, HEIGHTS[0]), HEIGHTS[1])}px`;
  };
  const watcher = new ResizeObserver(() => {
    setHeight();
    if (!el.clientWidth || !outdated) return;
    draw();
    followSelection();
  });
  for (const watched of [el, detail]) watcher.observe(watched);
  addEventListener("resize", setHeight);
  const setName = () => view.firstElementChild?.setAttribute("aria-label", model.get("label"));
  const setWaiting = () => (el.dataset.waiting = model.get("waiting"));
  const showBusy = () => {
    el.classList.toggle("alpa-busy", model.get("busy"));
    el.setAttribute("aria-busy", String(model.get("busy")));
  };
  const stop = listen(model, { "change:packed": unpack, "change:selection": followSelection, "change:label": setName, "change:waiting": setWaiting, "change:busy": showBusy });
  setWaiting();
  showBusy();
  unpack();
  return () => {
    newest += 1;
    stop();
    watcher.disconnect();
    removeEventListener("resize", setHeight);
    removeEventListener("pointermove", onMove);
    removeEventListener("pointerup", onUp);
  };
}

export default { initialize: takeMessages, render };
