// A press on a heading of a table sorts its rows by that column, another press the other way round; what is not known is last.
function sortRows(button) {
  const head = button.closest("th"), body = button.closest("table").tBodies[0];
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = ({ cells }) => cells[head.cellIndex].dataset.value ?? cells[head.cellIndex].textContent;
  const compare = (x, y) => (isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
  const order = (x, y) => (x && y ? compare(x, y) * (descending ? -1 : 1) : (x === "") - (y === ""));
  body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
}
