// The heading of a group of controls: a button that shows and hides the group below it.

function render({ model, el }) {
  el.classList.add("alpa-fold");
  const button = makeButton("", "", () => {
    model.set("expanded", !model.get("expanded"));
    model.save_changes();
  });
  el.append(button);
  const show = () => {
    button.textContent = model.get("label");
    button.title = model.get("hint");
    button.setAttribute("aria-expanded", String(model.get("expanded")));
  };
  show();
  return listen(model, { change: show });
}

export default { initialize: takeMessages, render };
