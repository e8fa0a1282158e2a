// The row of tabs (WAI-ARIA tabs: one tab stop, arrow keys move, the choice follows the focus).

function render({ model, el }) {
  el.classList.add("alpa-tabs");
  el.setAttribute("role", "tablist");

  const show = () => {
    const selected = model.get("selected");
    [...el.children].forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(place === selected));
      tab.tabIndex = place === selected ? 0 : -1;
    });
  };
  const choose = (place) => {
    model.set("selected", place);
    model.save_changes();
    show();
  };
  const list = () => {
    el.setAttribute("aria-label", model.get("label"));
    el.replaceChildren(
      ...model.get("tabs").map(([title, hint], place) => {
        const tab = document.createElement("button");
        tab.type = "button";
        tab.setAttribute("role", "tab");
        tab.textContent = title;
        tab.title = hint;
        tab.addEventListener("click", () => choose(place));
        return tab;
      }),
    );
    show();
  };
  el.addEventListener("keydown", (event) => {
    const count = model.get("tabs").length;
    const now = model.get("selected");
    const next = { ArrowRight: (now + 1) % count, ArrowLeft: (now + count - 1) % count, Home: 0, End: count - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
    el.children[next].focus();
  });

  model.on("change:tabs", list);
  model.on("change:selected", show);
  list();
  return () => {
    model.off("change:tabs", list);
    model.off("change:selected", show);
  };
}

export default { render };
