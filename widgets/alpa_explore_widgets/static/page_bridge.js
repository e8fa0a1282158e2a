// What the explorer needs of the page around it: the theme, and that keys pressed inside it stay inside it.

function isDark() {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  return matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(body).colorScheme.includes("dark");
}

function guardKeys(event) {
  // JupyterLab and Notebook read single letters and arrows as commands unless the focused element itself says no.
  if (event.target instanceof Element) event.target.setAttribute("data-lm-suppress-shortcuts", "true");
}

function render({ model, el }) {
  el.classList.add("alpa-bridge");
  const report = () => {
    const theme = isDark() ? "dark" : "light";
    root?.classList.toggle("alpa-dark", theme === "dark");
    if (model.get("theme") === theme) return;
    model.set("theme", theme);
    model.save_changes();
  };
  // The parent is there only after this view was put into it.
  let root = null;
  const frame = requestAnimationFrame(() => {
    root = el.closest(".alpa-explorer");
    root?.setAttribute("role", "region");
    root?.setAttribute("aria-label", model.get("label"));
    root?.addEventListener("focusin", guardKeys);
    report();
  });
  const watcher = new MutationObserver(report);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    root?.removeEventListener("focusin", guardKeys);
  };
}

export default { render };
