// The row of tabs (WAI-ARIA tabs: one tab stop, arrow keys move, the selection follows the focus). Tabs that do not fit
// are reached by scrolling; the selected one is kept in view.

const EDGE = 28; // pixels of the next tab that stay in view beside the selected one

function render({ model, el }) {
  el.classList.add("alpa-tabs");
  el.setAttribute("role", "tablist");

  const keepInView = () => {
    // Not scrollIntoView, which would also scroll the notebook.
    const tab = el.children[model.get("selected")];
    if (!tab) return;
    const left = tab.offsetLeft - el.offsetLeft;
    el.scrollLeft = Math.min(Math.max(el.scrollLeft, left + tab.offsetWidth + EDGE - el.clientWidth), left - EDGE);
    showEdges();
  };
  const showEdges = () => {
    el.classList.toggle("alpa-more-before", el.scrollLeft > 1);
    el.classList.toggle("alpa-more-after", el.scrollLeft + el.clientWidth < el.scrollWidth - 1);
  };
  const show = () => {
    const selected = model.get("selected");
    [...el.children].forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === selected));
      tab.tabIndex = index === selected ? 0 : -1;
    });
    keepInView();
  };
  const choose = (index) => {
    model.set("selected", index);
    model.save_changes();
    show();
  };
  const makeTabs = () => {
    el.setAttribute("aria-label", model.get("label"));
    el.replaceChildren(...model.get("tabs").map(([title, hint], index) => makeButton(title, hint, () => choose(index))));
    for (const tab of el.children) tab.setAttribute("role", "tab");
    show();
  };
  el.addEventListener("keydown", (event) => {
    const count = model.get("tabs").length;
    const current = model.get("selected");
    const next = {
      ArrowRight: (current + 1) % count, ArrowLeft: (current + count - 1) % count, Home: 0, End: count - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
    el.children[next].focus({ preventScroll: true });
  });
  el.addEventListener("scroll", showEdges);
  const watcher = new ResizeObserver(keepInView);
  watcher.observe(el);

  makeTabs();
  const unlisten = listen(model, { "change:tabs": makeTabs, "change:selected": show });
  return () => {
    watcher.disconnect();
    unlisten();
  };
}

export default { render };
