// Plays an iteration: a cursor moves over the timeline's figure, and a line says what each submesh does at that moment.

const SECONDS = 20; // of playing what is shown, at speed 1
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const STEP_MS = 700; // between two steps where motion is unwelcome
const DIGITS = 4;

// The last index whose value is at most x; −1 for none. Values ascend.
function lastAtMost(values, x) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// Where a moment stands on the axis of a chart; null where it is left out.
function placeOf(chart, moment) {
  const part = chart.parts.find(({ start, end }) => moment >= start && moment <= end);
  return part ? part.at + moment - part.start : null;
}

// The task of a row at a moment: {kind, microbatch}, or null while it is idle.
function taskAt(row, moment) {
  const index = lastAtMost(row.start, moment);
  if (index < 0 || moment >= row.end[index]) return null;
  return { kind: row.kinds[row.kind[index]], microbatch: row.microbatch[index] };
}

function taskText(task) {
  if (!task) return "idle";
  return task.microbatch < 0 ? task.kind : `${task.kind}, microbatch ${task.microbatch}`;
}

function render({ model, el }) {
  el.classList.add("alpa-player");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const bar = document.createElement("div");
  bar.className = "alpa-player-bar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Playback of an iteration");
  const readout = document.createElement("ul");
  readout.className = "alpa-player-readout";
  el.append(bar, readout);

  let doc = null;
  let newest = 0;
  let moment = 0;
  let events = []; // all starts and ends, ascending
  let playing = false;
  let before = 0; // time of the last frame
  let frame = 0;
  let timer = 0;
  let chips = [];

  const first = makeButton("", "To the start (Home)", () => moveTo(0));
  const back = makeButton("", "To the previous start or end of a task (←)", () => step(-1));
  const play = makeButton("", "Play (space)", () => toggle());
  const ahead = makeButton("", "To the next start or end of a task (→)", () => step(1));
  first.innerHTML = icon("M4 3v10M12.5 3 6.5 8l6 5z");
  back.innerHTML = icon("M11 3 5 8l6 5z");
  ahead.innerHTML = icon("M5 3l6 5-6 5z");
  first.setAttribute("aria-label", "Start");
  back.setAttribute("aria-label", "Step back");
  ahead.setAttribute("aria-label", "Step");
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, step: "any", value: 0, className: "alpa-slider" });
  slider.setAttribute("aria-label", "Moment of the iteration");
  slider.title = "Space plays and pauses, ← and → go from task to task.";
  const time = document.createElement("output");
  const speed = document.createElement("select");
  speed.setAttribute("aria-label", "Speed");
  speed.append(...SPEEDS.map((value) => new Option(`${value}×`, value, false, value === 1)));
  bar.append(first, back, play, ahead, slider, time, speed);

  // The cursor

  const cursors = new Map();
  const figure = () => el.closest(".alpa-panel")?.querySelector(".alpa-figure");
  const cursor = (name, parent) => {
    if (!cursors.has(name)) {
      const line = document.createElement("div");
      line.className = "alpa-player-cursor";
      line.setAttribute("aria-hidden", "true");
      cursors.set(name, line);
    }
    if (cursors.get(name).parentNode !== parent) parent.append(cursors.get(name));
    return cursors.get(name);
  };
  const drawCursors = () => {
    const parent = figure();
    const graph = parent?.querySelector(".alpa-figure-graph");
    const layout = graph?._fullLayout;
    for (const line of cursors.values()) line.hidden = true;
    if (!doc || !layout) return;
    const put = (name, x, top, bottom, at) => {
      if (!x || !top || !bottom || at === null || x.range[0] > at || x.range[1] < at) return;
      const line = cursor(name, parent);
      line.hidden = false;
      line.style.left = `${graph.offsetLeft + x._offset + ((at - x.range[0]) / (x.range[1] - x.range[0])) * x._length}px`;
      line.style.top = `${graph.offsetTop + top._offset}px`;
      line.style.height = `${bottom._offset + bottom._length - top._offset}px`;
    };
    for (const chart of doc.charts) put(chart.x, layout[chart.x], layout[chart.tasks], layout[chart.memory], placeOf(chart, moment));
    put("overview", layout[doc.overview.x], layout[doc.overview.y], layout[doc.overview.y], moment);
  };

  const show = () => {
    if (!doc) return;
    slider.value = moment;
    const text = `${Number(moment.toPrecision(DIGITS))} ${doc.unit}`;
    time.textContent = text;
    const said = [];
    chips.forEach(({ row, chip, what }) => {
      const task = taskAt(row, moment);
      const words = taskText(task);
      if (what.textContent !== words) what.textContent = words;
      chip.classList.toggle("alpa-idle", !task);
      said.push(`${row.name}: ${words}`);
    });
    slider.setAttribute("aria-valuetext", [text, ...said.slice(0, 8)].join("; "));
    drawCursors();
  };

  const moveTo = (value) => {
    moment = Math.min(Math.max(value, 0), doc?.end ?? 0);
    show();
  };
  const isShown = (value) => doc.charts[0].parts.some(({ start, end }) => value >= start && value <= end);
  const step = (direction) => {
    // To the next start or end of a task that is shown.
    if (!doc) return false;
    const slack = doc.end * 1e-9;
    let index = direction > 0 ? lastAtMost(events, moment + slack) + 1 : lastAtMost(events, moment - slack);
    while (index >= 0 && index < events.length && !isShown(events[index])) index += direction;
    if (index < 0 || index >= events.length) return false;
    moveTo(events[index]);
    return true;
  };

  // Playing: through what is shown, over the parts that are left out

  const advance = (value, by) => {
    const next = value + by;
    if (isShown(next)) return next;
    const following = doc.charts[0].parts.find(({ start }) => start > value);
    return following ? following.start : doc.end;
  };
  const tick = (now) => {
    if (!playing) return;
    const shown = doc.charts[0].parts.reduce((sum, { start, end }) => sum + end - start, 0);
    const by = before ? (Math.min(now - before, 100) / 1000 / SECONDS) * shown * Number(speed.value) : 0;
    before = now;
    moveTo(advance(moment, by));
    if (moment >= doc.end) pause();
    else frame = requestAnimationFrame(tick);
  };
  const stepOn = () => {
    // Where the reader prefers less motion, the cursor jumps from task to task.
    if (!step(1) || moment >= doc.end) return pause();
    timer = setTimeout(stepOn, STEP_MS / Number(speed.value));
    return undefined;
  };
  const showPlay = () => {
    play.innerHTML = icon(playing ? "M5 3v10M11 3v10" : "M4.5 2.5v11L13 8z");
    play.title = playing ? "Pause (space)" : "Play (space)";
    play.setAttribute("aria-label", playing ? "Pause" : "Play");
  };
  const pause = () => {
    playing = false;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    showPlay();
  };
  const toggle = () => {
    if (playing) return pause();
    if (!doc) return undefined;
    if (moment >= doc.end) moveTo(0);
    playing = true;
    before = 0;
    showPlay();
    if (calm.matches) stepOn();
    else frame = requestAnimationFrame(tick);
    return undefined;
  };

  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === speed) return;
    const onButton = event.target instanceof HTMLButtonElement;
    if (event.key === " " && !onButton) toggle();
    else if (event.key === "ArrowRight" || event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowLeft" || event.key === "ArrowDown") step(-1);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(doc?.end ?? 0);
    else return;
    if (event.key !== " ") pause();
    event.preventDefault();
    event.stopPropagation();
  };
  bar.addEventListener("keydown", onKey);
  slider.addEventListener("input", () => {
    pause();
    moveTo(Number(slider.value));
  });

  const makeChips = () => {
    chips = doc.charts.flatMap(({ name, rows }) =>
      rows.map((row) => {
        const chip = document.createElement("li");
        const swatch = document.createElement("i");
        swatch.style.background = row.color;
        const who = document.createElement("b");
        who.textContent = doc.charts.length > 1 ? `${name} ${row.name}` : row.name;
        who.title = `on ${row.place}`;
        const what = document.createElement("span");
        chip.append(swatch, who, what);
        return { row, chip, what };
      }),
    );
    readout.replaceChildren(...chips.map(({ chip }) => chip));
  };
  const unpack = counted(async () => {
    const packed = model.get("packed");
    const number = ++newest;
    const text = packed?.byteLength ? await unpacked(packed) : "";
    if (number !== newest) return;
    pause();
    doc = text ? JSON.parse(text) : null;
    el.hidden = !doc;
    if (!doc) return;
    for (const row of doc.charts.flatMap(({ rows }) => rows)) {
      for (const name of ["start", "end"]) row[name] = row[name].map((count) => Math.min(count * doc.tick, doc.end));
    }
    slider.max = doc.end;
    events = [...new Set(doc.charts.flatMap(({ rows }) => rows.flatMap((row) => [...row.start, ...row.end])))].sort((a, b) => a - b);
    makeChips();
    moveTo(moment);
  });
  // plotly draws the figure after the document has arrived, and again when the window changes.
  let watched = null;
  const watchFigure = () => {
    const graph = figure()?.querySelector(".alpa-figure-graph");
    if (graph && graph !== watched && graph.on) {
      watched = graph;
      graph.on("plotly_afterplot", drawCursors);
      drawCursors();
    }
  };
  const poll = setInterval(watchFigure, 500);
  const stop = listen(model, { "change:packed": unpack });
  showPlay();
  unpack();
  return () => {
    newest += 1;
    pause();
    clearInterval(poll);
    stop();
    for (const line of cursors.values()) line.remove();
  };
}

export default { initialize: takeMessages, render };
