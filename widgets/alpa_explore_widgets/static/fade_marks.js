// Fades marks of the picture that is on screen, so that a selection is seen at once. plotly draws the figure with the
// selection a moment later, which takes some ten times as long and leaves nothing of what is set here.
//
// plotly binds data to what it draws: to the group of a trace its points, and to each mark one of them.
const FADED_MARK = 0.22; // opacity of what is not selected
const FADED_FILL = "rgb(128, 128, 128)"; // colour of what is written on it, legible on light and dark pages
const FADES = ["bar", "scatter"];
const written = new WeakMap(); // text on a faded mark -> its own colour

function fadeText(text, fades) {
  const faded = text.style.fill === FADED_FILL;
  if (fades && !faded) written.set(text, text.style.fill);
  if (fades !== faded) text.style.fill = fades ? FADED_FILL : written.get(text);
}

// `chosen(key)` says whether a mark is selected; null where nothing is. Returns false, and has changed nothing, where a
// trace is drawn otherwise than by marks.
function fadeMarks(graph, data, chosen) {
  const keyed = data.filter((trace) => trace.customdata || keyIn(trace.meta));
  const groups = [...graph.querySelectorAll(".cartesianlayer .trace")].map((group) => [group, data[group.__data__?.[0]?.trace?.index]]);
  if (!keyed.every((trace) => FADES.includes(trace.type ?? "scatter")) || groups.some(([, trace]) => !trace)) return false;
  for (const [group, trace] of groups) {
    if (keyIn(trace.meta)) group.style.opacity = !chosen || chosen(trace.meta) ? 1 : FADED_MARK;
    const keys = (trace.customdata ?? []).map(keyIn);
    if (!keys.some((key) => key)) continue;
    const own = trace.marker?.opacity ?? 1;
    for (const mark of group.querySelectorAll(".point")) {
      const place = mark.__data__?.i;
      const shown = !chosen || (keys[place] && chosen(keys[place]));
      const opacity = chosen ? 1 : (own[place] ?? own);
      for (const path of mark.matches("path") ? [mark] : mark.querySelectorAll("path")) {
        path.style.opacity = shown ? opacity : FADED_MARK;
      }
      for (const text of mark.querySelectorAll("text")) fadeText(text, !shown);
    }
  }
  return true;
}
