// Prices TP × PP × DP × CP × EP layouts in the page, from the tables of alpa_explore/course/site/what_if.py, as
// baselines/layout_price.py does for pipelines in 1F1B order; a test gives both the same questions.
const whatIf = (() => {
  "use strict";
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const dot = (counts, values) => sum(counts.map((count, place) => count * values[place]));

  // --- Collectives among a group of devices (cost/group_collectives.py).
  const groupSeconds = (kind, bytes, ranks, [nodes, inside, reduction, network, hopInside, hop, waiting]) => {
    if (ranks === 1) return 0;
    const wait = waiting * Math.log2(ranks);
    const part = ((ranks - 1) / ranks) * bytes;
    const reduces = kind === "all-reduce";
    if (nodes === 1) {
      if (reduces && reduction) return wait + (2 * part) / reduction;
      return wait + (reduces ? 2 : 1) * ((ranks - 1) * hopInside + part / inside);
    }
    const ring = (ranks - nodes) * hopInside + nodes * hop + part / Math.min(network, inside);
    if (!reduces) return wait + ring;
    const together = ranks / nodes;
    const climb = 2 * Math.log2(nodes) * hop + (((2 * (nodes - 1)) / nodes) * bytes) / network;
    const within = (((2 * (together - 1)) / together) * bytes) / (reduction || inside);
    return wait + Math.min(2 * ring, Math.max(within, climb));
  };
  const storedSeconds = (kind, bytes, tensors, ranks, links, bucket) => {
    if (!bytes) return 0;
    if (bucket) return (groupSeconds(kind, bucket, ranks, links) * bytes) / bucket;
    return groupSeconds(kind, bytes, ranks, links) + Math.max(tensors - 1, 0) * groupSeconds(kind, 1, ranks, links);
  };

  // --- What hides behind what (cost/stage_seconds.py).
  const UNHIDDEN = 0.05;
  const pace = (host, device, sharpness) => {
    const [low, high] = host < device ? [host, device] : [device, host];
    return low <= 0 ? high : high * (1 + (low / high) ** sharpness) ** (1 / sharpness);
  };
  const exposed = (communication, beside, { contention }) =>
    Math.hypot(Math.max(communication - beside, 0), UNHIDDEN * communication) +
    contention * Math.min(communication, beside);

  // --- Why a layout does not exist; "" where it does.
  const refusal = ({ models, per_node }, asked) => {
    const { model, devices, tp, pp, dp, cp, ep, microbatch, batch, zero } = asked;
    const { rows, stages, zero: stored } = models[model];
    if (tp * pp * dp * cp !== devices) return `TP · PP · DP · CP is ${tp * pp * dp * cp}, and there are ${devices} devices.`;
    if (dp % ep) return `EP divides DP: ${dp} copies cannot be ${ep} groups of experts.`;
    if (!(pp in stages)) return `This model has no pipeline of ${pp} stages on these clusters.`;
    if (batch % (dp * microbatch)) return `${batch} samples cannot be divided into ${dp} × ${microbatch}.`;
    if (pp > 1 && batch / (dp * microbatch) < pp) return `A pipeline of ${pp} stages needs ${pp} microbatches or more.`;
    if (!(`${tp},${cp},${ep},${microbatch}` in rows)) {
      const known = Object.keys(rows).map((key) => key.split(",").map(Number));
      const of = (place, ...fixed) => [
        ...new Set(known.filter((row) => fixed.every((value, at) => row[at] === value)).map((row) => row[place])),
      ];
      if (!of(0).includes(tp)) return `TP can be ${of(0).join(", ")}: it divides heads and widths, inside a node of ${per_node}.`;
      if (!of(1, tp).includes(cp)) return `With TP ${tp}, CP can be ${of(1, tp).join(", ")}.`;
      if (!of(2, tp, cp).includes(ep)) return `With TP ${tp} · CP ${cp}, EP can be ${of(2, tp, cp).join(", ")}.`;
      return `With TP ${tp} · CP ${cp} · EP ${ep}, a microbatch can have ${of(3, tp, cp, ep).join(", ")} samples.`;
    }
    const kinds = dp * cp === 1 ? [0] : stored[pp === 1 ? "alone" : "in pipelines"];
    if (!kinds.includes(zero)) return `Here ZeRO can be ${kinds.join(", ")}${pp > 1 ? ": a pipeline would gather weights for every microbatch" : ""}.`;
    return "";
  };

  // --- The price: {refused}, or seconds, bytes, their parts. (baselines/layout_price.py)
  const price = (tables, asked) => {
    const refused = refusal(tables, asked);
    if (refused) return { refused };
    const { software, element, groups, per_node } = tables;
    const { model, devices, tp, pp, dp, cp, ep, microbatch, batch, zero, recompute } = asked;
    const { rows, stages, tokens, flops } = tables.models[model];
    const { parts, tied, boundary } = rows[`${tp},${cp},${ep},${microbatch}`];
    const microbatches = batch / (dp * microbatch);
    const replicas = cp * dp;
    const together = tp * replicas; // devices of a stage
    const expertReplicas = together / (ep * tp);
    const links = { dense: groups[`${replicas},${tp}`], experts: groups[`${expertReplicas},${ep * tp}`] };
    const column = (place) => parts.map((part) => part[recompute][place]);
    const [forward, forwardHost, backward, backwardHost, held, workspace] = [0, 1, 2, 3, 4, 5].map(column);
    const size = (place) => parts.map((part) => part.sizes[place]);
    const counts = stages[pp];
    const overlapped = software.gradient_sync === "overlapped";

    // Parameters of a device of each stage: dense, of experts, and the number of tensors.
    const elements = counts.map((of) => {
      const copied = of.at(-1) && !of[0] ? tied : 0;
      return { dense: dot(of, size(0)) + copied, experts: dot(of, size(1)), tensors: dot(of, size(2)) };
    });
    const divided = ({ dense, experts }, from) =>
      zero < from ? dense + experts : dense / replicas + experts / expertReplicas;
    const blocks = counts[0].map((_, part) => (part && part < parts.length - 1 ? sum(counts.map((of) => of[part])) : 0));
    const ofBlock = [0, 1].map((place) => dot(blocks, size(place)) / Math.max(sum(blocks), 1));
    const exchange = (kind, { dense, experts, tensors }, width, { without = 0, each = false } = {}) => {
      const [ofDense, ofExperts] =
        each && software.bucket_bytes ? ofBlock.map((count) => width * count) : [software.bucket_bytes, software.bucket_bytes];
      return (
        storedSeconds(kind, width * (dense - without), tensors, replicas, links.dense, ofDense) +
        storedSeconds(kind, width * experts, 1, expertReplicas, links.experts, ofExperts)
      );
    };

    // Seconds of a pass of one microbatch.
    const pass = (device, host, stored) => {
      if (!overlapped) return pace(host, device + stored, software.pace_sharpness);
      const computing = pace(host, device, software.pace_sharpness);
      return computing + exposed(stored, computing, software);
    };
    const passes = counts.map((of, stage) => {
      const own = elements[stage];
      const whole = own.dense + own.experts;
      let [gathered, scattered, adding, launching] = [0, 0, 0, 0];
      if (zero >= 2 && replicas > 1) {
        scattered = exchange("reduce-scatter", own, element.weight, { each: true });
        if (zero > 2) {
          gathered = exchange("all-gather", own, element.weight, { each: true });
          const without = parts[0].sizes[0] * of[0];
          scattered += exchange("all-gather", own, element.weight, { without, each: true });
        }
      }
      if (whole) {
        const [start, rate] = tables.adding;
        adding = start + own.tensors * tables.adding_tensor + (rate * element.weight * whole * divided(own, 2)) / whole;
        if (software.accumulate_bytes && !software.accumulate_in_product) launching = own.tensors * software.backward_launch_seconds;
      }
      return [
        pass(dot(of, forward), dot(of, forwardHost), gathered),
        pass(dot(of, backward) + adding, dot(of, backwardHost) + launching, scattered),
      ];
    });

    // Once an iteration: sums of gradients, updated weights, the update, tied tables.
    const updates = counts.map((_, stage) => {
      const own = elements[stage];
      const [ahead, back] = passes[stage];
      let [summed, gathered] = [0, 0];
      if (replicas > 1 && zero < 3) {
        const width = software.sync_bytes || element.weight;
        if (zero) gathered = exchange("all-gather", own, element.weight);
        if (zero < 2) summed = exchange(zero ? "reduce-scatter" : "all-reduce", own, width);
      }
      const shown = overlapped ? exposed(summed, back, software) + exposed(gathered, ahead, software) : summed + gathered;
      let seconds = shown + tables.update * divided(own, 1) + software.iteration_seconds;
      if (stage && stage === pp - 1 && tied) {
        const [inside, network] = tables.tied;
        seconds += (2 * element.weight * tied) / (devices > per_node ? network * software.network_share : inside);
      }
      return seconds;
    });

    // The pipeline: 1F1B.
    let stragglers = 1 + software.straggler_share * Math.log2(Math.max(1, devices / per_node));
    if (2 * tp <= per_node) stragglers += software.shared_node_share * Math.log2(Math.max(1, together / per_node));
    const nodes = (stage) => Math.floor(((stage + 1) * together - 1) / per_node) - Math.floor((stage * together) / per_node) + 1;
    const borders = [0];
    for (let stage = 0; stage + 1 < pp; stage += 1) {
      const crosses = Math.floor((stage * together) / per_node) !== Math.floor(((stage + 2) * together - 1) / per_node);
      const [start, rate] = crosses ? tables.send_between : tables.send_inside;
      const senders = crosses ? Math.min(nodes(stage), nodes(stage + 1)) * per_node : together;
      borders.push(start + (rate * boundary * together) / tp / senders);
    }
    borders.push(0);
    const waits = counts.map((_, stage) => borders[stage] + borders[stage + 1]);
    const ahead = passes.map(([seconds], stage) => seconds * stragglers + waits[stage]);
    const back = passes.map(([, seconds], stage) => (seconds + software.microbatch_seconds) * stragglers + waits[stage]);
    const slowest = Math.max(...ahead.map((seconds, stage) => seconds + back[stage]));
    let [drained, updating] = [0, -Infinity];
    updates.forEach((update, stage) => {
      updating = Math.max(updating, update - drained);
      drained += back[stage];
    });
    const once = sum(ahead) + sum(back) - slowest + updating;
    const seconds = microbatches * slowest + once;

    // Bytes of the fullest device.
    const twice = software.keeps_last_loss && microbatches > 1 ? 2 : 1;
    const ofStages = counts.map((of, stage) => {
      const last = parts.length - 1;
      const inFlight = Math.min(pp - stage, microbatches);
      const others = dot(of.slice(0, last), held.slice(0, last)) + (pp > 1 ? software.boundary_buffers * boundary : 0);
      let activations = inFlight * others + held[last] * of[last] * twice;
      const [weights, gradients, state] = [3, 2, 1].map((from) => divided(elements[stage], from));
      // While a part runs, those behind it hold nothing: not yet, or no more.
      const headHolds = held[last] * of[last];
      const behind = (part) =>
        part === last ? 0 : headHolds + (part ? 0 : dot(of.slice(1, last), held.slice(1, last)));
      const needed = workspace.map((size, part) => (of[part] ? size - behind(part) : 0));
      let temporary = Math.max(0, ...needed) + gradients * software.buffer_bytes;
      if (replicas > 1 && gradients * software.sync_buffer_bytes > activations + temporary) {
        [activations, temporary] = [0, gradients * software.sync_buffer_bytes];
      }
      const { dense, experts } = elements[stage];
      const whole = dense * (1 - 1 / replicas) + experts * (1 - 1 / expertReplicas);
      const share = Math.min(software.gathered_blocks / Math.max(sum(of.slice(1, last)), 1), 1);
      return [
        ["weights", weights * element.weight + (zero >= 3 ? element.weight * whole * share : 0)],
        ["gradients", gradients * element.gradient],
        ["optimizer state", state * element.optimizer],
        ["activations", activations],
        ["temporary tensors", temporary],
        ["reserve", tables.reserve],
      ];
    });
    const total = (of) => sum(of.map(([, bytes]) => bytes));
    const fullest = ofStages.reduce((most, of) => (total(of) > total(most) ? of : most));
    const bytes = total(fullest);
    return {
      seconds, bytes, microbatches, once,
      each: slowest,
      parts: fullest,
      fits: bytes <= tables.room,
      stage: ofStages.indexOf(fullest),
      tokensPerSecond: (batch * tokens) / seconds,
      mfu: (batch * flops) / (seconds * devices * tables.peak),
    };
  };

  // --- Every layout of a model on so many devices; the fastest that fits.
  const every = function* (tables, { model, devices, batch }) {
    const { rows, stages } = tables.models[model];
    for (const key of Object.keys(rows)) {
      const [tp, cp, ep, microbatch] = key.split(",").map(Number);
      for (const pp of Object.keys(stages).map(Number)) {
        const dp = devices / (tp * cp * pp);
        if (!Number.isInteger(dp)) continue;
        for (const zero of [0, 1, 2, 3]) {
          for (const recompute of ["none", "full"]) {
            yield { model, devices, batch, tp, pp, dp, cp, ep, microbatch, zero, recompute };
          }
        }
      }
    }
  };
  const best = (tables, asked) => {
    let found = null;
    for (const layout of every(tables, asked)) {
      const priced = price(tables, layout);
      if (!priced.refused && priced.fits && !(found && found.seconds <= priced.seconds)) found = { ...priced, layout };
    }
    return found;
  };
  return { price, best };
})();

