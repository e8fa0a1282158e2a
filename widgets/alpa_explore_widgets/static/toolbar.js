// A row of buttons. A press is a message to the kernel; copying, saving a file and reading one are done here.

async function save(content, buffers) {
  const url = URL.createObjectURL(new Blob([buffers[0]], { type: content.type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = content.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function picture(el, name) {
  // The visible figure, as its own tool bar would save it.
  const graph = [...el.closest(".alpa-explorer").querySelectorAll(".alpa-figure-graph")].find((g) => g.offsetWidth && g.calcdata);
  const plotly = globalThis[Symbol.for("alpa_explore.plotly")];
  if (graph) plotly?.then((library) => library.downloadImage(graph, { format: name, filename: "alpa_explore", scale: 2 }));
}

function render({ model, el }) {
  el.classList.add("alpa-toolbar");
  el.setAttribute("role", "toolbar");
  const file = document.createElement("input");
  file.type = "file";
  file.accept = ".json";
  file.hidden = true;

  const showBriefly = (button, text) => {
    const before = button.textContent;
    button.textContent = text;
    setTimeout(() => (button.textContent = before), 1500);
  };
  const press = (name, button) => {
    if (name === "copy") {
      navigator.clipboard.writeText(model.get("code")).then(() => showBriefly(button, "copied"), () => showBriefly(button, "not allowed"));
    } else if (name === "png" || name === "svg") picture(el, name);
    else if (name === "open") file.click();
    else model.send({ kind: name });
  };
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (chosen) model.send({ kind: "open", name: chosen.name }, undefined, [await chosen.arrayBuffer()]);
    file.value = "";
  });
  const makeButtons = () => {
    el.setAttribute("aria-label", model.get("label"));
    el.replaceChildren(
      ...model.get("buttons").map(([name, text, hint]) => {
        const button = makeButton(text, hint, () => press(name, button));
        button.dataset.name = name;
        return button;
      }),
      file,
    );
    show();
  };
  const show = () => {
    for (const button of el.querySelectorAll("button")) {
      button.disabled = model.get("disabled").includes(button.dataset.name);
      if (model.get("pressed").includes(button.dataset.name)) button.setAttribute("aria-pressed", "true");
      else button.removeAttribute("aria-pressed");
    }
  };
  makeButtons();
  return listen(model, {
    "msg:custom": (content, buffers) => content?.kind === "save" && save(content, buffers),
    "change:buttons": makeButtons,
    "change:disabled change:pressed": show,
  });
}

export default { render };
