// A labelled number: a slider with a few stops, and a box in which any value in the range can be typed.

const inWords = (number) => number.toLocaleString("en", { maximumSignificantDigits: 12 });

function render({ model, el }) {
  const field = makeField(model, el, {
    head: (id) => `<span class="alpa-typed"><input id="${id}" type="number"><span class="alpa-unit"></span></span>`,
    body: () => `<input class="alpa-slider" type="range" min="0" step="1">`,
  });
  const typed = el.querySelector("input[type=number]");
  const slider = el.querySelector("input[type=range]");

  let letters = ""; // that were refused since the box last changed
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

  const restore = () => (typed.value = model.get("value") ?? "");
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
    typed.placeholder = !model.get("optional") ? "" : defaultValue === null ? model.get("empty") : String(defaultValue);
    if (!typing.edited() && !field.refuses()) restore(); // the page's own changes must not disturb typing
    for (const input of [typed, slider]) input.disabled = model.get("disabled");
  };
  const send = (value) => {
    letters = "";
    typing.forget();
    field.refuse("");
    announce(value);
    if (value !== model.get("value")) field.send(value);
    show();
  };

  const inRange = (value) => value >= model.get("minimum") && value <= (model.get("maximum") ?? Infinity);
  // What can be typed, what was, and the value that therefore stays.
  const explain = (found, whole) => {
    const [least, most] = [model.get("minimum"), model.get("maximum")];
    const range = withUnit(most === null ? `${inWords(least)} or more` : `${inWords(least)} to ${inWords(most)}`);
    const value = model.get("value") ?? model.get("default");
    const kept = value === null ? model.get("empty") : withUnit(inWords(value));
    return `${model.get("label").split(",")[0]}: ${whole ? "a whole number, " : ""}${range}. ${found}; still ${kept}.`;
  };
  // What is wrong with the text in the box, and the value that therefore stays; "" if nothing is wrong.
  const fault = () => {
    const text = typed.value;
    const notNumber = typed.validity.badInput;
    const fraction = model.get("whole") && !Number.isInteger(Number(text));
    if (!notNumber && (text === "" ? model.get("optional") && !letters : inRange(Number(text)) && !fraction)) return "";
    const found = notNumber ? "That is not a number" : text === "" ? (letters ? `“${letters}” is not part of a number` : "Nothing was typed") : `${inWords(Number(text))} was typed`;
    return explain(found, fraction);
  };
  const take = () => {
    const why = fault();
    if (why) field.refuse(why);
    else send(typed.value === "" ? null : Number(typed.value));
  };
  const typing = listenToTyping(typed, field, { take, restore });
  typed.addEventListener("input", () => (letters = ""));

  typed.addEventListener("beforeinput", (event) => {
    // The browser would drop the letters, and what they were typed over.
    if (!event.data || /[-+.,\deE]/.test(event.data)) return;
    event.preventDefault();
    letters += event.data;
    field.refuse(explain(`“${letters}” is not part of a number`, model.get("whole")));
  });
  typed.addEventListener("keydown", (event) => {
    // An arrow key moves a whole number by one, any other one to the next stop.
    const up = event.key === "ArrowUp";
    if (!(up || event.key === "ArrowDown") || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const start = fault() === "" && typed.value !== "" ? Number(typed.value) : (model.get("value") ?? model.get("default"));
    const beyond = stops().filter((stop) => (up ? stop > (start ?? 0) : stop < (start ?? 0)));
    const next = model.get("whole") ? (start ?? 0) + (up ? 1 : -1) : up ? Math.min(...beyond) : Math.max(...beyond);
    if (inRange(next) && Number.isFinite(next)) send(next);
  });
  slider.addEventListener("input", () => send(stops()[slider.valueAsNumber]));
  slider.addEventListener("keydown", (event) => {
    // From a typed value between two stops, an arrow key moves to the next stop in its direction.
    const up = ["ArrowRight", "ArrowUp"].includes(event.key);
    const down = ["ArrowLeft", "ArrowDown"].includes(event.key);
    const value = model.get("value");
    if (!(up || down) || value === null || stops().includes(value)) return;
    const beyond = stops().filter((stop) => (up ? stop > value : stop < value));
    event.preventDefault();
    if (beyond.length) send(up ? Math.min(...beyond) : Math.max(...beyond));
  });

  show();
  return listen(model, { "change:value": () => field.refuse(""), change: show });
}

export default { initialize: takeMessages, render };
