// A button. A press carries the number of edits on the page before it (see elements/message_order.py).

function render({ model, el }) {
  el.classList.add("alpa-button");
  const button = makeButton("", "", () => {
    const fields = [...(el.closest(".alpa-explorer")?.querySelectorAll("[data-alpa-edits]") ?? [])];
    model.send({ kind: "press", edits: fields.reduce((sum, field) => sum + Number(field.dataset.alpaEdits), 0) });
  });
  el.append(button);
  const show = () => {
    button.textContent = model.get("description");
    button.title = model.get("hint");
    button.disabled = model.get("disabled");
  };
  show();
  return listen(model, { change: show });
}

export default { initialize: takeMessages, render };
