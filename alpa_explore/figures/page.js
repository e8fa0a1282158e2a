// Draws the figures, which are in the page as JSON, one after the other in the theme that the reader prefers.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const { config, figures } = JSON.parse(document.getElementById("figures").textContent);
  const names = Object.keys(figures);

  const draw = async (themeName) => {
    for (const name of names) {
      const place = document.getElementById(name);
      const { data, layout } = figures[name][themeName];
      // Copies: plotly modifies its arguments.
      await Plotly.react(place, structuredClone(data), structuredClone(layout), config);
      await new Promise((resume) => setTimeout(resume));
    }
    document.documentElement.dataset.drawn = themeName;
  };

  let last = Promise.resolve();
  const redraw = (themeName) => { last = last.then(() => draw(themeName)); };
  const preferred = () => (dark.matches ? "dark" : "light");
  redraw(preferred());
  dark.addEventListener("change", () => redraw(preferred()));
})();

// Tables whose headings are buttons: a press sorts by that column, another one the other way round.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const cell = (row) => row.cells[column];
      const order = (a, b) =>
        "value" in cell(a).dataset && "value" in cell(b).dataset
          ? Number(cell(a).dataset.value) - Number(cell(b).dataset.value)
          : cell(a).textContent.localeCompare(cell(b).textContent);
      const rows = [...table.tBodies[0].rows].sort((a, b) => (descending ? -order(a, b) : order(a, b)));
      table.tBodies[0].append(...rows);
    });
  });
}
