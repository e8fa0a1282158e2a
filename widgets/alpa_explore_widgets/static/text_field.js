// A labelled line of text.

function render({ model, el }) {
  const field = makeField(model, el, { body: (id) => `<input id="${id}" type="text" autocomplete="off" spellcheck="false">` });
  const input = el.querySelector("input");
  const restore = () => (input.value = model.get("value"));

  const show = () => {
    field.show();
    input.placeholder = model.get("example");
    if (!typing.edited()) restore();
  };
  const take = () => {
    const text = input.value.trim();
    if (text !== model.get("value")) field.send(text);
    show();
  };
  const typing = listenToTyping(input, field, { take, restore });
  show();
  return listen(model, { change: show });
}

export default { initialize: takeMessages, render };
