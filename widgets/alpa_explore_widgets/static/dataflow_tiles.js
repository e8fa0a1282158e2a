// Tensors as cut blocks: a tile shows into how many parts a spec cuts a tensor, the part that one device holds filled, and
// hatched where a sum is pending; the picture of a mesh shows a tile for each of its devices.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

// An SVG element with attributes and children; texts become text nodes, so that a name in a plan is never markup.
function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG_NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function html(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// {rows, columns, row, column}: all dims but the last are cut along the height, the last along the width; and which of the
// parts the device at these coordinates of the mesh holds.
function cutsOf(spec, sizes, coordinates) {
  const along = (dims) => {
    let [count, place] = [1, 0];
    for (const axis of dims.flat()) {
      count *= sizes[axis] ?? 1;
      place = place * (sizes[axis] ?? 1) + (coordinates[axis] ?? 0);
    }
    return [count, place];
  };
  const dims = spec?.dims ?? [];
  const [rows, row] = along(dims.length > 1 ? dims.slice(0, -1) : dims);
  const [columns, column] = dims.length > 1 ? along(dims.slice(-1)) : [1, 0];
  return { rows, columns, row, column };
}

// Lines closer than this many pixels are not drawn.
const LEAST_CUT_PIXELS = 2;

function tile(spec, sizes, coordinates, width, height) {
  const { rows, columns, row, column } = cutsOf(spec, sizes, coordinates);
  const [high, wide] = [height / rows, width / columns];
  const group = svg("g", { class: "alpa-tile-cut" });
  group.append(svg("rect", { class: "alpa-cut-ground", width, height }));
  const held = { x: column * wide, y: row * high, width: Math.max(wide, 1.5), height: Math.max(high, 1.5) };
  group.append(svg("rect", { class: "alpa-cut-held", ...held }));
  if (spec?.pending.length) {
    const lines = [];
    for (let at = -held.height; at < held.width; at += 4) lines.push(`M${held.x + at} ${held.y + held.height}l${held.height} ${-held.height}`);
    const clip = `alpa-clip-${Math.random().toString(36).slice(2)}`;
    group.append(svg("clipPath", { id: clip }, svg("rect", held)), svg("path", { class: "alpa-cut-pending", d: lines.join(""), "clip-path": `url(#${clip})` }));
  }
  let cuts = "";
  if (high >= LEAST_CUT_PIXELS) for (let i = 1; i < rows; i += 1) cuts += `M0 ${i * high}h${width}`;
  if (wide >= LEAST_CUT_PIXELS) for (let i = 1; i < columns; i += 1) cuts += `M${i * wide} 0v${height}`;
  group.append(svg("path", { class: "alpa-cut-lines", d: cuts }), svg("rect", { class: "alpa-cut-frame", width, height }));
  return group;
}

// A tile for each device of the mesh: its longest axis to the right, the others downwards.
function meshPicture(spec, sizes) {
  const across = sizes.length ? sizes.indexOf(Math.max(...sizes)) : 0;
  const columns = sizes[across] ?? 1;
  const down = sizes.map((_, axis) => axis).filter((axis) => axis !== across);
  const rows = down.reduce((product, axis) => product * sizes[axis], 1);
  const cell = { width: columns > 8 ? 18 : 28, height: rows > 4 ? 8 : rows > 2 ? 14 : 20, gap: 4 };
  const size = { width: columns * (cell.width + cell.gap), height: rows * (cell.height + cell.gap) };
  const picture = svg("svg", { ...size, viewBox: `-1 -1 ${size.width} ${size.height}`, "aria-hidden": "true" });
  for (let row = 0; row < rows; row += 1) {
    const coordinates = [];
    let left = row;
    for (const axis of [...down].reverse()) {
      coordinates[axis] = left % sizes[axis];
      left = Math.floor(left / sizes[axis]);
    }
    for (let column = 0; column < columns; column += 1) {
      coordinates[across] = column;
      const group = tile(spec, sizes, coordinates, cell.width, cell.height);
      group.setAttribute("transform", `translate(${column * (cell.width + cell.gap)} ${row * (cell.height + cell.gap)})`);
      picture.append(group);
    }
  }
  return picture;
}

// How the picture of a mesh is read: 'mesh axis 0 to the right, axis 1 downwards'.
function meshWords(sizes) {
  if (!sizes.length) return "";
  const across = sizes.indexOf(Math.max(...sizes));
  const down = sizes.map((_, axis) => axis).filter((axis) => axis !== across);
  return `devices: mesh axis ${across} to the right${down.length ? `, axis ${down.join(" and ")} downwards` : ""}`;
}
