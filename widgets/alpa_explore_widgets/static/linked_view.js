// HTML whose marks are linked with the selection, and with each other while the pointer is on one of them.

const TALLEST = 2.5; // of a drawing, as a multiple of its least height
const READ_MS = 500; // from the first drawing until the library of other figures is loaded

function render({ model, el }) {
  el.classList.add("alpa-linked");
  let pointed = ""; // key of the mark under the pointer

  const highlight = () => {
    const selection = model.get("selection"), key = pointed || selection;
    const lit = key ? agrees(keyParts(key)) : () => false;
    el.classList.toggle("alpa-linked-fading", Boolean(key));
    el.classList.toggle("alpa-linked-pointing", Boolean(pointed));
    for (const mark of el.querySelectorAll("[data-key]")) mark.classList.toggle("alpa-lit", lit(mark.dataset.key));
  };
  const tell = () => el.dispatchEvent(new CustomEvent("alpa-painted", { bubbles: true }));
  const painted = countedLater(tell, requestAnimationFrame, cancelAnimationFrame);
  // Drawings grow with the window where cards stand beside each other.
  const fill = () => {
    const cards = [...el.querySelectorAll(".alpa-card")], rows = new Set(cards.map((card) => card.offsetTop)).size;
    if (!el.clientWidth || !cards.length) return;
    el.style.setProperty("--alpa-scale", 1);
    const least = el.querySelector(".alpa-drawing").offsetHeight, spare = roomBelow(el) - el.offsetHeight;
    const scale = rows < cards.length ? 1 + spare / rows / least : 1;
    el.style.setProperty("--alpa-scale", Math.min(Math.max(scale, 1), TALLEST).toFixed(2));
  };
  const soon = countedLater(fill, requestAnimationFrame, cancelAnimationFrame);
  let sources = []; // of the cards that are shown
  let later = 0;
  const loadAhead = () => (later ||= setTimeout(() => plotly(model).catch(() => {}), READ_MS)); // a figure says why it failed
  const show = (html = model.get("html")) => {
    // Cards are replaced one by one, so that those that did not change are neither parsed nor painted again.
    const page = document.createElement("template");
    page.innerHTML = html;
    const at = document.activeElement?.closest(".alpa-linked") === el ? document.activeElement.dataset.key : "";
    const fresh = [...page.content.querySelectorAll(".alpa-card")], old = [...el.querySelectorAll(".alpa-card")];
    const texts = fresh.map((card) => card.outerHTML);
    if (!fresh.length || fresh.length !== old.length) el.replaceChildren(page.content);
    else fresh.forEach((card, at) => texts[at] === sources[at] || replace(old[at], card));
    sources = texts;
    if (!html) el.append(Object.assign(document.createElement("p"), { textContent: model.get("waiting") }));
    if (at) focusMark(el.querySelector(`[data-key="${CSS.escape(at)}"]`));
    el.querySelector("[data-key]")?.setAttribute("tabindex", "0");
    fill();
    highlight();
    painted.set();
    if (html) loadAhead();
  };
  const focusMark = (mark) => {
    mark?.setAttribute("tabindex", "-1");
    mark?.focus({ preventScroll: true });
  };
  const replace = (old, card) => {
    const focused = old.contains(document.activeElement) ? document.activeElement.dataset.tab : undefined;
    old.replaceWith(card);
    if (focused) card.querySelector(`[data-tab="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  };
  const select = () => {
    highlight();
    painted.set();
  };
  const showBusy = () => {
    el.classList.toggle("alpa-busy", model.get("busy"));
    el.setAttribute("aria-busy", String(model.get("busy")));
  };
  const keyAt = (event) => (event.target instanceof Element ? event.target.closest("[data-key]")?.dataset.key : undefined) ?? "";
  el.addEventListener("pointerover", (event) => {
    if (pointed === keyAt(event)) return;
    pointed = keyAt(event);
    highlight();
  });
  el.addEventListener("pointerleave", () => {
    pointed = "";
    highlight();
  });
  el.addEventListener("keydown", (event) => {
    const mark = event.target;
    if (!mark.dataset.key || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") choose(mark.dataset.key);
    else if (ARROWS[event.key]) {
      const places = [...el.querySelectorAll("[data-key]")].map((other) => {
        const { left, right, top, bottom } = other.getBoundingClientRect();
        return { mark: other, x: (left + right) / 2, y: (top + bottom) / 2 };
      });
      focusMark(nearestTowards(places, places.find((place) => place.mark === mark), ARROWS[event.key])?.mark);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const choose = (key) => {
    model.set("selection", key === model.get("selection") ? "" : key);
    model.save_changes();
    select();
  };
  el.addEventListener("click", (event) => {
    const tab = event.target instanceof Element ? event.target.closest("[data-tab]") : null;
    if (tab) model.send({ kind: "tab", title: tab.dataset.tab });
    const key = keyAt(event);
    if (key) choose(key);
  });
  const ahead = showAhead(model, el, {
    prepare: unpacked,
    show: (html) => {
      show(html);
      return true;
    },
  });
  const watcher = new ResizeObserver(soon.set);
  watcher.observe(el);
  addEventListener("resize", soon.set);
  show();
  showBusy();
  const unlisten = listen(model, {
    "change:html": () => ahead.drawn((html) => html === model.get("html")) || show(),
    "change:waiting": () => show(),
    "change:selection": select,
    "change:busy": showBusy,
  });
  return () => {
    painted.clear();
    soon.clear();
    clearTimeout(later);
    watcher.disconnect();
    removeEventListener("resize", soon.set);
    unlisten();
    ahead.stop();
  };
}

export default { initialize: takeMessages, render };
