// Arrow keys that go from mark to mark.
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

// The nearest of `places` ({x, y}) from `from` in a direction; what lies beside that direction counts as further away.
// `nearness(place)` scales its distance; undefined where nothing lies there.
function nearestTowards(places, from, [dx, dy], { nearness = () => 1, least = 1, narrow = Infinity } = {}) {
  let best, shortest = Infinity;
  for (const place of places) {
    const across = place.x - from.x, down = place.y - from.y;
    const along = across * dx + down * dy, beside = Math.abs(across * dy) + Math.abs(down * dx);
    if (along < least || (dx && beside > along + narrow)) continue;
    const distance = (along + 2.5 * beside) * nearness(place);
    if (distance < shortest) [best, shortest] = [place, distance];
  }
  return best;
}
