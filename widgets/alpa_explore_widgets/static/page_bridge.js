// The explorer and the page around it: the theme, keyboard shortcuts, the selection, the kernel, and whether the explorer is
// shown.

const TAB = "alpa_explore.tab"; // storage key of the identity of this browser tab, which outlives its pages
const PAGE = String(performance.timeOrigin);
const STAYED_MS = 5_000; // a page that is still here this long after beforeunload was not left

function isDark() {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  return matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(body).colorScheme.includes("dark");
}

// The parts of the page in which an explorer stands have the class alpa-place; alpa-place-live if it has a kernel.
function markPlaces(root, gone = false) {
  for (const place of [".jp-OutputArea-output", ".jp-OutputArea-child", ".jp-OutputArea"].map((name) => root?.closest(name))) {
    const explorers = [...place?.querySelectorAll(".alpa-explorer") ?? []].filter((explorer) => !gone || explorer !== root);
    place?.classList.toggle("alpa-place", explorers.length > 0);
    place?.classList.toggle("alpa-place-live", explorers.some((explorer) => !explorer.classList.contains("alpa-ended")));
  }
}

function guardKeys(event) {
  // JupyterLab and Notebook take letters and arrows as commands unless the focused element itself has this attribute.
  if (event.target instanceof Element) event.target.setAttribute("data-lm-suppress-shortcuts", "true");
}

function initialize({ model }) {
  takeMessages({ model });
  // Read before the first update arrives: true only on a page that was loaded after the explorer was made.
  model.set("loaded", model.get("begun"));
  // All views of the explorer on the page show the state of the kernel, also those that are made after its end.
  return watchKernel(model.widget_manager, () => model.get("address"), (state) => {
    const before = kernelState(model);
    if (!hasEnded(before) || KERNEL_STATES.indexOf(state) > KERNEL_STATES.indexOf(before)) model.set("kernel_state", state);
  });
}

function render({ model, el }) {
  el.classList.add("alpa-bridge");
  const save = () => !hasEnded(kernelState(model)) && model.save_changes();
  const reportTheme = () => {
    const theme = isDark() ? "dark" : "light";
    root?.classList.toggle("alpa-dark", theme === "dark");
    if (model.get("theme") === theme) return;
    model.set("theme", theme);
    save();
  };
  const choose = (key) => {
    if (model.get("selection") === key) return;
    model.set("selection", key);
    save();
  };
  const parts = (key) => key.split("/").map((part) => part.split(":"));
  const includes = (key) => {
    const values = new Map(parts(key));
    return model.get("selection") !== "" && parts(model.get("selection")).every(([kind, value]) => values.get(kind) === value);
  };
  const show = () => {
    // Mark the selected buttons and rows.
    for (const element of root?.querySelectorAll("[data-alpa-key]") ?? []) {
      const on = model.get("selection") !== "" && element.dataset.alpaKey === model.get("selection");
      // Rows that the selection includes are marked as well, such as the layers of a stage.
      element.classList.toggle("alpa-chosen", on || (element.tagName === "TR" && includes(element.dataset.alpaKey)));
      if (element.tagName === "BUTTON") element.setAttribute("aria-pressed", String(on));
      else element.setAttribute("aria-selected", String(on));
    }
  };
  const announce = () => {
    root?.dispatchEvent(new CustomEvent("alpa-select", { bubbles: true, detail: model.get("selection") }));
    show();
  };
  const onClick = (event) => {
    if (!(event.target instanceof Element)) return;
    const heading = event.target.closest("th button"), element = event.target.closest("[data-alpa-key]");
    if (heading) sortRows(heading);
    if (element) choose(element.dataset.alpaKey === model.get("selection") ? "" : element.dataset.alpaKey);
  };
  const onKey = (event) => {
    if (event.key === "Escape" && model.get("selection")) {
      event.stopPropagation();
      choose("");
    }
    const row = event.target instanceof Element ? event.target.closest("tr[data-alpa-key]") : null;
    if (row && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      onClick(event);
    }
    if (row && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
      event.preventDefault();
      next?.focus();
    }
  };
  const showName = () => root?.setAttribute("aria-label", model.get("label"));
  const showKernel = () => {
    const banner = kernelBanner(kernelState(model), Boolean(root?.querySelector(".alpa-verdict")));
    if (el.textContent !== banner) el.textContent = banner;
    el.setAttribute("role", "alert");
    root?.classList.toggle("alpa-disconnected", Boolean(banner));
    root?.classList.toggle("alpa-ended", hasEnded(kernelState(model)));
    markPlaces(root);
    for (const part of root?.children ?? []) {
      if (part === el) continue;
      part.inert = Boolean(banner);
      part.setAttribute("aria-disabled", String(Boolean(banner)));
    }
  };
  // Python replaces the summary and the tables as a whole: mark the selection in them again.
  // and give the focus back to the button that had it.
  let pressed = "";
  const onFocus = ({ target }) => (pressed = target.closest?.("button[data-alpa-key]")?.dataset.alpaKey ?? "");
  const replaced = new MutationObserver(() => {
    show();
    if (!pressed || document.activeElement !== document.body) return;
    const again = root.querySelector(`button[data-alpa-key="${CSS.escape(pressed)}"]`);
    again?.focus({ preventScroll: true });
  });
  // This view is attached to its parent only after render returns.
  let hideStrip = () => {};
  let root = null, around = null; // the explorer; that or, in the course, the box of a figure and its controls
  const frame = requestAnimationFrame(() => {
    root = el.closest(".alpa-explorer");
    around = root ?? el.parentElement;
    root?.setAttribute("role", "region");
    showName();
    if (root) hideStrip = showStrip(root);
    around?.addEventListener("focusin", guardKeys);
    root?.addEventListener("focusin", onFocus);
    if (around?.contains(document.activeElement)) guardKeys({ target: document.activeElement }); // it had the focus before
    root?.addEventListener("click", onClick);
    root?.addEventListener("keydown", onKey);
    for (const main of root?.querySelectorAll(".alpa-main") ?? []) replaced.observe(main, { childList: true, subtree: true });
    show();
    showKernel();
    reportTheme();
  });
  let shown = false;
  const reportView = (kind) => {
    if (shown === (kind === "shown") || hasEnded(kernelState(model))) return;
    shown = !shown;
    const tab = sessionStorage.getItem(TAB) ?? Math.random().toString(36).slice(2);
    sessionStorage.setItem(TAB, tab);
    model.send({ kind, tab, page: PAGE, loaded: model.get("loaded") });
  };
  // The last message of a page may be lost; the first one of the next page in its tab corrects the count. A page that is
  // not left after all (the user cancelled) reports that it is shown.
  const onUnload = () => {
    reportView("left");
    setTimeout(() => reportView("shown"), STAYED_MS);
  };
  addEventListener("beforeunload", onUnload);
  reportView("shown");
  const stop = listen(model, { "change:selection": announce, "change:kernel_state": showKernel, "change:label": showName });
  const watcher = new MutationObserver(reportTheme);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  return () => {
    reportView("gone");
    hideStrip();
    markPlaces(root, true);
    removeEventListener("beforeunload", onUnload);
    cancelAnimationFrame(frame);
    watcher.disconnect();
    replaced.disconnect();
    stop();
    around?.removeEventListener("focusin", guardKeys);
    root?.removeEventListener("focusin", onFocus);
    root?.removeEventListener("click", onClick);
    root?.removeEventListener("keydown", onKey);
  };
}

export default { initialize, render };
