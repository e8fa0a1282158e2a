// The tabs (WAI-ARIA tabs: one tab stop a row, arrow keys move, the selection follows the focus): a row of groups, and below
// it a row with the tabs of the selected group, where it has several. A tab without a group stands in the first row. Tabs
// that do not fit are reached by scrolling; the selected one is kept in view.

const EDGE = 28; // pixels of the next tab that stay in view beside the selected one

// A row of tabs; choose(index) is called with the index of the tab that the user selected.
function makeRow(className, choose) {
  const el = document.createElement("div");
  el.className = `alpa-tabs ${className}`;
  el.setAttribute("role", "tablist");
  let selected = 0;

  const showEdges = () => {
    el.classList.toggle("alpa-more-before", el.scrollLeft > 1);
    el.classList.toggle("alpa-more-after", el.scrollLeft + el.clientWidth < el.scrollWidth - 1);
  };
  const keepInView = () => {
    // Not scrollIntoView, which would also scroll the notebook.
    const tab = el.children[selected];
    if (!tab) return;
    const left = tab.offsetLeft - el.offsetLeft;
    el.scrollLeft = Math.min(Math.max(el.scrollLeft, left + tab.offsetWidth + EDGE - el.clientWidth), left - EDGE);
    showEdges();
  };
  const show = (index) => {
    selected = index;
    [...el.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.tabIndex = at === index ? 0 : -1;
    });
    keepInView();
  };
  // `tabs`: [text, tooltip, titles of the panels that it stands for] of each.
  const make = (name, tabs) => {
    el.setAttribute("aria-label", name);
    el.replaceChildren(...tabs.map(([text, hint], index) => makeButton(text, hint, () => choose(index))));
    tabs.forEach(([, , titles], index) => {
      const tab = el.children[index];
      tab.id = `alpa-${Math.random().toString(36).slice(2)}`;
      tab.setAttribute("role", "tab");
      tab.dataset.titles = titles.join("|");
    });
  };
  el.addEventListener("keydown", (event) => {
    const count = el.children.length;
    const next = {
      ArrowRight: (selected + 1) % count, ArrowLeft: (selected + count - 1) % count, Home: 0, End: count - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
    el.children[next].focus({ preventScroll: true });
  });
  el.addEventListener("scroll", showEdges);
  const watcher = new ResizeObserver(keepInView);
  watcher.observe(el);
  return { el, make, show, remove: () => watcher.disconnect() };
}

function render({ model, el }) {
  el.classList.add("alpa-tab-bar");
  let main = null; // the column with this bar and the panels
  let groups = []; // { name, from, to } of each: the tabs from, …, to − 1
  const last = new Map(); // name of a group -> title of its tab that was selected last
  const select = (index) => {
    model.set("selected", index);
    model.save_changes();
    show();
  };
  const groupOf = (index) => groups.findIndex(({ from, to }) => from <= index && index < to);
  const upper = makeRow("alpa-tabs-groups", (at) => {
    const { name, from, to } = groups[at];
    const before = model.get("tabs").findIndex(([title]) => title === last.get(name));
    select(from <= before && before < to ? before : from);
  });
  const lower = makeRow("alpa-tabs-views", (at) => select(groups[groupOf(model.get("selected"))].from + at));
  let shownGroup = null; // whose tabs are in the lower row

  const panelOf = (index) => main?.querySelector(`:scope > .alpa-panel-${model.get("tabs")[index][4]}`);
  const showPanel = (tab, index) => {
    // At once, without waiting for the kernel, which answers with the contents where those are out of date.
    const panel = panelOf(index);
    for (const other of main?.querySelectorAll(":scope > .alpa-panel") ?? []) {
      other.classList.toggle("alpa-shown-panel", other === panel);
      other.classList.toggle("alpa-hidden-panel", Boolean(panel) && other !== panel);
      // One that the kernel is still to make: what is on screen stays there, faded, until it comes.
      other.classList.toggle("alpa-late-panel", !panel);
    }
    if (!panel) return;
    panel.classList.toggle("alpa-late-panel", model.get("drawn") !== model.get("tabs")[index][0]);
    panel.id ||= `alpa-${Math.random().toString(36).slice(2)}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", panel.id);
  };
  const show = () => {
    const index = model.get("selected"), at = groupOf(index), group = groups[at];
    if (!group) return;
    last.set(group.name, model.get("tabs")[index][0]);
    const several = group.to - group.from > 1;
    lower.el.hidden = !several;
    if (several && shownGroup !== group) {
      const tabs = model.get("tabs").slice(group.from, group.to);
      lower.make(group.name, tabs.map(([title, hint, , view]) => [view || title, hint, [title]]));
    }
    shownGroup = group;
    upper.show(at);
    if (several) lower.show(index - group.from);
    showPanel(several ? lower.el.children[index - group.from] : upper.el.children[at], index);
  };
  const makeGroups = () => {
    const tabs = model.get("tabs");
    groups = [];
    tabs.forEach(([, , name], index) => {
      const open = groups.at(-1);
      if (name && open?.name === name) open.to = index + 1;
      else groups.push({ name, from: index, to: index + 1 });
    });
    shownGroup = null;
    const entries = groups.map(({ name, from, to }) => {
      const titles = tabs.slice(from, to).map(([title]) => title);
      return [name || tabs[from][0], to - from > 1 ? titles.join(" · ") : tabs[from][1], titles];
    });
    upper.make(model.get("label"), entries);
    show();
  };
  el.replaceChildren(upper.el, lower.el);
  makeGroups();
  // The view is attached to its page only after render returns, and panels are added one by one.
  const panels = new MutationObserver(show);
  const frame = requestAnimationFrame(() => {
    main = el.closest(".alpa-main");
    if (main) panels.observe(main, { childList: true });
    show();
  });
  const unlisten = listen(model, { "change:tabs": makeGroups, "change:selected change:drawn": show });
  return () => {
    cancelAnimationFrame(frame);
    panels.disconnect();
    upper.remove();
    lower.remove();
    unlisten();
  };
}

export default { initialize: takeMessages, render };
