// Draws the figure that Python sends, with one copy of plotly.js for the whole page (plotly_library.js). A change of the
// figure is one message and one Plotly.react, whatever changed in it.

const TOOLS_PIXELS = 26; // beside a figure, as in the style sheet
const MISSED_CLICK_MS = 200, MISSED_CLICK_PIXELS = 3;
const BUSY_MS = 200;
const BELOW_SHARE = 0.3, SMALL_PIXELS = 360, HEIGHTS = [0.66, 1.7]; // what stands below a figure; least and most of its own height
const SEEN_PIXELS = 2; // by less nobody sees a legend misplaced

const LINK = /^select /; // a click on such a mark makes the selection, but the mark is no part of it
const targetIn = (datum) => keyIn(textIn(datum).replace(LINK, ""));
const FADED = { marker: { opacity: FADED_MARK } };
const REDRAWN_MS = 150; // from a selection, whose marks are faded at once, until plotly draws it

function highlight(data, layout, selection, width) {
  // Fade the marks that are not selected; a heatmap has no faded cells, so frame its selected ones.
  const selected = agrees(keyParts(selection));
  const shapes = [];
  for (const trace of data) {
    const keys = trace.type === "heatmap" ? [] : (trace.customdata ?? []).map(keyIn);
    const hasKeys = keys.some((key) => key);
    delete trace.selectedpoints;
    if (hasKeys && selection) {
      trace.selectedpoints = keys.flatMap((key, index) => (key && selected(key) ? [index] : []));
      trace.unselected = FADED;
      trace.selected = { marker: { opacity: 1 } };
    }
    if (keyIn(trace.meta)) trace.opacity = !selection || selected(trace.meta) ? 1 : FADED_MARK;
    if (trace.type !== "heatmap" || !trace.customdata || !selection) continue;
    const axis = (name) => (trace[`${name}axis`] ?? name);
    const cellKeys = trace.customdata.flat().map(keyIn).filter((key) => key);
    if (cellKeys.every(selected)) continue; // a frame around everything shows nothing
    trace.customdata.forEach((row, y) => {
      const columns = row.flatMap((key, x) => (keyIn(key) && selected(keyIn(key)) ? [x] : []));
      if (!columns.length || shapes.length >= 60) return;
      shapes.push({
        type: "rect", xref: axis("x"), yref: axis("y"), x0: columns[0] - 0.5, x1: columns[columns.length - 1] + 0.5,
        y0: y - 0.5, y1: y + 0.5, line: { width: 2, color: layout.plot_bgcolor === "#111111" ? "#fff" : "#000" },
      });
    });
  }
  return { ...layout, width, shapes };
}

