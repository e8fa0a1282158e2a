// A button. A press says how many values had been typed on the page by then (see order.py).

function render({ model, el }) {
  el.classList.add("alpa-button");
  const button = document.createElement("button");
  button.type = "button";
  el.append(button);
  const show = () => {
    button.textContent = model.get("description");
    button.title = model.get("hint");
    button.disabled = model.get("disabled");
  };
  button.addEventListener("click", () => {
    const fields = [...(el.closest(".alpa-explorer")?.querySelectorAll("[data-alpa-edits]") ?? [])];
    model.send({ kind: "press", edits: fields.reduce((sum, field) => sum + Number(field.dataset.alpaEdits), 0) });
  });
  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
