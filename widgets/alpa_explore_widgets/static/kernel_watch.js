// Whether the kernel of this page's widgets is there. With their kernel the widgets end; a lost connection may come back.

const COUNTED = Symbol.for("alpa_explore.counted");
const LOST_MS = 1_000; // a connection that is back this soon was not missed

// The states in their order: none is followed by an earlier one, but "lost" by "live".
const KERNEL_STATES = ["live", "lost", "restarted", "died", "ended"];
const hasEnded = (state) => KERNEL_STATES.indexOf(state) >= KERNEL_STATES.indexOf("restarted");
// Kept on the page alone: a kernel cannot know how it looks from here.
const kernelState = (model) => model.get("kernel_state") ?? "live";

// A widget keeps an edit back until the kernel has answered the one before. An answer that was lost with the connection
// never comes: without this, the widget would keep all later edits back. An answer that comes nevertheless is not counted
// a second time: its edit was sent before the connection came back (both times are the page's).
async function sendEditsKeptBack(manager, addresses) {
  const models = await Promise.all(addresses.filter((id) => manager.has_model(id)).map((id) => manager.get_model(id)));
  const back = Date.now();
  for (const model of models.filter((each) => each._pending_msgs > 0)) {
    model._handle_status = (message) => {
      const isLate = Date.parse(message.parent_header.date) < back;
      if (!isLate) model.constructor.prototype._handle_status.call(model, message);
    };
    model._pending_msgs = 1;
    model.constructor.prototype._handle_status.call(model, { content: { execution_state: "idle" } });
  }
}

// Counts the messages of this page to a kernel, and its answers (`counts`), once for all explorers.
function countMessages(kernel) {
  if (kernel[COUNTED]) return;
  kernel[COUNTED] = true;
  const open = new Set();
  // The answers never come: the kernel is another one or none, or the connection was lost meanwhile.
  const forget = () => {
    counts.answered += open.size;
    open.clear();
  };
  kernel.anyMessage.connect((_kernel, { msg, direction }) => {
    if (direction !== "send" || msg.channel !== "shell") return;
    open.add(msg.header.msg_id);
    counts.asked += 1;
  });
  // Unlike anyMessage, this comes when the page has handled the messages before.
  kernel.iopubMessage.connect((_kernel, { header, content, parent_header }) => {
    const done = header.msg_type === "status" && content.execution_state === "idle";
    if (done && open.delete(parent_header.msg_id)) counts.answered += 1;
  });
  kernel.statusChanged.connect((_kernel, status) => ["restarting", "autorestarting", "dead"].includes(status) && forget());
  kernel.connectionStatusChanged.connect((_kernel, status) => status === "connected" && forget());
  kernel.disposed?.connect(forget);
}

// Calls report(state) at each change; returns the function that stops it. address() is the id of a widget, by which a
// kernel that the page lost for a while is recognised.
function watchKernel(manager, address, report) {
  const kernel = manager?.kernel; // a property of the widget managers of JupyterLab, Notebook and voila
  if (!kernel?.statusChanged || !kernel.connectionStatusChanged) return () => {};
  countMessages(kernel);
  let timer = 0;
  const onStatus = (_kernel, status) => {
    if (status === "restarting") report("restarted");
    if (status === "autorestarting" || status === "dead") report("died");
  };
  const findWidget = async () => {
    // While the connection was lost, another page may have restarted the kernel. The answer comes after the states that the
    // widget manager requests from a kernel that is back, so that these cannot undo an edit.
    const reply = await kernel.requestCommInfo({ target_name: "jupyter.widget" });
    const comms = reply.content.comms ?? {};
    if (reply.content.status === "ok" && !(address() in comms)) {
      // JupyterLab counts the users of a kernel's subshells by its id, which a restart by another page leaves as it is: once
      // the widgets of before are gone it ends the subshell of those that come now, whose messages are then refused.
      if (kernel.commsOverSubshells) kernel.commsOverSubshells = "disabled";
      return report("restarted");
    }
    await sendEditsKeptBack(manager, Object.keys(comms));
    report("live");
  };
  const onConnection = (_kernel, status) => {
    clearTimeout(timer);
    if (status !== "connected") timer = setTimeout(() => report("lost"), LOST_MS);
    else findWidget().catch(() => report("lost")); // lost again: the next connection asks again
  };
  const onDisposed = () => {
    clearTimeout(timer);
    report("ended");
  };
  kernel.statusChanged.connect(onStatus);
  kernel.connectionStatusChanged.connect(onConnection);
  kernel.disposed?.connect(onDisposed);
  return () => {
    clearTimeout(timer);
    kernel.statusChanged.disconnect(onStatus);
    kernel.connectionStatusChanged.disconnect(onConnection);
    kernel.disposed?.disconnect(onDisposed);
  };
}

// What the page says above an explorer without its kernel.
function kernelBanner(state, hasPlan) {
  const what = {
    lost: "Connection to the kernel lost: the explorer goes on when it is back",
    restarted: "Kernel restarted",
    died: "Kernel died",
    ended: "Kernel shut down",
  }[state];
  if (!what) return "";
  const again = document.querySelector(".jp-Notebook") ? "run the cell again to explore" : "load the page again to explore";
  return `${what}${state === "lost" ? "" : `: ${again}`}${hasPlan ? "; below is the last plan." : "."}`;
}
