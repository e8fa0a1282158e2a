// A labelled list to choose from, in groups where the options have them.

function render({ model, el }) {
  const field = makeField(model, el, { body: (id) => `<select id="${id}"></select>` });
  const select = el.querySelector("select");

  const makeOption = ([value, text]) => new Option(text, value, false, value === model.get("value"));
  const makeOptions = () => {
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
      parent.append(...members.map(makeOption));
    }
    show();
  };
  const show = () => {
    field.show();
    select.value = model.get("value");
    select.disabled = model.get("disabled");
  };
  select.addEventListener("change", () => field.send(select.value));
  makeOptions();
  return listen(model, { "change:choices": makeOptions, change: show });
}

export default { initialize: takeMessages, render };
