// The strip under the figures: what is under the pointer, or where the keyboard is, in words. Nothing covers the data.
//
// Of a mark of plotly these are the lines of its hover text, of every other one its title, which is taken from it: the browser
// would show that in a box over the data.
const MARKS = ":is(.alpa-panel, .alpa-stages) :is([data-key], [data-alpa-key], [data-id], [data-ends], li)";
const CLICK = /^click/i;

function saidOf(mark) {
  const child = mark.querySelector(":scope > title");
  if (child || mark.title) {
    mark.dataset.says = child?.textContent ?? mark.title;
    if (mark instanceof SVGElement && !mark.hasAttribute("aria-label")) mark.setAttribute("aria-label", mark.dataset.says);
    child?.remove();
    mark.removeAttribute("title");
  }
  return mark.dataset.says ?? [...mark.querySelectorAll("[title], [data-says]")].map(saidOf)[0] ?? "";
}

// A figure of time is zoomed by W and S, or Ctrl and the wheel, and moved by A and D, as in Perfetto; a double click shows all.
const ZOOM_KEYS = { w: [0.75, 0], s: [1 / 0.75, 0], a: [1, -0.2], d: [1, 0.2] };
const zooms = (graph) => Boolean(graph.layout?.meta?.zoom);

// Zooms to `factor` times what is shown, around a place (0 left, 1 right), and moves it by a share; never beyond the whole.
function zoomBy(graph, Plotly, factor, share, about = 0.5) {
  const changes = {};
  for (const [name, [least, most]] of Object.entries(graph.layout.meta.zoom)) {
    const [from, to] = graph._fullLayout[name].range.map(Number);
    const length = Math.min((to - from) * factor, most - least), at = from + about * (to - from);
    const start = Math.min(Math.max(at - about * length + share * length, least), most - length);
    changes[`${name}.range`] = [start, start + length];
  }
  Plotly.relayout(graph, changes);
}

// Explains the marks of a figure of plotly by say(lines), and lets the arrow keys and Enter do what the mouse does.
function explainFigure(graph, say) {
  const { Plotly, clicked } = graph.alpaFigure, ring = makeRing(graph);
  let under = []; // plotly's points
  let walked = null; // the mark where the keyboard is
  const point = ({ points }) => {
    under = points;
    ring(points);
    say(hoverLines(graph));
  };
  const leave = () => {
    if (!under.length) return;
    under = [];
    ring([]);
    say([]);
  };
  const walk = (direction) => {
    const next = nearestTowards(marksOf(graph), walked ?? { x: -1e4, y: 0 }, walked ? direction : [1, 0]);
    if (!next) return;
    walked = next;
    const { left, top, width } = graph.getBoundingClientRect(), scale = width / graph.offsetWidth;
    const target = graph.querySelector(`.nsewdrag[data-subplot="${next.subplot}"]`);
    Plotly.Fx.hover(graph, { clientX: left + scale * next.x, clientY: top + scale * next.y, target }, next.subplot);
  };
  graph.tabIndex = 0;
  graph.addEventListener("keydown", (event) => {
    if (event.target !== graph || event.ctrlKey || event.metaKey || event.altKey) return;
    if (ARROWS[event.key]) walk(ARROWS[event.key]);
    else if (zooms(graph) && ZOOM_KEYS[event.key.toLowerCase()]) zoomBy(graph, Plotly, ...ZOOM_KEYS[event.key.toLowerCase()]);
    else if ((event.key === "Enter" || event.key === " ") && under.length) clicked({ points: under });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  graph.addEventListener("wheel", (event) => {
    if (!zooms(graph) || !(event.ctrlKey || event.metaKey)) return; // without, the wheel scrolls the page
    event.preventDefault();
    event.stopPropagation();
    const { left, width } = graph.getBoundingClientRect(), { l, w } = graph._fullLayout._size;
    zoomBy(graph, Plotly, Math.exp(event.deltaY / 300), 0, ((event.clientX - left) * (graph.offsetWidth / width) - l) / w);
  }, { passive: false, capture: true });
  graph.addEventListener("blur", () => {
    walked = null;
    leave();
  });
  graph.on("plotly_hover", point).on("plotly_unhover", leave);
}

function showStrip(root) {
  const strip = document.createElement("div"), [title, rest, action] = ["b", "span", "em"].map((tag) => document.createElement(tag));
  strip.className = "alpa-strip";
  strip.setAttribute("role", "status");
  const text = document.createElement("p");
  text.append(title, " ", rest);
  strip.append(text, action);
  const say = (lines) => {
    const texts = lines.map((line) => line.trim()).filter(Boolean), words = texts.filter((line) => !CLICK.test(line));
    strip.classList.toggle("alpa-saying", texts.length > 0);
    title.textContent = words[0] ?? "";
    rest.textContent = words.slice(1).join(" · ");
    action.textContent = texts.filter((line) => CLICK.test(line)).join(" ");
  };
  const onMark = ({ target }) => {
    if (!(target instanceof Element) || target.closest(".alpa-figure")) return; // which says it itself
    const mark = target.closest(MARKS);
    say(mark ? saidOf(mark).split("\n") : []);
  };
  const onFigure = ({ target }) => explainFigure(target, say);
  const handlers = { pointerover: onMark, focusin: onMark, pointerleave: () => say([]), "alpa-figure": onFigure };
  for (const [event, handler] of Object.entries(handlers)) root.addEventListener(event, handler);
  root.querySelector(".alpa-main")?.append(strip);
  for (const graph of root.querySelectorAll(".alpa-figure-graph")) if (graph.alpaFigure) explainFigure(graph, say);
  return () => {
    for (const [event, handler] of Object.entries(handlers)) root.removeEventListener(event, handler);
    strip.remove();
  };
}
