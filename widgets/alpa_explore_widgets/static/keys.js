// Keys of marks: see alpa_explore/figures/keys.py. Two keys agree if no part is in both with different values.
const KEY = /^(stage|layer|operator|device|plan|change|layout|aside):/;
const keyParts = (key) => new Map(key.split("/").map((part) => part.split(":")));
const agrees = (chosen) => (key) => [...keyParts(key)].every(([kind, value]) => (chosen.get(kind) ?? value) === value);
// The key in what plotly keeps of a mark or trace, text or a list that ends with it; "" where there is none.
const textIn = (datum) => {
  const text = Array.isArray(datum) ? datum[datum.length - 1] : datum;
  return typeof text === "string" ? text : "";
};
const keyIn = (datum) => (KEY.test(textIn(datum)) ? textIn(datum) : "");
