// A labelled list to choose from, in groups where the options have them.

function render({ model, el }) {
  el.classList.add("alpa-field");
  const id = `alpa-${Math.random().toString(36).slice(2)}`;
  el.innerHTML = `<div class="alpa-field-head"><label for="${id}"></label></div>
    <select id="${id}"></select><div class="alpa-note"></div>`;
  const select = el.querySelector("select");
  const note = el.querySelector(".alpa-note");

  const option = ([value, text]) => new Option(text, value, false, value === model.get("value"));
  const list = () => {
    const groups = new Map();
    for (const [value, text, group] of model.get("choices")) {
      groups.set(group, [...(groups.get(group) ?? []), [value, text]]);
    }
    select.replaceChildren();
    for (const [group, members] of groups) {
      let parent = select;
      if (group) {
        parent = document.createElement("optgroup");
        parent.label = group;
        select.append(parent);
      }
      parent.append(...members.map(option));
    }
  };
  const show = () => {
    el.querySelector("label").textContent = model.get("label");
    el.title = model.get("hint");
    el.dataset.alpaEdits = model.get("edits");
    select.value = model.get("value");
    select.disabled = model.get("disabled");
    note.textContent = model.get("note");
    note.hidden = !model.get("note");
  };
  select.addEventListener("change", () => {
    model.set("value", select.value);
    model.set("edits", model.get("edits") + 1);
    model.save_changes();
  });
  const relist = () => {
    list();
    show();
  };
  model.on("change:choices", relist);
  model.on("change", show);
  relist();
  return () => {
    model.off("change:choices", relist);
    model.off("change", show);
  };
}

export default { render };
