// What the explorer needs of the page around it: the theme, and that keys pressed inside it stay inside it.

const TAB = "alpa_explore.tab"; // of this tab of the browser, through all pages that it loads
const PAGE = String(performance.timeOrigin);
const STAYS_MS = 5_000;

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
  const choose = (key) => {
    if (model.get("selection") === key) return;
    model.set("selection", key);
    model.save_changes();
  };
  const parts = (key) => key.split("/").map((part) => part.split(":"));
  const includes = (key) => {
    const said = new Map(parts(key));
    return model.get("selection") !== "" && parts(model.get("selection")).every(([kind, value]) => said.get(kind) === value);
  };
  const show = () => {
    // Of buttons and rows that name something, those that are selected say so.
    for (const element of root?.querySelectorAll("[data-alpa-key]") ?? []) {
      const on = model.get("selection") !== "" && element.dataset.alpaKey === model.get("selection");
      // Rows that the selection includes are marked as well: the layers of a stage.
      element.classList.toggle("alpa-chosen", on || (element.tagName === "TR" && includes(element.dataset.alpaKey)));
      if (element.tagName === "BUTTON") element.setAttribute("aria-pressed", String(on));
      else element.setAttribute("aria-selected", String(on));
    }
  };
  const press = (event) => {
    const element = event.target instanceof Element ? event.target.closest("[data-alpa-key]") : null;
    if (element) choose(element.dataset.alpaKey === model.get("selection") ? "" : element.dataset.alpaKey);
  };
  const typed = (event) => {
    if (event.key === "Escape" && model.get("selection")) {
      event.stopPropagation();
      choose("");
    }
    const row = event.target instanceof Element ? event.target.closest("tr[data-alpa-key]") : null;
    if (row && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      press(event);
    }
    if (row && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
      event.preventDefault();
      next?.focus();
    }
  };
  // Summary and tables are written anew by Python: what is selected in them is marked again.
  const rewritten = new MutationObserver(show);
  // The parent is there only after this view was put into it.
  let root = null;
  const frame = requestAnimationFrame(() => {
    root = el.closest(".alpa-explorer");
    root?.setAttribute("role", "region");
    root?.setAttribute("aria-label", model.get("label"));
    root?.addEventListener("focusin", guardKeys);
    root?.addEventListener("click", press);
    root?.addEventListener("keydown", typed);
    for (const place of root?.querySelectorAll(".alpa-main") ?? []) rewritten.observe(place, { childList: true, subtree: true });
    show();
    report();
  });
  let here = false;
  const tell = (kind) => {
    if (here === (kind === "shown")) return;
    here = !here;
    const tab = sessionStorage.getItem(TAB) ?? Math.random().toString(36).slice(2);
    sessionStorage.setItem(TAB, tab);
    model.send({ kind, tab, page: PAGE });
  };
  // The last message of a page may be lost: the next page of its tab makes up for it. One that stays after all says so.
  const leaves = () => {
    tell("left");
    setTimeout(() => tell("shown"), STAYS_MS);
  };
  addEventListener("beforeunload", leaves);
  tell("shown");
  model.on("change:selection", show);
  const watcher = new MutationObserver(report);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  return () => {
    tell("gone");
    removeEventListener("beforeunload", leaves);
    cancelAnimationFrame(frame);
    watcher.disconnect();
    rewritten.disconnect();
    model.off("change:selection", show);
    root?.removeEventListener("focusin", guardKeys);
    root?.removeEventListener("click", press);
    root?.removeEventListener("keydown", typed);
  };
}

export default { render };