// The page: fields, the answer in words, and what fills the memory of a device.
(() => {
  "use strict";
  const form = document.getElementById("layout-form");
  if (!form) return;
  const tables = JSON.parse(document.getElementById("data").textContent).whatIf;
  const fields = form.elements;
  const [answer, memory, legend, note] = [".answer", ".memory", ".legend", ".note"].map((name) => form.querySelector(name));
  const GIB = 2 ** 30;
  const digits = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const time = (seconds) => (seconds < 1 ? `${digits(1000 * seconds)} ms` : `${digits(seconds)} s`);
  const gib = (bytes) => `${(bytes / GIB).toFixed(1)} GiB`;
  const line = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const words = ({ tp, pp, dp, cp, ep, zero, microbatch, recompute }) =>
    [`TP ${tp}`, `PP ${pp}`, `DP ${dp}`, cp > 1 && `CP ${cp}`, ep > 1 && `EP ${ep}`, zero && `ZeRO-${zero}`]
      .concat(`microbatch ${microbatch}`, recompute === "full" && "full recomputation")
      .filter(Boolean)
      .join(" · ");

  // Options of a field; the old value stays where there is still such an option.
  const fill = (field, values, wanted = field.value) => {
    field.replaceChildren(...values.map((value) => line("option", value)));
    if (values.map(String).includes(String(wanted))) field.value = wanted;
  };
  const powers = (least, most) => {
    const found = [];
    for (let value = least; value <= most; value *= 2) found.push(value);
    return found;
  };
  const fillModel = () => {
    const { devices, batch, stages, rows } = tables.models[fields.model.value];
    const keys = Object.keys(rows).map((key) => key.split(",").map(Number));
    fill(fields.devices, devices);
    fill(fields.batch, powers(batch / 4, batch * 8), batch);
    fill(fields.pp, Object.keys(stages));
    ["tp", "cp", "ep", "microbatch"].forEach((name, place) => {
      fill(fields[name], [...new Set(keys.map((row) => row[place]))].sort((a, b) => a - b));
    });
  };
  const asked = () => {
    const numbers = ["devices", "batch", "tp", "pp", "cp", "ep", "microbatch", "zero"];
    const of = Object.fromEntries(numbers.map((name) => [name, Number(fields[name].value)]));
    const dp = Math.max(1, Math.floor(of.devices / (of.tp * of.pp * of.cp)));
    return { ...of, dp, model: fields.model.value, recompute: fields.recompute.value };
  };
  const show = () => {
    const question = asked();
    const { tokens, words: sizes } = tables.models[question.model];
    const priced = whatIf.price(tables, question);
    fields.dp.textContent = question.dp;
    note.textContent = "";
    memory.replaceChildren();
    legend.replaceChildren();
    memory.hidden = Boolean(priced.refused);
    if (priced.refused) {
      answer.replaceChildren(line("b", "There is no such layout."), line("p", priced.refused));
      return;
    }
    const { bytes, each, fits, mfu, microbatches, once, parts, seconds, stage, tokensPerSecond } = priced;
    answer.replaceChildren(
      line("b", `${time(seconds)} an iteration, ${gib(bytes)} of ${gib(tables.room)}: ${fits ? "fits" : "does not fit"}`),
      line("p", `${words(question)}: ${microbatches} microbatch${microbatches > 1 ? "es" : ""} of ${time(each)}, and ${time(Math.max(once, 0))} in which ${question.pp > 1 ? "the pipeline fills and drains, " : ""}gradients are summed and weights updated. ${digits(tokensPerSecond)} tokens a second, MFU ${digits(100 * mfu)}\u00a0%.`),
      line("p", `${sizes}; ${tokens.toLocaleString("en")} tokens a sample; ${tables.label}.`),
    );
    answer.lastChild.className = "note";
    const whole = Math.max(bytes, tables.room);
    memory.setAttribute("aria-label", `Memory of a device of stage ${stage}: ${parts.map(([name, size]) => `${name} ${gib(size)}`).join(", ")}`);
    parts.forEach(([name, size], place) => {
      const bar = line("span", "");
      bar.className = `part-${place}`;
      bar.style.width = `${(100 * size) / whole}%`;
      memory.append(bar);
      const entry = line("li", `${name} ${gib(size)}`);
      entry.className = bar.className;
      legend.append(entry);
    });
    const limit = line("li", `a device has ${gib(tables.room)}`);
    limit.className = "limit";
    legend.append(limit);
    const edge = line("i", "");
    edge.style.left = `${(100 * tables.room) / whole}%`;
    memory.append(edge);
  };
  const choose = (values) => {
    if (values.model in tables.models) fields.model.value = values.model;
    fillModel();
    for (const [name, value] of Object.entries(values)) {
      const field = fields.namedItem(name);
      if (field?.tagName === "SELECT" && [...field.options].some((option) => option.value === String(value))) {
        field.value = value;
      }
    }
    show();
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    if (target === fields.model) fillModel();
    show();
  });
  form.querySelector("[name=best]").addEventListener("click", () => {
    const found = whatIf.best(tables, asked());
    if (found) choose(found.layout);
    note.textContent = found ? "The fastest of all layouts without interleaving." : "None fits: take more GPUs.";
  });
  form.querySelector("[name=link]").addEventListener("click", async () => {
    const { dp, ...kept } = asked();
    window.location.hash = new URLSearchParams(kept);
    try {
      await navigator.clipboard.writeText(window.location.href);
      note.textContent = "Copied.";
    } catch {
      note.textContent = "The address of this page is the link.";
    }
  });
  fill(fields.model, Object.keys(tables.models));
  choose(Object.fromEntries(new URLSearchParams(window.location.hash.slice(1))));
})();
