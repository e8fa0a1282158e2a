// A row of buttons, each a drawn symbol or a text, and a menu. A press is a message to the kernel; copying, saving a file and reading one are done here.

const ICONS = {
  undo: "M14 8H3M7 4 3 8l4 4",
  redo: "M2 8h11M9 4l4 4-4 4",
  pin: "M5.5 2h5L10 7l2.5 2.5h-9L6 7zM8 9.5V14",
  table: "M2 3h12v10H2zM2 6.5h12M2 9.8h12M6 3v10",
  teach: "M1 6l7-3 7 3-7 3zM4 7.5V11c2 1.7 6 1.7 8 0V7.5",
  open: "M2 13V3.5h4L7.5 5H14v8z",
  reset: "M13 8a5 5 0 1 1-1.6-3.7M12 1.5V5H8.5",
  export: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  copy: "M5.5 10.5H2.5v-8h8v3M5.5 5.5h8v8h-8z",
};

async function save(content, buffers) {
  const url = URL.createObjectURL(new Blob([buffers[0]], { type: content.type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = content.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function picture(el, name) {
  // The visible figure, as its own tool bar would save it.
  const graph = [...el.closest(".alpa-explorer").querySelectorAll(".alpa-figure-graph")].find((g) => g.offsetWidth && g.calcdata);
  const plotly = globalThis[Symbol.for("alpa_explore.plotly")];
  if (graph) plotly?.then((library) => library.downloadImage(graph, { format: name, filename: "alpa_explore", scale: 2 }));
}

// A menu button of WAI-ARIA: arrows, Home, End and first letters move, Escape returns to the button, Tab leaves.
function makeMenu(label, items) {
  const root = document.createElement("div");
  const list = document.createElement("div");
  const button = makeButton("", `${label}: save the plan, a figure or its table`, () => (list.hidden ? open(0) : close(true)));
  button.innerHTML = icon(ICONS.export);
  root.className = "alpa-menu";
  list.id = `alpa-${Math.random().toString(36).slice(2)}`;
  list.hidden = true;
  list.setAttribute("role", "menu");
  list.setAttribute("aria-label", label);
  list.append(...items);
  for (const item of items) {
    item.setAttribute("role", "menuitem");
    item.tabIndex = -1;
    item.addEventListener("click", () => close(true));
  }
  button.setAttribute("aria-label", label);
  button.setAttribute("aria-haspopup", "menu");
  button.setAttribute("aria-controls", list.id);
  button.setAttribute("aria-expanded", "false");
  root.append(button, list);

  const outside = (event) => root.contains(event.target) || close(false);
  const open = (index) => {
    list.hidden = false;
    button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", outside, true);
    items.at(index).focus();
  };
  const close = (refocus) => {
    list.hidden = true;
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    if (refocus) button.focus();
  };
  const onKey = (event) => {
    if (list.hidden) {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      open(event.key === "ArrowDown" ? 0 : -1);
    } else if (event.key === "Escape") {
      event.stopPropagation(); // it closes the menu and leaves the selection
      close(true);
    } else {
      const at = items.indexOf(document.activeElement);
      const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 };
      const starts = (item) => item.textContent.toLowerCase().startsWith(event.key.toLowerCase());
      const typed = event.key.trim().length === 1 ? [...items.slice(at + 1), ...items].find(starts) : undefined;
      if (event.key in steps) items.at(steps[event.key] % items.length).focus();
      else if (typed) typed.focus();
      else return;
    }
    event.preventDefault();
  };
  root.addEventListener("keydown", onKey);
  root.addEventListener("focusout", (event) => list.hidden || root.contains(event.relatedTarget) || close(false));
  return { root, button, remove: () => document.removeEventListener("pointerdown", outside, true) };
}

function render({ model, el }) {
  el.classList.add("alpa-toolbar");
  el.setAttribute("role", "toolbar");
  const file = document.createElement("input");
  file.type = "file";
  file.accept = ".json";
  file.hidden = true;
  let menu = null;

  const showBriefly = (button, text) => {
    const before = button.innerHTML;
    button.textContent = text;
    setTimeout(() => (button.innerHTML = before), 1500);
  };
  const press = (name, button) => {
    if (button.getAttribute("aria-disabled") === "true") return;
    if (name === "copy") {
      navigator.clipboard.writeText(model.get("code")).then(() => showBriefly(button, "copied"), () => showBriefly(button, "not allowed"));
    } else if (name === "png" || name === "svg") picture(el, name);
    else if (name === "open") file.click();
    else model.send({ kind: name });
  };
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (chosen) model.send({ kind: "open", name: chosen.name }, undefined, [await chosen.arrayBuffer()]);
    file.value = "";
  });
  const make = ([name, text, hint]) => {
    const button = makeButton(text, hint, () => press(name, button));
    if (ICONS[name]) {
      button.innerHTML = icon(ICONS[name]);
      button.setAttribute("aria-label", text);
      button.title = `${text}: ${hint}`;
    }
    button.dataset.name = name;
    return button;
  };
  const makeButtons = () => {
    menu?.remove();
    menu = makeMenu(model.get("menu_label"), model.get("menu").map(make));
    el.setAttribute("aria-label", model.get("label"));
    el.replaceChildren(...model.get("buttons").map(make), menu.root, file);
    show();
  };
  const show = () => {
    const disabled = model.get("disabled");
    for (const button of el.querySelectorAll("button[data-name]")) {
      const off = disabled.includes(button.dataset.name);
      // An item of a menu that cannot be pressed keeps the focus, so that the arrow keys pass over it.
      if (button.role === "menuitem") button.setAttribute("aria-disabled", String(off));
      else button.disabled = off;
      if (model.get("pressed").includes(button.dataset.name)) button.setAttribute("aria-pressed", "true");
      else button.removeAttribute("aria-pressed");
    }
    menu.button.disabled = model.get("menu").every(([name]) => disabled.includes(name));
  };
  makeButtons();
  const unlisten = listen(model, {
    "msg:custom": (content, buffers) => content?.kind === "save" && save(content, buffers),
    "change:buttons change:menu change:menu_label": makeButtons,
    "change:disabled change:pressed": show,
  });
  return () => {
    menu.remove();
    unlisten();
  };
}

export default { initialize: takeMessages, render };
