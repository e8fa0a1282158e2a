// Draws the figure that Python sends, with one copy of plotly.js for the whole page.
//
// The first figure of a page asks its kernel for the library (a gzipped custom message); all others wait for the same
// promise. A change of the figure is one message and one Plotly.react, whatever changed in it.

const LIBRARY = Symbol.for("alpa_explore.plotly");
const PATIENCE_MS = 60_000;

function plotly(model) {
  globalThis[LIBRARY] ??= fetchPlotly(model).catch((error) => {
    delete globalThis[LIBRARY]; // a kernel that died while it was asked must not spoil the page: the next one is asked
    throw error;
  });
  return globalThis[LIBRARY];
}

function unpacked(bytes) {
  // Not by way of a Blob: those are read through another process of the browser, which takes longer than all else.
  const gunzip = new DecompressionStream("gzip");
  const writer = gunzip.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(gunzip.readable).text();
}

function fetchPlotly(model) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("the kernel did not send plotly.js")), PATIENCE_MS);
    const receive = async (content, buffers) => {
      if (content?.kind !== "plotly") return;
      model.off("msg:custom", receive);
      clearTimeout(timer);
      try {
        const source = await unpacked(buffers[0]);
        // A function of its own: the library meets neither a page's AMD loader nor another version of itself.
        const parts = ["const module = {exports: {}}, window = globalThis;\n", source, "\nexport default module.exports;"];
        const url = URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
        resolve((await import(/* webpackIgnore: true */ url)).default);
        URL.revokeObjectURL(url);
      } catch (error) {
        reject(error);
      }
    };
    model.on("msg:custom", receive);
    model.send({ kind: "plotly please" });
  });
}

// Keys of marks: see alpa_explore/figures/keys.py. Two agree where they say nothing different about the same.
const KEY = /^(stage|layer|operator|device|plan):/;
const parts = (key) => new Map(key.split("/").map((part) => part.split(":")));
const agrees = (chosen) => (key) => [...parts(key)].every(([kind, value]) => (chosen.get(kind) ?? value) === value);
const keyIn = (datum) => {
  const text = Array.isArray(datum) ? datum[datum.length - 1] : datum;
  return typeof text === "string" && KEY.test(text) ? text : "";
};
const FAINT = { marker: { opacity: 0.22 } };

function highlight(data, layout, selection) {
  // Faint what is not selected; in heatmaps, which have no such thing, frame what is.
  const lit = agrees(parts(selection));
  const shapes = [];
  for (const trace of data) {
    const keys = trace.type === "heatmap" ? [] : (trace.customdata ?? []).map(keyIn);
    const some = keys.some((key) => key);
    delete trace.selectedpoints;
    if (some && selection) {
      trace.selectedpoints = keys.flatMap((key, place) => (key && lit(key) ? [place] : []));
      trace.unselected = FAINT;
      trace.selected = { marker: { opacity: 1 } };
    }
    if (keyIn(trace.meta)) trace.opacity = !selection || lit(trace.meta) ? 1 : 0.22;
    if (trace.type !== "heatmap" || !trace.customdata || !selection) continue;
    const axis = (name) => (trace[`${name}axis`] ?? name);
    const named = trace.customdata.flat().map(keyIn).filter((key) => key);
    if (named.every(lit)) continue; // a frame round everything says nothing
    trace.customdata.forEach((row, y) => {
      const places = row.flatMap((key, x) => (keyIn(key) && lit(keyIn(key)) ? [x] : []));
      if (!places.length || shapes.length >= 60) return;
      shapes.push({
        type: "rect", xref: axis("x"), yref: axis("y"), x0: places[0] - 0.5, x1: places[places.length - 1] + 0.5,
        y0: y - 0.5, y1: y + 0.5, line: { width: 2, color: layout.plot_bgcolor === "#111111" ? "#fff" : "#000" },
      });
    });
  }
  return { ...layout, autosize: true, shapes };
}

async function render({ model, el }) {
  el.classList.add("alpa-figure");
  const graph = document.createElement("div");
  graph.className = "alpa-figure-graph";
  el.append(graph);

  let Plotly = null;
  let due = true; // a change that is not on screen yet
  let frame = 0;
  let figure = null; // data and layout of the newest figure that was unpacked
  let newest = 0;
  let listening = false;

  const clicked = ({ points }) => {
    const key = points.map((point) => keyIn(point.customdata) || keyIn(point.data.meta)).find((found) => found);
    if (!key) return;
    model.set("selection", key === model.get("selection") ? "" : key);
    model.save_changes();
  };

  const draw = () => {
    frame = 0;
    if (!Plotly || !figure || !graph.offsetWidth) return; // hidden in another tab: drawn when it is shown
    if (!due) return Plotly.Plots.resize(graph);
    due = false;
    Plotly.react(graph, figure.data, highlight(figure.data, figure.layout, model.get("selection")), model.get("config"));
    if (!listening) graph.on("plotly_click", clicked);
    listening = true;
  };
  const soon = () => (frame ||= requestAnimationFrame(draw));

  const name = () => {
    graph.setAttribute("role", "figure");
    graph.setAttribute("aria-label", model.get("label"));
  };
  const height = () => (graph.style.height = `${model.get("height")}px`);
  const busy = () => {
    el.classList.toggle("alpa-busy", model.get("busy"));
    el.setAttribute("aria-busy", String(model.get("busy")));
  };
  const again = () => {
    due = true;
    soon();
  };
  const changed = async () => {
    const packed = model.get("packed");
    const waiting = !packed?.byteLength;
    el.classList.toggle("alpa-figure-waiting", waiting);
    const mine = ++newest;
    const read = waiting ? null : JSON.parse(await unpacked(packed));
    if (mine !== newest) return; // a newer one came meanwhile
    figure = read;
    again();
  };
  model.on("change:packed", changed);
  model.on("change:selection", again);
  model.on("change:label", name);
  model.on("change:height", height);
  model.on("change:busy", busy);
  const watcher = new ResizeObserver(soon);
  watcher.observe(graph);
  name();
  height();
  busy();
  changed();

  plotly(model).then(
    (library) => {
      Plotly = library;
      soon();
    },
    (error) => {
      el.classList.add("alpa-figure-failed");
      el.textContent = `This figure cannot be drawn: ${error.message}. Run the cell again.`;
    },
  );

  return () => {
    newest += 1; // nothing that is still being unpacked is drawn
    model.off("change:packed", changed);
    model.off("change:selection", again);
    model.off("change:label", name);
    model.off("change:height", height);
    model.off("change:busy", busy);
    watcher.disconnect();
    cancelAnimationFrame(frame);
    if (Plotly) Plotly.purge(graph);
  };
}

export default { render };
