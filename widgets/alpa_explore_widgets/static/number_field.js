// A labelled number: a slider over sensible stops and a box in which any value can be typed.

function render({ model, el }) {
  el.classList.add("alpa-field");
  const id = `alpa-${Math.random().toString(36).slice(2)}`;
  el.innerHTML = `
    <div class="alpa-field-head">
      <label for="${id}"></label>
      <span class="alpa-typed"><input id="${id}" type="number"><span class="alpa-unit"></span></span>
    </div>
    <input class="alpa-slider" type="range" min="0" step="1">
    <div class="alpa-note"></div>`;
  const label = el.querySelector("label");
  const typed = el.querySelector("input[type=number]");
  const slider = el.querySelector("input[type=range]");
  const note = el.querySelector(".alpa-note");

  const stops = () => model.get("stops");
  const spell = (value) => (model.get("unit") ? `${value} ${model.get("unit")}` : String(value));
  const nearest = (value) => {
    const near = stops().map((stop) => Math.abs(Math.log((stop + 1e-9) / (value + 1e-9))));
    return near.indexOf(Math.min(...near));
  };
  const say = (value) => {
    // Native sliders report their position; what people hear is the value.
    const usual = model.get("usual");
    const chosen = usual === null ? "chosen by the planner" : `${spell(usual)}, as usual`;
    slider.setAttribute("aria-valuetext", value === null ? chosen : spell(value));
  };

  const show = () => {
    const value = model.get("value");
    label.textContent = model.get("label");
    el.title = model.get("hint");
    el.dataset.alpaEdits = model.get("edits");
    el.querySelector(".alpa-unit").textContent = model.get("unit");
    slider.setAttribute("aria-label", model.get("label"));
    slider.max = Math.max(stops().length - 1, 0);
    slider.hidden = stops().length < 2;
    const place = value ?? model.get("usual");
    slider.value = place === null ? Math.floor(stops().length / 2) : nearest(place);
    slider.classList.toggle("alpa-unset", value === null);
    say(value);
    const usual = model.get("usual");
    typed.min = model.get("minimum");
    typed.max = model.get("maximum") ?? "";
    typed.step = model.get("whole") ? 1 : "any";
    typed.placeholder = usual === null ? "auto" : String(usual);
    if (document.activeElement !== typed || Number(typed.value) !== value) typed.value = value ?? "";
    note.textContent = model.get("note");
    note.hidden = !model.get("note");
    for (const input of [typed, slider]) input.disabled = model.get("disabled");
  };
  const send = (value) => {
    say(value);
    model.set("value", value);
    model.set("edits", model.get("edits") + 1);
    model.save_changes();
  };

  slider.addEventListener("input", () => {
    const value = stops()[slider.valueAsNumber];
    typed.value = value;
    send(value);
  });
  slider.addEventListener("keydown", (event) => {
    // From a typed value that is no stop, one key goes to the next stop on that side.
    const up = ["ArrowRight", "ArrowUp"].includes(event.key);
    const down = ["ArrowLeft", "ArrowDown"].includes(event.key);
    const value = model.get("value");
    if (!(up || down) || value === null || stops().includes(value)) return;
    const beyond = stops().filter((stop) => (up ? stop > value : stop < value));
    event.preventDefault();
    if (beyond.length) send(up ? Math.min(...beyond) : Math.max(...beyond));
    show();
  });
  typed.addEventListener("change", () => {
    if (typed.value === "") return model.get("optional") ? send(null) : show();
    let value = Number(typed.value);
    if (model.get("whole")) value = Math.round(value);
    value = Math.max(value, model.get("minimum"));
    if (model.get("maximum") !== null) value = Math.min(value, model.get("maximum"));
    send(value);
    show();
  });

  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