async function render({ model, el }) {
  el.classList.add("alpa-figure");
  const graph = document.createElement("div");
  graph.className = "alpa-figure-graph";
  el.append(graph);

  let Plotly = null;
  let outdated = true; // the newest figure or selection is not on screen yet
  let height = 0, width = 0; // for which the figure on screen was drawn
  let figure = null; // data and layout of the newest figure that was unpacked
  let newest = 0; // number of figures received
  let listening = false;
  let kept = { plot: "", l: 0, r: 0 }; // margins of the figure on screen, and of which plot it is
  let followed = null; // a selection of the page that Python has not answered yet
  const selection = () => followed ?? model.get("selection");
  const chosen = () => (selection() ? agrees(keyParts(selection())) : null);

  const clicked = ({ points }) => {
    const key = points.map((point) => targetIn(point.customdata) || keyIn(point.data.meta)).find((text) => text);
    if (!key) return;
    model.set("selection", key === selection() ? "" : key);
    model.save_changes();
  };

  // plotly looks up what is under the pointer at most every 50 ms, and forgets it where such a look-up falls into a press. It then
  // reports no click. Such a click is made up for: plotly is asked once more, and what it finds in this place was clicked.
  let reported = false; // plotly reported the click of the last press
  let unreported = null; // the click that it did not report
  const press = () => {
    reported = false;
    unreported = null;
  };
  const release = (event) => {
    const subplot = event.target instanceof Element ? event.target.dataset.subplot : undefined;
    if (reported || !subplot) return;
    unreported = event;
    Plotly.Fx.hover(graph, event, subplot);
  };
  const pointed = ({ points, event }) => {
    const click = unreported;
    unreported = null;
    if (!click || event.timeStamp - click.timeStamp > MISSED_CLICK_MS) return;
    if (Math.hypot(event.clientX - click.clientX, event.clientY - click.clientY) <= MISSED_CLICK_PIXELS) clicked({ points });
  };
  const reportClick = (click) => {
    reported = true;
    clicked(click);
  };

  const brushed = (change) => {
    // A drag over the axis that the figure names shows that part above; the axis itself stays whole.
    // Its range is in `meta`: plotly overwrites that of the axis.
    const { axis: name, range: [first, last] } = figure.layout.meta?.brush ?? { range: [] };
    const from = change[`${name}.range[0]`], to = change[`${name}.range[1]`];
    if (!name || (from === undefined && !change[`${name}.autorange`])) return;
    const shares = from === undefined ? [] : [from, to].map((x) => Math.min(Math.max((x - first) / (last - first), 0), 1));
    Plotly.relayout(graph, { [`${name}.range`]: [first, last] });
    model.set("brushed", shares);
    model.save_changes();
  };
  // plotly widens the margins for long labels of the axes, and then draws the whole figure a second time. So while a figure of
  // the same plot changes, its margins stay as wide as they were; what it shows stays in its place, too.
  const plotOf = ({ uirevision, margin }) => JSON.stringify([uirevision, margin?.l, margin?.r, width]);
  const keepMargins = (layout) => {
    if (plotOf(layout) !== kept.plot) return layout;
    const widest = (side) => Math.max(layout.margin?.[side] ?? 0, kept[side]);
    return { ...layout, margin: { ...layout.margin, l: widest("l"), r: widest("r") } };
  };
  const noteMargins = (plot) => {
    const size = graph._fullLayout?._size;
    kept = size ? { plot, l: Math.ceil(size.l), r: Math.ceil(size.r) } : kept;
  };
  const legendRoom = () => {
    const size = graph._fullLayout?._size;
    return size && [size.t, size.b, width];
  };
  const differs = (before, after) => before && after && before.some((room, side) => Math.abs(room - after[side]) > SEEN_PIXELS);
  const scaleToFit = () => {
    // A figure with many labels is drawn no narrower than its least width, and made smaller as a whole.
    const least = figure.layout.meta?.least_width ?? 0;
    const scale = Math.min(1, (el.clientWidth - TOOLS_PIXELS) / least);
    graph.style.flex = scale < 1 ? `none` : "";
    graph.style.width = scale < 1 ? `${least}px` : "";
    graph.style.transform = scale < 1 ? `scale(${scale})` : "";
    graph.style.marginBottom = scale < 1 ? `${(scale - 1) * model.get("height")}px` : "";
  };
  // As high as the window has room for, within limits. What stands beside the plot keeps its distance from it.
  const heightThatFits = () => {
    const own = model.get("height"), panel = el.closest(".alpa-explorer .alpa-panel");
    if (!panel || !figure.data.length || graph.style.transform) return own;
    const below = panel.getBoundingClientRect().bottom - el.getBoundingClientRect().bottom;
    const room = roomBelow(el) - Math.min(below, BELOW_SHARE * pageHeight(el));
    return 10 * Math.round(Math.min(Math.max(room, Math.min(own, Math.max(HEIGHTS[0] * own, SMALL_PIXELS))), HEIGHTS[1] * own) / 10);
  };
  const stretched = (layout, margin = layout.margin ?? {}) => {
    const plot = model.get("height") - (margin.t ?? 0) - (margin.b ?? 0), ratio = plot / (plot + height - model.get("height"));
    const moved = (y) => (y > 1 ? 1 + (y - 1) * ratio : y < 0 ? y * ratio : y);
    const beside = (note) => (note.yref === "paper" ? { ...note, y: moved(note.y) } : note);
    const legend = layout.legend && { ...layout.legend, y: moved(layout.legend.y) };
    return { ...layout, height, annotations: layout.annotations?.map(beside), ...(legend && { legend }) };
  };
  const draw = () => {
    if (!Plotly || !figure || !el.clientWidth) return; // hidden in another tab: drawn when it is shown
    scaleToFit();
    const fitting = heightThatFits();
    if (!outdated && width === graph.offsetWidth && height === fitting) return;
    outdated = false;
    height = fitting;
    graph.style.height = `${height}px`;
    const before = legendRoom();
    width = graph.offsetWidth;
    // A note instead of a figure needs no tool bar.
    const config = { ...model.get("config"), ...(figure.data.length ? {} : { displayModeBar: false }) };
    const drawn = figure.data, layout = highlight(drawn, stretched(keepMargins(figure.layout)), selection(), width);
    const plot = plotOf(figure.layout);
    const redrawIfMoved = () => {
      noteMargins(plot);
      // plotly places a legend for the margins that it had before: where they changed, it would cover the plot.
      return differs(before, legendRoom()) && Plotly.redraw(graph);
    };
    // What is written on faded marks, which plotly leaves as it is.
    const fadeTexts = () => selection() && drawn === figure.data && fadeMarks(graph, drawn, chosen());
    counted(() => Plotly.react(graph, drawn, layout, config).then(redrawIfMoved).then(fadeTexts))();
    if (!listening) {
      graph.alpaFigure = { Plotly, clicked }; // for the strip, which listens too (strip.js)
      graph.dispatchEvent(new CustomEvent("alpa-figure", { bubbles: true }));
      graph.on("plotly_click", reportClick).on("plotly_hover", pointed).on("plotly_relayout", brushed);
      graph.addEventListener("mousedown", press, true);
      graph.addEventListener("click", release);
    }
    listening = true;
  };
  const soon = countedLater(draw, requestAnimationFrame, cancelAnimationFrame);

  const setName = () => {
    graph.setAttribute("role", "figure");
    graph.setAttribute("aria-label", model.get("label"));
  };
  const setWaiting = () => (el.dataset.waiting = model.get("waiting"));
  const setHeight = () => (graph.style.height = `${height || model.get("height")}px`);
  // A figure fades only where the next one takes a while: fading and unfading are two more drawings of the whole figure.
  let fading = 0;
  const showBusy = () => {
    const busy = model.get("busy");
    el.setAttribute("aria-busy", String(busy));
    clearTimeout(fading);
    if (busy) fading = setTimeout(() => el.classList.add("alpa-busy"), BUSY_MS);
    else el.classList.remove("alpa-busy");
  };
  const redraw = () => {
    outdated = true;
    draw(); // now, not in the frame after the next one
    fade.clear();
    soon.clear();
  };
  const fade = countedLater(redraw, (action) => setTimeout(action, REDRAWN_MS), clearTimeout); // a selection, by plotly
  const showSelection = () => {
    if (outdated || !el.clientWidth || !graph._fullLayout || !fadeMarks(graph, figure.data, chosen())) return redraw();
    el.dispatchEvent(new CustomEvent("alpa-drawn", { bubbles: true }));
    fade.clear();
    fade.set();
  };
  const unpack = counted(async () => {
    const packed = model.get("packed");
    const waiting = !packed?.byteLength;
    el.classList.toggle("alpa-figure-waiting", waiting);
    const number = ++newest;
    if (ahead.drawn((early) => !waiting && sameBytes(early.packed, packed))) return;
    const unpackedFigure = waiting ? null : JSON.parse(await unpacked(packed));
    if (number !== newest) return; // a newer figure arrived meanwhile
    drawNow(unpackedFigure);
  });
  const drawNow = (next) => {
    figure = next;
    redraw();
  };
  const showEarly = (early) => {
    if (!Plotly) return false;
    newest += 1; // a figure that is still being unpacked is not drawn
    drawNow(early.figure);
    return true;
  };
  const prepare = async (packed) => ({ packed, figure: JSON.parse(await unpacked(packed)) });
  const ahead = showAhead(model, el, { prepare, show: showEarly });
  const answered = () => {
    const shown = followed === model.get("selection");
    followed = null;
    if (!shown) showSelection();
  };
  const follow = (chosen) => {
    if (chosen === selection()) return;
    followed = chosen;
    showSelection();
  };
  model.on("change:packed", unpack);
  model.on("change:selection", answered);
  model.on("change:label", setName);
  model.on("change:waiting", setWaiting);
  model.on("change:height", setHeight);
  model.on("change:busy", showBusy);
  const unfollow = followExplorer(el, follow);
  const watcher = new ResizeObserver(soon.set);
  watcher.observe(el);
  addEventListener("resize", soon.set);
  setName();
  setWaiting();
  setHeight();
  showBusy();
  unpack();

  counted(() => plotly(model))().then(
    (library) => {
      Plotly = library;
      soon.set();
    },
    (error) => {
      el.classList.add("alpa-figure-failed");
      el.textContent = `This figure cannot be drawn: ${error.message}. Run the cell again.`;
    },
  );

  return () => {
    clearTimeout(fading);
    fade.clear();
    soon.clear();
    newest += 1; // a figure that is still being unpacked is not drawn
    model.off("change:packed", unpack);
    ahead.stop();
    model.off("change:selection", answered);
    model.off("change:label", setName);
    model.off("change:waiting", setWaiting);
    model.off("change:height", setHeight);
    model.off("change:busy", showBusy);
    unfollow();
    removeEventListener("resize", soon.set);
    watcher.disconnect();
    if (Plotly) Plotly.purge(graph);
  };
}

export default { initialize: takeMessages, render };
