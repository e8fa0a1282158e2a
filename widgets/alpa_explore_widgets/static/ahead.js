// Figures for other values of B, which Python sends before they are asked for (figures_ahead.py): each is shown as soon as
// the slider is moved there. Python's answer, a moment later, finds it on screen.

const ANSWER_MS = 1_000; // within which Python answers

// `prepare(packed)` makes of what was sent what `show` shows; `show` returns whether it did. Returns drawn(same), which
// tells whether a figure that Python sends was shown already: one for which same(prepared) is true; and stop(). The values of B
// whose figures can be shown at once are in data-ahead of the element.
function showAhead(model, el, { prepare, show }) {
  const ahead = new Map(); // value of B -> {packed, prepared}: what was sent, and what is shown
  let early = []; // {prepared, at}: figures that were shown before Python answered, and when

  const showReady = () => (el.dataset.ahead = [...ahead.keys()].join(" "));
  const prepareAll = async () => {
    const sent = model.get("ahead");
    // What is sent once more, with others, stays.
    for (const [value, { packed }] of ahead) if (!sent[value] || !sameBytes(packed, sent[value])) ahead.delete(value);
    showReady();
    for (const [value, packed] of Object.entries(sent)) {
      if (ahead.has(Number(value))) continue;
      const prepared = await prepare(packed);
      if (sent !== model.get("ahead")) return;
      ahead.set(Number(value), { packed, prepared });
      showReady();
    }
  };
  const unfollow = followSettings(el, ({ setting, value }) => {
    if (setting !== "num_microbatches") ahead.clear(); // Python sends others
    showReady();
    const prepared = ahead.get(value)?.prepared;
    if (prepared && el.clientWidth && show(prepared)) early.push({ prepared, at: performance.now() });
  });
  const unlisten = listen(model, { "change:ahead": prepareAll });
  prepareAll();

  return {
    drawn: (same) => {
      // Where several keys were pressed, the last figure is on screen already while the answers to the others arrive.
      const place = early.findIndex(({ prepared, at }) => performance.now() - at < ANSWER_MS && same(prepared));
      early = place < 0 ? [] : early.slice(place + 1);
      return place >= 0;
    },
    stop: () => {
      unfollow();
      unlisten();
    },
  };
}
