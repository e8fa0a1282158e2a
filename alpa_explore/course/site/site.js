// The script of every page of the course: draws figures in the reader's theme, grades quizzes, shows slides.
(() => {
  "use strict";
  const { figures, guesses, quizzes, config, templates, ground, ink, pairs } = JSON.parse(
    document.getElementById("data").textContent,
  );
  const root = document.documentElement;

  // --- What the browser keeps: theme, guesses, answers. Where storage is blocked, they last as long as the page.
  const page = window.location.pathname.split("/").at(-1);
  const kept = (key) => {
    try {
      return window.localStorage.getItem(`alpa-course/${key}`);
    } catch {
      return null;
    }
  };
  const keep = (key, value) => {
    try {
      window.localStorage.setItem(`alpa-course/${key}`, value);
    } catch {
      // Nothing to do: the page works without.
    }
  };

  // --- Theme: the reader's, or the one that was chosen.
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = ["light", "dark"].find((name) => name === kept("theme")) ?? null;
  const theme = () => chosen ?? (media.matches ? "dark" : "light");

  const SEVERAL = 540; // pixels of a figure with several panels
  const KEY = 45; // pixels of the sign of a name in a legend
  const MANY = 8; // traces: their legend needs room
  const LETTER = 9; // pixels of a letter of a title, in a wide font
  const PLAY_MS = 1000; // between two steps: time to read the sentence above the figure

  // --- Figures: drawn when they come near the screen, and again in another theme.
  const recoloured = (value) => {
    if (typeof value === "string") return pairs[value] ?? value;
    if (Array.isArray(value)) return value.map(recoloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, recoloured(inner)]));
    }
    return value;
  };
  const themed = ({ data, layout }) => {
    const name = theme();
    // Copies: plotly modifies its arguments.
    const figure = structuredClone({ data, layout });
    const made = name === "dark" ? recoloured(figure) : figure;
    made.layout.template = structuredClone(templates[name]);
    made.layout.paper_bgcolor = made.layout.plot_bgcolor = ground[name];
    made.layout.font = { ...made.layout.font, color: ink[name] };
    return made;
  };
  // A title is wrapped for a wide screen; here anew, where the page is narrower. Plotly neither wraps nor cuts it.
  const wrapped = (text, letters) => {
    const old = text.split("<br>");
    if (old.every((line) => line.length <= letters)) return text;
    const lines = [""];
    for (const word of old.join(" ").split(" ")) {
      const line = lines.at(-1);
      if (line && line.length + word.length >= letters) lines.push(word);
      else lines[lines.length - 1] = line ? `${line} ${word}` : word;
    }
    return lines.join("<br>");
  };
  // Lines that a legend above the plot takes: one, or columns as wide as its longest name.
  const legendLines = ({ data, layout }, width) => {
    const names = data.filter(({ name, showlegend }) => name && showlegend !== false).map(({ name }) => name.length);
    if (layout.showlegend === false || layout.legend?.y !== 1 || names.length < 2) return 1;
    const widths = names.map((letters) => KEY + (LETTER - 2) * letters);
    if (widths.reduce((sum, one) => sum + one) <= width) return 1;
    return Math.ceil(widths.length / Math.max(1, Math.floor(width / Math.max(...widths))));
  };
  const fitTitle = ({ data, layout }, place) => {
    const letters = Math.max(20, Math.floor((place.clientWidth - 24) / LETTER));
    const text = layout.title?.text;
    if (!text) return;
    const fitting = wrapped(text, letters);
    const { l = 80, r = 80 } = layout.margin ?? {};
    const lines = fitting.split("<br>").length - text.split("<br>").length;
    const more = 20 * (lines + legendLines({ data, layout }, place.clientWidth - l - r) - 1);
    layout.title.text = fitting;
    if (more > 0) {
      layout.margin = { ...layout.margin, t: (layout.margin?.t ?? 80) + more };
      layout.height = (layout.height ?? 450) + more;
      place.style.height = `${layout.height}px`;
    }
  };
  // A figure with many labels or panels is shown smaller on a page that is too narrow for it. A button behind it
  // gives it its size, in which it scrolls.
  const shrink = (place) => {
    const frame = place.parentElement;
    const least = parseFloat(place.style.minWidth) || 0;
    const scale = frame.clientWidth / least;
    let button = frame.nextElementSibling?.matches("button.size") ? frame.nextElementSibling : null;
    if (!least || scale >= 1) {
      button?.remove();
      button = null;
    } else if (!button) {
      button = Object.assign(document.createElement("button"), { type: "button", className: "size" });
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Full size";
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
        shrink(place);
      });
      frame.after(button);
    }
    const small = button?.getAttribute("aria-pressed") === "false";
    place.style.transform = small ? `scale(${scale})` : "";
    place.style.marginBottom = small ? `${(scale - 1) * parseFloat(place.style.height)}px` : "";
  };
  const draw = async (place) => {
    const drawn = Boolean(place._fullLayout);
    const figure = themed(figures[Number(place.dataset.figure)]);
    const { meta, xaxis2 } = figure.layout;
    const least = meta?.least_width ?? (xaxis2 || figure.data.length > MANY ? SEVERAL : 0);
    place.style.minWidth = least ? `${least}px` : "";
    fitTitle(figure, place);
    shrink(place);
    if (drawn && place.dataset.drawn === theme()) {
      // Another state of the figure on screen.
      await Plotly.react(place, { ...figure, config });
      return;
    }
    if (drawn) Plotly.purge(place);
    await Plotly.newPlot(place, { ...figure, config });
    place.dataset.drawn = theme();
  };
  let last = Promise.resolve();
  const enqueue = (place) => {
    last = last.then(() => draw(place)).catch((error) => console.error(error));
  };
  const places = [...document.querySelectorAll(".figure")];
  window.addEventListener("resize", () => places.filter((place) => place._fullLayout).forEach(shrink));
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting && target.dataset.drawn !== theme()) enqueue(target);
      }
    },
    { rootMargin: "600px" },
  );
  // A button that moves the slider before it step by step to its end; from its end, it begins again.
  const playing = (button) => {
    const slider = button.previousElementSibling.querySelector("input");
    let timer = 0;
    const move = (value) => {
      slider.value = value;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      button.textContent = "Play";
      button.setAttribute("aria-pressed", "false");
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      const last = Number(slider.max);
      if (Number(slider.value) === last) move(0);
      button.textContent = "Pause";
      button.setAttribute("aria-pressed", "true");
      timer = setInterval(() => {
        move(Number(slider.value) + 1);
        if (Number(slider.value) === last) stop();
      }, PLAY_MS);
    });
  };
  // Controls beside a figure choose one of its states; one that cannot exist is a sentence above the last that could.
  for (const interactive of document.querySelectorAll("figure.interactive")) {
    const states = JSON.parse(interactive.dataset.states);
    const fields = [...interactive.querySelectorAll("input, select")];
    const place = interactive.querySelector(".figure");
    const refused = interactive.querySelector(".refused");
    interactive.addEventListener("input", ({ target }) => {
      if (target.dataset.values) {
        const text = JSON.parse(target.dataset.values)[Number(target.value)];
        target.nextElementSibling.textContent = text;
        target.setAttribute("aria-valuetext", text);
      }
      const state = states[fields.map((field) => field.value).join(",")];
      refused.textContent = typeof state === "string" ? state : "";
      if (typeof state === "string") return;
      place.dataset.figure = state;
      place.style.height = `${figures[state].layout.height ?? 450}px`;
      enqueue(place);
    });
    for (const button of interactive.querySelectorAll("button.play")) playing(button);
  }
  const applyTheme = () => {
    root.dataset.theme = theme();
    for (const place of places) {
      near.unobserve(place);
      near.observe(place);
    }
  };
  media.addEventListener("change", applyTheme);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    keep("theme", chosen);
    applyTheme();
  });

  // --- Quizzes, by grading.js.
  for (const form of document.querySelectorAll("form.quiz")) {
    const quiz = quizzes[form.dataset.quiz];
    const verdict = form.querySelector(".verdict");
    const grade = () => {
      const answer = new FormData(form).get("answer") ?? "";
      const [state, word, text, isHtml] = gradeAnswer(quiz, answer);
      verdict.dataset.state = state;
      const head = document.createElement("b");
      head.textContent = word;
      const body = document.createElement("div");
      if (isHtml) body.innerHTML = text;
      else body.textContent = text;
      verdict.replaceChildren(head, body);
      keep(form.dataset.quiz, answer);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      grade();
    });
    const before = kept(form.dataset.quiz);
    if (before) {
      const option = [...form.querySelectorAll("input[type=radio]")].find((radio) => radio.value === before);
      if (option) option.checked = true;
      else if (form.elements.answer.type === "text") form.elements.answer.value = before;
      grade();
    }
    form.querySelector("button.hint").addEventListener("click", (event) => {
      // A hint begins with what was overlooked in the answer that stands there.
      if (new FormData(form).get("answer")) grade();
      form.querySelector(".hints li[hidden]")?.removeAttribute("hidden");
      event.target.disabled = !form.querySelector(".hints li[hidden]");
    });
  }

  // --- Guesses: a field, and the next card that reveals what came out.
  const reveals = [...document.querySelectorAll(".alpa-card[data-truth]")];
  document.querySelectorAll("form.guess").forEach((form, place) => {
    const card = reveals.find((one) => form.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    const status = form.querySelector(".verdict");
    if (!card) return;
    const { truth, unit, shown } = card.dataset;
    const quiz = { ...guesses[unit], truth: Number(truth), mistakes: [], why: "" };
    const guess = () => {
      const text = form.elements.answer.value;
      const [state, , words] = gradeAnswer(quiz, text);
      status.dataset.state = state === "hint" ? "hint" : "";
      status.textContent = state === "hint" ? words : "Kept. What came out stands below the figure.";
      if (state === "hint") return;
      const title = document.createElement("b");
      title.textContent = state === "right" ? `You guessed well. ${shown}` : shown;
      const line = document.createElement("p");
      line.textContent = `Your guess: ${text}. ${state === "right" ? "" : words}`;
      card.replaceChildren(title, line);
      keep(`${page}/guess-${place}`, text);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      guess();
    });
    form.elements.answer.value = kept(`${page}/guess-${place}`) ?? "";
    if (form.elements.answer.value) guess();
  });

  // --- Search: through the sections of all pages, which are loaded when they are first asked for.
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const SHOWN = 12;
  const WORDS = 12; // of a section, around the first word that was found
  let loading = null;
  const loadIndex = () => {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Object.assign(script, { src: "search-index.js", onload: resolve, onerror: reject });
      document.head.append(script);
    });
    return loading;
  };
  const sectionsWith = (words) =>
    window.courseIndex
      .map(([address, title, heading, text]) => {
        const [head, body] = [`${title} ${heading}`.toLowerCase(), text.toLowerCase()];
        if (!words.every((word) => head.includes(word) || body.includes(word))) return null;
        const score = words.reduce((sum, word) => sum + (head.includes(word) ? 10 : 0) + body.split(word).length - 1, 0);
        return { address, title, heading, text, score };
      })
      .filter(Boolean)
      .sort((a, b) => b.score - a.score)
      .slice(0, SHOWN);
  const around = (text, word) => {
    const all = text.split(" ");
    const place = Math.max(0, all.findIndex((one) => one.toLowerCase().includes(word)) - WORDS / 2);
    return `${place ? "… " : ""}${all.slice(place, place + 2 * WORDS).join(" ")} …`;
  };
  const lookUp = async () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found.hidden = !words.length;
    if (!words.length) return;
    await loadIndex();
    const items = sectionsWith(words).map(({ address, title, heading, text }) => {
      const [item, link, said] = ["li", "a", "span"].map((tag) => document.createElement(tag));
      link.href = address;
      link.textContent = heading === title ? title : `${heading} (${title})`;
      said.textContent = around(text, words[0]);
      item.append(link, said);
      return item;
    });
    const none = document.createElement("li");
    none.textContent = "Nothing has these words.";
    found.replaceChildren(...(items.length ? items : [none]));
  };
  search.addEventListener("input", () => {
    lookUp().catch((error) => console.error(error));
  });
  document.addEventListener("click", ({ target }) => {
    if (target.closest("search") && !target.closest("a")) return;
    found.hidden = true;
  });
  search.parentElement.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = "";
    found.hidden = true;
    event.stopPropagation();
  });

  // --- Slides: a title, what the part says in at most 30 words, and one figure or formula; a part with several figures is
  // several slides. ?slides opens them, arrow keys turn, N shows the text of the part as the speaker's notes.
  const PICTURES = "figure, .formula, .output > svg, img";
  const deck = [...document.querySelectorAll("main .part")].flatMap((part) => {
    const all = [...part.querySelectorAll(PICTURES)].filter((picture) => !picture.closest("details, form"));
    const figures = all.filter((picture) => !picture.matches(".formula"));
    const pictures = figures.length ? figures : all.slice(0, 1);
    return (pictures.length ? pictures : [null]).map((picture) => ({ part, picture }));
  });
  const counter = document.getElementById("counter");
  const notes = document.createElement("aside");
  notes.id = "notes";
  document.body.append(notes);
  const saying = document.createElement("p");
  saying.className = "said";
  let shown = -1;
  // A picture that is taller than what is left of the screen is shown smaller.
  const FOOT = 50; // pixels below it
  const fit = (picture) => {
    const { top, height } = picture.getBoundingClientRect();
    const scale = Math.min(1, Math.max(0.4, (window.innerHeight - top - window.scrollY - FOOT) / height));
    if (scale === 1) return;
    picture.style.transform = `scale(${scale})`;
    picture.style.transformOrigin = "top left";
    picture.style.marginBottom = `${(scale - 1) * height}px`;
  };
  const clear = () => {
    if (shown >= 0) deck[shown].picture?.style.removeProperty("transform");
    if (shown >= 0) deck[shown].picture?.style.removeProperty("margin-bottom");
    for (const element of document.querySelectorAll(".part.shown, .on")) element.classList.remove("shown", "on");
    saying.remove();
  };
  const show = (number) => {
    clear();
    shown = Math.min(Math.max(number, 0), deck.length - 1);
    const { part, picture } = deck[shown];
    part.classList.add("shown");
    for (let element = picture; element && element !== part; element = element.parentElement) element.classList.add("on");
    const title = part.querySelector("h1, h2, h3, h4");
    title?.classList.add("on");
    for (let element = title?.parentElement; element && element !== part; element = element.parentElement) {
      element.classList.add("on");
    }
    saying.textContent = part.dataset.said;
    if (part.dataset.said) (title ?? part).insertAdjacentElement(title ? "afterend" : "afterbegin", saying);
    counter.textContent = `${shown + 1} of ${deck.length}`;
    const texts = part.querySelectorAll(":scope > :is(p, ul, ol, .scroll):not(.said), form.quiz > :is(p, fieldset)");
    const next = deck[shown + 1]?.part.querySelector("h1, h2, h3, h4")?.textContent;
    notes.replaceChildren(...[...texts].map((text) => text.cloneNode(true)));
    if (next) notes.append(`Next: ${next}`);
    window.scrollTo(0, 0);
    if (picture) fit(picture);
    window.dispatchEvent(new Event("resize"));
  };
  const slides = (on) => {
    const top = deck.findIndex(({ part }) => part.getBoundingClientRect().bottom > 80);
    document.body.classList.toggle("slides", on);
    counter.hidden = !on;
    if (on) {
      show(shown >= 0 ? shown : Math.max(top, 0));
    } else {
      const part = deck[shown]?.part;
      clear();
      document.body.classList.remove("noted");
      shown = -1;
      part?.scrollIntoView();
      window.dispatchEvent(new Event("resize"));
    }
  };
  const turns = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const on = document.body.classList.contains("slides");
    if (event.key === "s" || event.key === "S") slides(!on);
    else if (on && event.key === "Escape") slides(false);
    else if (on && event.key in turns) show(shown + turns[event.key]);
    else if (on && (event.key === "n" || event.key === "N")) document.body.classList.toggle("noted");
    else if (on && event.key === "Home") show(0);
    else if (on && event.key === "End") show(deck.length - 1);
    else return;
    event.preventDefault();
  });
  document.getElementById("slides").addEventListener("click", () => {
    slides(!document.body.classList.contains("slides"));
  });

  if (window.matchMedia("(max-width: 60em)").matches) document.querySelector("nav > details").open = false;
  applyTheme();
  if (new URLSearchParams(window.location.search).has("slides")) slides(true);
  root.dataset.ready = "yes";
})();
