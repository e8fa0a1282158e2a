// A row of buttons, each with an answer below its text.

function render({ model, el }) {
  el.classList.add("alpa-answers");
  el.setAttribute("role", "group");
  const show = () => {
    const focused = [...el.children].indexOf(document.activeElement);
    el.setAttribute("aria-label", model.get("label"));
    el.replaceChildren(
      ...model.get("items").map(([text, answer, tone, hint]) => {
        const button = makeButton(text, hint, () => model.send({ kind: "press", name: text }));
        const below = Object.assign(document.createElement("span"), { textContent: answer });
        if (tone) below.className = `alpa-${tone}`;
        button.append(" ", below);
        return button;
      }),
    );
    el.children[focused]?.focus({ preventScroll: true });
  };
  show();
  return listen(model, { "change:items change:label": show });
}

export default { initialize: takeMessages, render };
