// The module of every widget: it runs the one that widgets of a class have in common, which a page compiles once.
async function load(model) {
  const shared = await model.widget_manager.get_model(model.get("shared").slice("IPY_MODEL_".length));
  const [modules, code] = [(globalThis.alpaModules ??= new Map()), shared.get("value")];
  if (!modules.has(code)) modules.set(code, import(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))));
  return (await modules.get(code)).default;
}

export default {
  initialize: async (given) => (await load(given.model)).initialize?.(given),
  render: async (given) => (await load(given.model)).render(given),
};
