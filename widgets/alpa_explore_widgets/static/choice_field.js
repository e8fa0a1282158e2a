// A labelled list to choose from, in groups where the options have them. A long list is searched by typing.

const LONG = 24; // options

// A combobox of WAI-ARIA: typed words, in any order, leave the options that have them all; arrows move, Enter takes, Escape and
// leaving restore.
function renderSearch({ model, el }) {
  const body = (id) =>
    `<div class="alpa-combo"><input id="${id}" type="text" role="combobox" autocomplete="off" spellcheck="false" aria-autocomplete="list" aria-controls="${id}-list" aria-expanded="false"><ul id="${id}-list" role="listbox" hidden></ul></div>`;
  const field = makeField(model, el, { body });
  const input = el.querySelector("input"), list = el.querySelector("ul");
  let found = [], active = 0;
  const items = () => list.querySelectorAll("[role=option]");

  const move = (to) => {
    active = Math.min(Math.max(to, 0), found.length - 1);
    items().forEach((item, at) => item.setAttribute("aria-selected", String(at === active)));
    const item = items()[active];
    input.setAttribute("aria-activedescendant", item?.id ?? "");
    if (!item) return;
    const top = active ? item.offsetTop : 0, bottom = item.offsetTop + item.offsetHeight; // with the name of the first group
    list.scrollTop = Math.max(Math.min(list.scrollTop, top), bottom - list.clientHeight);
  };
  const makeItem = (role, text) => {
    const item = Object.assign(document.createElement("li"), { textContent: text });
    item.setAttribute("role", role);
    list.append(item);
    return item;
  };
  const open = (typed = "") => {
    const words = typed.toLowerCase().split(/\s+/);
    found = model.get("choices").filter(([, text, group]) => words.every((word) => `${text} ${group}`.toLowerCase().includes(word)));
    list.replaceChildren();
    found.forEach(([, text, group], at) => {
      if (group !== found[at - 1]?.[2]) makeItem("presentation", group);
      makeItem("option", text).id = `${list.id}-${at}`;
    });
    if (!found.length) makeItem("presentation", "nothing has these words");
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    move(typed ? 0 : found.findIndex(([value]) => value === model.get("value")));
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    show();
  };
  const show = () => {
    field.show();
    input.disabled = model.get("disabled");
    const chosen = model.get("choices").find(([value]) => value === model.get("value"));
    if (list.hidden) input.value = chosen?.[1] ?? model.get("value");
  };
  const take = (choice) => {
    if (choice && choice[0] !== model.get("value")) field.send(choice[0]);
    if (choice) close();
  };
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => list.hidden && open());
  input.addEventListener("input", () => open(input.value.trim()));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) list.hidden ? open() : move(active + step);
    else if (event.key === "Enter" && !list.hidden) take(found[active]);
    else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation(); // the selection stays
      close();
    } else return;
    event.preventDefault();
  });
  list.addEventListener("mousedown", (event) => {
    event.preventDefault(); // the focus stays in the box
    take(found[[...items()].indexOf(event.target)]);
  });
  show();
  return listen(model, { change: show });
}

function render({ model, el }) {
  if (model.get("choices").length > LONG) return renderSearch({ model, el });
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
