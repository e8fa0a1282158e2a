// One copy of plotly.js for the whole page. The first figure requests it from its kernel (a gzipped custom message); all
// others wait for the same promise. The overview requests it ahead, while it is read.

const LIBRARY = Symbol.for("alpa_explore.plotly");
const REQUEST_TIMEOUT_MS = 60_000;
const REPEAT_MS = [5_000, 20_000]; // a kernel may refuse the first messages of a page that was loaded again

function plotly(model) {
  globalThis[LIBRARY] ??= fetchPlotly(model).catch((error) => {
    delete globalThis[LIBRARY]; // a kernel that died before it answered must not break the page: the next figure asks again
    throw error;
  });
  return globalThis[LIBRARY];
}

function fetchPlotly(model) {
  return new Promise((resolve, reject) => {
    const ask = () => model.send({ kind: "request plotly" });
    const timers = REPEAT_MS.map((wait) => setTimeout(ask, wait));
    timers.push(setTimeout(() => reject(new Error("the kernel did not send plotly.js")), REQUEST_TIMEOUT_MS));
    const receive = async (content, buffers) => {
      if (content?.kind !== "plotly") return;
      model.off("msg:custom", receive);
      timers.forEach(clearTimeout);
      try {
        const source = await unpacked(buffers[0]);
        // A module of its own, so that the library sees neither the page's AMD loader nor another version of plotly.
        const parts = ["const module = {exports: {}}, window = globalThis;\n", source, "\nexport default module.exports;"];
        const url = URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
        resolve((await import(/* webpackIgnore: true */ url)).default);
        URL.revokeObjectURL(url);
      } catch (error) {
        reject(error);
      }
    };
    model.on("msg:custom", receive);
    ask();
  });
}
