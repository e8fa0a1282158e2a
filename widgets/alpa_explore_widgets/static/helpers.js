// Helpers of the small widgets. elements/static_files.py puts this text before each of their modules.

// Adds handlers {event: function}; returns the function that removes them.
function listen(model, handlers) {
  for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
  return () => {
    for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
  };
}

// A button with a text, a tooltip and an action.
function makeButton(text, hint, press) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.title = hint;
  button.addEventListener("click", press);
  return button;
}

// The frame of a field: its label, the controls in between, and the note below. `head` and `body` are HTML for a given id:
// what stands beside the label, and what stands below it.
// Returns show(), which brings the frame to the model, and send(value), which sends a value that the user entered,
// together with the number of edits of this field (see elements/message_order.py).
function makeField(model, el, { head = () => "", body = () => "" }) {
  el.classList.add("alpa-field");
  const id = `alpa-${Math.random().toString(36).slice(2)}`;
  el.innerHTML = `<div class="alpa-field-head"><label for="${id}"></label>${head(id)}</div>${body(id)}<div class="alpa-note"></div>`;
  const note = el.querySelector(".alpa-note");
  return {
    show: () => {
      el.querySelector("label").textContent = model.get("label");
      el.title = model.get("hint");
      el.dataset.alpaEdits = model.get("edits");
      note.textContent = model.get("note") ?? "";
      note.hidden = !model.get("note");
    },
    send: (value) => {
      model.set("value", value);
      model.set("edits", model.get("edits") + 1);
      model.save_changes();
    },
  };
}
