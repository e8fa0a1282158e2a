// The row of tabs (WAI-ARIA tabs: one tab stop, arrow keys move, the selection follows the focus).

function render({ model, el }) {
  el.classList.add("alpa-tabs");
  el.setAttribute("role", "tablist");

  const show = () => {
    const selected = model.get("selected");
    [...el.children].forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === selected));
      tab.tabIndex = index === selected ? 0 : -1;
    });
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
    el.children[next].focus();
  });

  makeTabs();
  return listen(model, { "change:tabs": makeTabs, "change:selected": show });
}

export default { render };
