// Helpers of the small widgets. elements/page_widget.py puts this text before each of their modules.

// What this page has done so far, for tests and for whoever looks for a fault. `asked` and `answered`: messages to the kernel,
// and those that it is done with, their answers included. `begun` and `drawn`: pictures that were to be drawn (figures,
// overviews, graphs), and those that are on screen or were given up. Where both pairs are equal, nothing is under way here.
const counts = (globalThis.alpaExplore ??= { asked: 0, answered: 0, begun: 0, drawn: 0 });

// `work` as a function that counts as a drawing until it is done.
function counted(work) {
  return async (...given) => {
    counts.begun += 1;
    try {
      return await work(...given);
    } finally {
      counts.drawn += 1;
    }
  };
}

// A drawing that comes a moment later: `start(action)` and `stop(number)` are those of a timer or of frames. Returns set(), which
// sets the moment unless it is set, and clear(); until one of them is done, it counts as a drawing.
function countedLater(action, start, stop) {
  let number = 0;
  const clear = () => {
    if (!number) return;
    stop(number);
    number = 0;
    counts.drawn += 1;
  };
  const set = () => {
    if (number) return;
    counts.begun += 1;
    number = start(() => {
      action();
      clear();
    });
  };
  return { set, clear };
}

// Called once, when the module of a widget is loaded. anywidget refuses all messages to a widget whose module took more than
// two seconds (the page is busy, or the machine is slow). So they are given to the widget directly, and a widget that was
// late asks Python for its state, because earlier messages were refused.
function takeMessages({ model }) {
  const widget = model.set({}); // the model of ipywidgets, of which anywidget shows its modules only some methods
  const anyModel = Object.getPrototypeOf(widget ?? {});
  const handle = Object.getPrototypeOf(anyModel)?._handle_comm_msg;
  if (!handle || !widget.comm?.on_msg) return; // not a page of JupyterLab, Notebook or voila
  widget.comm.on_msg((message) => handle.call(widget, message));
  const empty = { content: { data: { method: "none" } } }; // does nothing, but is refused where the widget was late
  anyModel._handle_comm_msg.call(widget, empty).catch(() => widget.comm?.send({ method: "request_state" }));
}

// The pixels of the window, and those from an element to its end where the explorer, or a short cell, begins at its top and the
// strip has its place.
const STRIP_PIXELS = 84, CODE_SHARE = 0.2;
const pageHeight = (el) => el.closest(".jp-WindowedPanel-outer, .jp-Notebook")?.clientHeight ?? innerHeight;
function roomBelow(el) {
  const page = pageHeight(el), top = el.closest(".alpa-explorer").getBoundingClientRect().top;
  const code = top - (el.closest(".jp-Cell")?.getBoundingClientRect().top ?? top);
  return page - (el.getBoundingClientRect().top - top) - (code < CODE_SHARE * page ? code : 0) - STRIP_PIXELS;
}

// Adds handlers {event: function}; returns the function that removes them.
function listen(model, handlers) {
  for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
  return () => {
    for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
  };
}

// Calls follow(selection) when the explorer around a figure gets another selection: Python answers with the same a moment
// later. Keys of plans, changes, layouts and what is aside are no selections. A hidden figure gets its selection from Python when it is shown.
// Returns the function that ends it.
function followExplorer(el, follow) {
  const hear = ({ target, detail }) => {
    if (target.contains(el) && el.clientWidth && !/^(plan|change|layout|aside):/.test(detail)) follow(detail);
  };
  document.addEventListener("alpa-select", hear);
  return () => document.removeEventListener("alpa-select", hear);
}

// Calls change({setting, value}) when a field of the explorer around `el` gets another value on the page, before Python
// knows. Returns the function that ends it.
function followSettings(el, change) {
  const hear = ({ target, detail }) => target.contains(el) && change(detail);
  document.addEventListener("alpa-setting", hear);
  return () => document.removeEventListener("alpa-setting", hear);
}

// A button with a text, a tooltip and an action.
function makeButton(text, hint, press) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.title = hint;
  button.addEventListener("click", press);
  return button;
}

// A drawn symbol: not every font has one.
const icon = (path) => `<svg class="alpa-icon" viewBox="0 0 16 16" aria-hidden="true"><path d="${path}"/></svg>`;
