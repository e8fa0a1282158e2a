// The heading of a group of controls: a button that shows and hides what stands below it.

function render({ model, el }) {
  el.classList.add("alpa-fold");
  const button = document.createElement("button");
  button.type = "button";
  el.append(button);
  const show = () => {
    button.textContent = model.get("label");
    button.title = model.get("hint");
    button.setAttribute("aria-expanded", String(model.get("expanded")));
  };
  button.addEventListener("click", () => {
    model.set("expanded", !model.get("expanded"));
    model.save_changes();
  });
  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
