// The marks of a figure of plotly for the keyboard and the strip (strip.js): which there are, what plotly says of one, and a
// ring around it.

function marksOf(graph) {
  const found = [];
  graph.calcdata.forEach((points, curveNumber) => {
    const { trace } = points[0] ?? {};
    if (!trace?.visible || trace.hoverinfo === "skip" || (trace.type === "scatter" && !trace.mode.includes("markers") && !trace.customdata)) return;
    const [xaxis, yaxis] = [trace.xaxis, trace.yaxis].map((name) => graph._fullLayout[`${name[0]}axis${name.slice(1)}`]);
    const add = (pointNumber, across, down) => {
      if (!(across >= 0 && across <= xaxis._length && down >= 0 && down <= yaxis._length)) return;
      found.push({ curveNumber, pointNumber, subplot: trace.xaxis + trace.yaxis, x: xaxis._offset + across, y: yaxis._offset + down });
    };
    if (trace.type === "heatmap") {
      const { x, y, z } = points[0], between = (axis, edges, at) => (axis.c2p(edges[at]) + axis.c2p(edges[at + 1])) / 2;
      z.forEach((row, down) => row.forEach((value, across) => Number.isFinite(value) && add([down, across], between(xaxis, x, across), between(yaxis, y, down))));
    } else if (trace.type === "bar") {
      const [along, upwards] = trace.orientation === "h" ? [["s0", "s1"], ["p0", "p1"]] : [["p0", "p1"], ["s0", "s1"]];
      const middle = (axis, point, [from, to]) => (axis.c2p(point[from]) + axis.c2p(point[to])) / 2;
      points.forEach((point, at) => add(at, middle(xaxis, point, along), middle(yaxis, point, upwards)));
    } else points.forEach(({ x, y }, at) => add(at, xaxis.c2p(x), yaxis.c2p(y)));
  });
  return found;
}

// The lines of the hover text that plotly has made; the explorer does not show it (explorer.css).
const hoverLines = (graph) =>
  [...graph.querySelectorAll(".hoverlayer .hovertext > text.nums")].flatMap((text) => {
    const lines = [...text.querySelectorAll("tspan.line")];
    return (lines.length ? lines : [text]).map((line) => line.textContent);
  });

// Where a mark is, in pixels of the figure: plotly knows of a bar only its end.
function boxOf(graph, { curveNumber, pointNumber, bbox }) {
  const group = [...graph.querySelectorAll(".cartesianlayer .trace")].find(({ __data__ }) => __data__?.[0]?.trace?.index === curveNumber);
  const mark = [...(group?.querySelectorAll(".point") ?? [])].find(({ __data__ }) => __data__?.i === pointNumber);
  if (!mark) return bbox && { left: bbox.x0 - graph.offsetLeft, top: bbox.y0 - graph.offsetTop, width: bbox.x1 - bbox.x0, height: bbox.y1 - bbox.y0 };
  const [box, around] = [mark.querySelector("path") ?? mark, graph].map((element) => element.getBoundingClientRect());
  const scale = around.width / graph.offsetWidth || 1; // of a figure that is drawn smaller
  return { left: (box.left - around.left) / scale, top: (box.top - around.top) / scale, width: box.width / scale, height: box.height / scale };
}

// A ring around the mark that is under the pointer or has the keyboard; show(points) of plotly's event, or of none.
function makeRing(graph) {
  const ring = document.createElement("i");
  ring.className = "alpa-ring";
  return ([point]) => {
    const box = point && boxOf(graph, point);
    if (!box) return ring.remove();
    const width = Math.max(box.width, 6), height = Math.max(box.height, 6);
    const place = { left: box.left + (box.width - width) / 2 - 2, top: box.top + (box.height - height) / 2 - 2, width, height };
    for (const [name, pixels] of Object.entries(place)) ring.style[name] = `${pixels}px`;
    return graph.append(ring);
  };
}
