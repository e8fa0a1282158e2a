// The JupyterLab extension: a launcher card, a command, and a read-only view of plan files. Written by hand in the form
// that Lab loads (a module federation container), so that nothing is built and no node is needed.

(() => {
  const NAME = "alpa-explore";
  // A pipeline of three stages: forward down, backward up. Lab colours the class jp-icon3 to suit its theme.
  const BARS = [[1, 2, "#0072B2"], [11, 2, "#0072B2"], [3.5, 6.5, "#E69F00"], [8.5, 6.5, "#E69F00"], [6, 11, "#009E73"]];
  const svg = (attributes, bar) =>
    `<svg xmlns="http://www.w3.org/2000/svg" ${attributes} viewBox="0 0 16 16">${BARS.map(bar).join("")}</svg>`;
  const bar = (x, y, fill) => `<rect x="${x}" y="${y}" width="4" height="3" rx="0.5" ${fill}/>`;
  const ICON = svg('width="16"', ([x, y]) => bar(x, y, 'class="jp-icon3" fill="#616161"'));
  // The launcher shows cards among the notebooks by the address of a picture, which has no theme: the colours of the stages.
  const CARD = `data:image/svg+xml,${encodeURIComponent(svg('width="52" height="52"', ([x, y, colour]) => bar(x, y, `fill="${colour}"`)))}`;
  let scope = {};

  // A module of Lab's own, from what it shares; the first version is the only one.
  const lab = async (name) => (await Object.values(scope[name])[0].get())();

  const notebook = (source) => ({
    cells: [{ cell_type: "code", id: "explore", metadata: {}, source, outputs: [], execution_count: null }],
    metadata: { kernelspec: { name: "python3", display_name: "Python 3 (ipykernel)", language: "python" } },
    nbformat: 4,
    nbformat_minor: 5,
  });

  async function openNotebook(app, folder, source) {
    const { contents } = app.serviceManager;
    const { path } = await contents.newUntitled({ path: folder, type: "notebook" });
    await contents.save(path, { type: "notebook", format: "json", content: notebook(source) });
    return app.commands.execute("docmanager:open", { path });
  }

  // The view is made of text nodes alone: a plan may come from a stranger.
  const element = (tag, ...children) => {
    const found = document.createElement(tag);
    found.append(...children);
    return found;
  };
  const table = (head, rows) =>
    element(
      "table",
      element("thead", element("tr", ...head.map((name) => element("th", name)))),
      element("tbody", ...rows.map((row) => element("tr", ...row.map((cell) => element("td", String(cell)))))),
    );
  // Three digits, all before the point, in groups, as `alpa_explore.units.number`.
  const number = (value) => (value < 999.5 ? Number(value.toPrecision(3)) : Math.round(value)).toLocaleString("en");
  const seconds = (value) => (value >= 1 ? `${number(value)} s` : `${number(1e3 * value)} ms`);
  const gib = (value) => `${number(value / 2 ** 30)} GiB`;
  const layers = ([first, last]) => (first === last ? `${first}` : `${first}–${last}`);

  function summary(plan) {
    const { model, cluster, options, predicted, stages } = plan;
    const rows = stages.map((s) => [
      s.index, layers(s.layers), s.submesh.join("×"), s.logical_mesh.join("×"), seconds(s.latency_seconds),
      gib(s.weight_bytes + s.microbatches_held * s.activation_bytes + s.workspace_bytes),
    ]);
    return [
      element("h1", `${model.name} on ${cluster.nodes}x${cluster.devices_per_node}:${cluster.device}`),
      element(
        "p",
        `${seconds(predicted.iteration_seconds)} per iteration of ${options.num_microbatches} microbatches; ` +
          `${options.num_layers} layers, δ = ${options.delta}. A stage is idle for ${(100 * predicted.bubble_fraction).toPrecision(3)} % ` +
          `of the time on average. No device needs more than ${gib(predicted.peak_bytes_per_device)}.`,
      ),
      table(["stage", "layers", "submesh", "logical mesh", "time per microbatch", "peak memory per device"], rows),
    ];
  }

  const NEEDED = ["@lumino/widgets", "@jupyterlab/docregistry", "@jupyterlab/launcher", "@jupyterlab/apputils", "@jupyterlab/ui-components"];

  async function plugins() {
    if (NEEDED.some((name) => !scope[name])) return []; // voila has neither files nor a launcher
    const [{ Widget }, { ABCWidgetFactory, DocumentWidget }, { ILauncher }, { ICommandPalette }, { LabIcon }] = await Promise.all(NEEDED.map(lab));
    const icon = new LabIcon({ name: `${NAME}:plan`, svgstr: ICON });

    class PlanFactory extends ABCWidgetFactory {
      constructor(app, options) {
        super(options);
        this.app = app;
      }
      createNewWidget(context) {
        const content = new Widget();
        content.addClass("jp-RenderedHTMLCommon");
        Object.assign(content.node.style, { padding: "16px 24px", overflow: "auto", background: "var(--jp-layout-color0)" });
        content.title.icon = icon;
        const show = () => {
          try {
            const open = element("button", "Open in the explorer");
            open.type = "button";
            open.className = "jp-mod-styled jp-mod-accept";
            const folder = context.path.split("/").slice(0, -1).join("/");
            const name = JSON.stringify(context.path.split("/").pop());
            const code = `import alpa_explore as ax\nfrom alpa_explore_widgets import explore\n\nexplore(ax.load_plan(${name}))`;
            open.addEventListener("click", () => openNotebook(this.app, folder, code));
            content.node.replaceChildren(...summary(JSON.parse(context.model.toString())), open);
          } catch (error) {
            content.node.replaceChildren(element("p", `This is not a plan of alpa_explore, or a damaged one (${error.message}). Open it with the editor to look at it.`));
          }
        };
        context.ready.then(() => {
          show();
          context.model.contentChanged.connect(show);
        });
        return new DocumentWidget({ content, context });
      }
    }

    return [
      {
        id: `${NAME}:plugin`,
        autoStart: true,
        optional: [ILauncher, ICommandPalette],
        activate: (app, launcher, palette) => {
          const command = `${NAME}:new`;
          app.commands.addCommand(command, {
            label: "Plan Explorer",
            caption: "A notebook with the explorer on a small model",
            icon,
            execute: ({ cwd }) =>
              openNotebook(app, cwd ?? "", 'from alpa_explore_widgets import explore\n\nexplore("gpt-tiny", cluster="1x4:v100", num_microbatches=8)'),
          });
          launcher?.add({ command, category: "Notebook", rank: 100, kernelIconUrl: CARD });
          palette?.addItem({ command, category: "alpa_explore" });
          app.docRegistry.addFileType({
            name: "alpa-plan", displayName: "Plan", extensions: [".plan.json"], mimeTypes: ["application/json"],
            fileFormat: "text", contentType: "file", icon,
          });
          app.docRegistry.addWidgetFactory(
            new PlanFactory(app, { name: "Plan", modelName: "text", fileTypes: ["alpa-plan"], defaultFor: ["alpa-plan"], readOnly: true }),
          );
        },
      },
    ];
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB[NAME] = {
    init: (shared) => {
      scope = shared;
    },
    get: async () => {
      const found = await plugins();
      return () => found;
    },
  };
})();
