// A labelled number: a slider with a few stops, and a box in which any value in the range can be typed.

function render({ model, el }) {
  const field = makeField(model, el, {
    head: (id) => `<span class="alpa-typed"><input id="${id}" type="number"><span class="alpa-unit"></span></span>`,
    body: () => `<input class="alpa-slider" type="range" min="0" step="1">`,
  });
  const typed = el.querySelector("input[type=number]");
  const slider = el.querySelector("input[type=range]");

  const stops = () => model.get("stops");
  const withUnit = (value) => (model.get("unit") ? `${value} ${model.get("unit")}` : String(value));
  const nearest = (value) => {
    const distances = stops().map((stop) => Math.abs(Math.log((stop + 1e-9) / (value + 1e-9))));
    return distances.indexOf(Math.min(...distances));
  };
  const announce = (value) => {
    // A native slider reports its position; screen readers should read the value.
    const defaultValue = model.get("default");
    const unset = defaultValue === null ? "chosen by the planner" : `${withUnit(defaultValue)}, the default`;
    slider.setAttribute("aria-valuetext", value === null ? unset : withUnit(value));
  };

  const show = () => {
    const value = model.get("value");
    field.show();
    el.querySelector(".alpa-unit").textContent = model.get("unit");
    slider.setAttribute("aria-label", model.get("label"));
    slider.max = Math.max(stops().length - 1, 0);
    slider.hidden = stops().length < 2;
    const defaultValue = model.get("default");
    const effective = value ?? defaultValue;
    slider.value = effective === null ? Math.floor(stops().length / 2) : nearest(effective);
    slider.classList.toggle("alpa-unset", value === null);
    announce(value);
    typed.min = model.get("minimum");
    typed.max = model.get("maximum") ?? "";
    typed.step = model.get("whole") ? 1 : "any";
    typed.placeholder = defaultValue === null ? "auto" : String(defaultValue);
    if (document.activeElement !== typed || Number(typed.value) !== value) typed.value = value ?? "";
    for (const input of [typed, slider]) input.disabled = model.get("disabled");
  };
  const send = (value) => {
    announce(value);
    field.send(value);
  };

  slider.addEventListener("input", () => {
    const value = stops()[slider.valueAsNumber];
    typed.value = value;
    send(value);
  });
  slider.addEventListener("keydown", (event) => {
    // From a typed value between two stops, an arrow key moves to the next stop in its direction.
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

  show();
  return listen(model, { change: show });
}

export default { render };
