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

for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortRows(button));
