// A labelled line of text.

function render({ model, el }) {
  el.classList.add("alpa-field");
  const id = `alpa-${Math.random().toString(36).slice(2)}`;
  el.innerHTML = `<div class="alpa-field-head"><label for="${id}"></label></div>
    <input id="${id}" type="text" autocomplete="off" spellcheck="false">`;
  const input = el.querySelector("input");

  const show = () => {
    el.querySelector("label").textContent = model.get("label");
    el.title = model.get("hint");
    el.dataset.alpaEdits = model.get("edits");
    input.placeholder = model.get("example");
    if (document.activeElement !== input) input.value = model.get("value");
  };
  input.addEventListener("change", () => {
    model.set("value", input.value.trim());
    model.set("edits", model.get("edits") + 1);
    model.save_changes();
  });
  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
