// A table sorted by a click on a heading. Pinned rows stay on top. A click on a row is a selection, which the page bridge
// passes on: the row carries its key.

const STAR = "M8 1.8l1.9 4 4.3.5-3.2 3 .9 4.3L8 11.4l-3.9 2.2.9-4.3-3.2-3 4.3-.5z";

function render({ model, el }) {
  el.classList.add("alpa-table", "alpa-sortable");
  const table = document.createElement("table");
  el.replaceChildren(table);

  const ordered = () => {
    const [column, direction] = model.get("sorted_by");
    const rows = [...model.get("rows")];
    const compare = (a, b) => {
      const [x, y] = [a.values[column], b.values[column]];
      if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last
      return direction * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
    };
    if (column !== undefined) rows.sort(compare);
    return [...rows.filter((row) => row.pinned), ...rows.filter((row) => !row.pinned)];
  };
  const sortBy = (index) => {
    const [column, direction] = model.get("sorted_by");
    // The third press gives the order in which the rows came.
    model.set("sorted_by", column !== index ? [index, 1] : direction === 1 ? [index, -1] : []);
    model.save_changes();
    show();
    table.tHead.rows[0].cells[index + 1].firstElementChild.focus({ preventScroll: true });
  };
  const makeHead = () => {
    const [sorted, direction] = model.get("sorted_by");
    const head = document.createElement("thead"), row = head.insertRow();
    row.append(Object.assign(document.createElement("th"), { scope: "col", textContent: "Pin" }));
    model.get("columns").forEach(([heading, kind, hint], index) => {
      const cell = Object.assign(document.createElement("th"), { scope: "col", title: hint });
      if (kind === "number") cell.className = "alpa-number";
      cell.append(makeButton(heading, hint, () => sortBy(index)));
      cell.firstElementChild.setAttribute("aria-label", `Sort by ${heading}`);
      cell.setAttribute("aria-sort", sorted !== index ? "none" : direction === 1 ? "ascending" : "descending");
      row.append(cell);
    });
    return head;
  };
  const makeRow = (data) => {
    const row = document.createElement("tr");
    row.dataset.alpaKey = data.key;
    row.tabIndex = 0;
    row.classList.toggle("alpa-current", data.current);
    row.classList.toggle("alpa-pinned", data.pinned);
    if (data.current) row.setAttribute("aria-current", "true");
    const name = data.pinned ? "Unpin this plan" : "Pin this plan to the top";
    const pin = makeButton("", name, (event) => {
      event.stopPropagation(); // the row is not chosen
      model.send({ kind: "pin", key: data.key, on: !data.pinned });
    });
    pin.innerHTML = icon(STAR);
    pin.setAttribute("aria-label", name);
    pin.setAttribute("aria-pressed", String(data.pinned));
    pin.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && event.stopPropagation());
    row.insertCell().append(pin);
    data.cells.forEach((text, index) => {
      const cell = row.insertCell();
      if (model.get("columns")[index]?.[1] === "number") cell.className = "alpa-number";
      cell.append(data.bold.includes(index) ? Object.assign(document.createElement("b"), { textContent: text }) : text);
    });
    return row;
  };
  const show = () => {
    const focused = table.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.alpaKey : null;
    const onPin = document.activeElement?.closest("td") !== null;
    const body = document.createElement("tbody");
    body.append(...ordered().map(makeRow));
    table.setAttribute("aria-label", model.get("label"));
    table.replaceChildren(makeHead(), body);
    const row = focused ? [...body.rows].find((row) => row.dataset.alpaKey === focused) : null;
    (onPin ? row?.querySelector("button") : row)?.focus({ preventScroll: true });
  };
  show();
  return listen(model, { "change:rows change:columns change:sorted_by change:label": show });
}

export default { initialize: takeMessages, render };
