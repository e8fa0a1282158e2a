// A labelled line of text.

function render({ model, el }) {
  const field = makeField(model, el, { body: (id) => `<input id="${id}" type="text" autocomplete="off" spellcheck="false">` });
  const input = el.querySelector("input");

  const show = () => {
    field.show();
    input.placeholder = model.get("example");
    if (document.activeElement !== input) input.value = model.get("value");
  };
  input.addEventListener("change", () => field.send(input.value.trim()));
  show();
  return listen(model, { change: show });
}

export default { render };
