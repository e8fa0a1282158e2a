// One line of tabs (WAI-ARIA tabs: one tab stop, arrow keys move, the selection follows the focus). Those that do not fit wrap
// into lines that are hidden until the button "More" opens them, over what is below.

function render({ model, el }) {
  el.classList.add("alpa-tab-bar");
  const row = Object.assign(document.createElement("div"), { className: "alpa-tabs" });
  row.setAttribute("role", "tablist");
  const more = makeButton("More", "The other tabs", () => open(!el.classList.contains("alpa-open")));
  more.className = "alpa-more";
  el.replaceChildren(row, more);
  let main = null; // the column with this bar and the panels

  const isBelow = (tab) => tab.offsetTop > row.firstElementChild.offsetTop + 3;
  const fit = () => {
    const tabs = [...row.children], chosen = tabs[model.get("selected")];
    if (!chosen || el.classList.contains("alpa-open") || !row.clientWidth) return;
    row.scrollTop = 0; // a focus may have scrolled to a hidden line
    more.hidden = !tabs.some(isBelow);
    const below = isBelow(chosen);
    more.textContent = below ? chosen.textContent : "More";
    more.classList.toggle("alpa-chosen", below);
  };
  const open = (on) => {
    el.classList.toggle("alpa-open", on);
    more.setAttribute("aria-expanded", String(on));
    if (!on) fit();
  };
  const select = (index) => {
    model.set("selected", index);
    model.save_changes();
    show();
    open(false);
  };
  const showPanel = (tab, index) => {
    // At once, without waiting for the kernel, which answers with the contents where those are out of date.
    const panel = main?.querySelector(`:scope > .alpa-panel-${model.get("tabs")[index][2]}`);
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
    const index = model.get("selected");
    [...row.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.tabIndex = at === index ? 0 : -1;
    });
    fit();
    if (row.children[index]) showPanel(row.children[index], index);
  };
  const make = () => {
    row.setAttribute("aria-label", model.get("label"));
    row.replaceChildren(...model.get("tabs").map(([title, hint], index) => makeButton(title, hint, () => select(index))));
    for (const tab of row.children) {
      tab.id = `alpa-${Math.random().toString(36).slice(2)}`;
      tab.setAttribute("role", "tab");
    }
    show();
  };
  row.addEventListener("keydown", (event) => {
    const at = model.get("selected"), count = row.children.length;
    const next = { ArrowRight: (at + 1) % count, ArrowLeft: (at + count - 1) % count, Home: 0, End: count - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    select(next);
    row.children[next].focus({ preventScroll: true });
    open(isBelow(row.children[next]));
  });
  el.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !el.classList.contains("alpa-open")) return;
    event.stopPropagation(); // the selection stays
    open(false);
  });
  el.addEventListener("focusout", (event) => el.contains(event.relatedTarget) || open(false));
  const watcher = new ResizeObserver(fit);
  watcher.observe(el);
  make();
  // The view is attached to its page only after render returns, and panels are added one by one.
  const panels = new MutationObserver(show);
  const frame = requestAnimationFrame(() => {
    main = el.closest(".alpa-main");
    if (main) panels.observe(main, { childList: true });
    show();
  });
  const unlisten = listen(model, { "change:tabs": make, "change:selected change:drawn": show });
  return () => {
    cancelAnimationFrame(frame);
    panels.disconnect();
    watcher.disconnect();
    unlisten();
  };
}

export default { initialize: takeMessages, render };
