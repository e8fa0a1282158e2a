// What all fields share.

// The frame of a field: its label, the controls in between, and the note below. `head` and `body` are HTML for a given id:
// what stands beside the label, and what stands below it.
// Returns show(), which brings the frame to the model; send(value), which sends a value that the user entered, together with
// the number of edits of this field (see elements/message_order.py); and refuse(why), which marks what the user entered as
// not taken, until refuse("") or another value.
function makeField(model, el, { head = () => "", body = () => "" }) {
  el.classList.add("alpa-field");
  const id = `alpa-${Math.random().toString(36).slice(2)}`;
  el.innerHTML = `<div class="alpa-field-head"><label for="${id}"></label>${head(id)}</div>${body(id)}<div class="alpa-note" id="${id}-note"></div>`;
  const note = el.querySelector(".alpa-note");
  const input = el.querySelector(`#${id}`);
  let refusal = "";
  const setAttribute = (element, name, value) => (value ? element.setAttribute(name, value) : element.removeAttribute(name));

  const show = () => {
    const problem = refusal || model.get("problem");
    el.querySelector("label").textContent = model.get("label");
    el.title = model.get("hint");
    el.dataset.alpaEdits = model.get("edits");
    const text = problem || (model.get("note") ?? "");
    if (note.textContent !== text) note.textContent = text;
    note.hidden = !text;
    note.classList.toggle("alpa-refused", Boolean(problem));
    setAttribute(note, "role", problem && "alert");
    setAttribute(input, "aria-invalid", problem && "true");
    setAttribute(input, "aria-describedby", text && note.id);
  };
  const refuse = (why) => {
    refusal = why;
    show();
  };
  return {
    show,
    refuse,
    refuses: () => Boolean(refusal),
    send: (value) => {
      model.set("value", value);
      model.set("edits", model.get("edits") + 1);
      model.save_changes();
      const detail = { setting: model.get("setting"), value };
      el.closest(".alpa-explorer")?.dispatchEvent(new CustomEvent("alpa-setting", { bubbles: true, detail }));
    },
  };
}

// A box in which a text is typed. Enter and leaving the box call take(), Escape calls restore() if there is something to
// restore: both only after the text was edited, or refused. Returns edited(), true from the first key to take or restore, and
// forget(), which makes it false.
// Not left to the "change" event alone: on Enter the browser sends none outside of a form.
function listenToTyping(input, field, { take, restore }) {
  let edited = false;
  const finish = (action) => {
    const due = edited;
    edited = false;
    if (due) action();
    return due;
  };
  input.addEventListener("input", () => (edited = true));
  input.addEventListener("change", () => finish(take));
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      event.stopPropagation();
      finish(take);
    }
    if (event.key === "Escape" && (edited || field.refuses())) {
      event.preventDefault();
      event.stopPropagation(); // the selection stays
      edited = false;
      field.refuse("");
      restore();
    }
  });
  return { edited: () => edited, forget: () => (edited = false) };
}
