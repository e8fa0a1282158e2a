// Keys of marks: see alpa_explore/figures/keys.py. Two keys agree if no part is in both with different values.
const KEY = /^(stage|layer|operator|device|plan|place):/;
const keyParts = (key) => new Map(key.split("/").map((part) => part.split(":")));
const agrees = (chosen) => (key) => [...keyParts(key)].every(([kind, value]) => (chosen.get(kind) ?? value) === value);
