// Numbers as text, elements, and the page's data. Text of the data is only ever set as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const WHOLE = new Intl.NumberFormat("en"); // making one takes longer than using it
const number = (value, digits = 3) => {
  if (value === null || value === undefined || !isFinite(value)) return "";
  return value !== 0 && (Math.abs(value) >= 10 ** digits)
    ? WHOLE.format(Math.round(value)) : value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
};
const time = (us) => us === null || us === undefined ? ""
  : us < 1000 ? `${number(us)} us` : us < 1e6 ? `${number(us / 1e3)} ms` : `${number(us / 1e6)} s`;
const times = (value) => value === null || value === undefined ? "" : `${value.toFixed(2)}x`;
const percent = (value) => value === null || value === undefined ? "" : `${number(100 * value, 2)} %`;
const rate = (operations, us) => operations && us ? operations / us * 1e-3 : null; // GFLOP/s
const LIBRARIES = { cudnn: "cuDNN", cublas: "cuBLAS", onednn: "oneDNN", cutlass: "CUTLASS", tvm: "TVM", torch_compile: "torch.compile" };
const library = (name) => LIBRARIES[name] || name;
const geomean = (values) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// element("p", { class: "soft" }, "text", child, ...): functions among the attributes are listeners.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
const place = (id) => document.getElementById(id);

function section(id, heading, ...children) {
  place("main").append(element("section", { id, "aria-labelledby": `${id}-heading` },
    element("h2", { id: `${id}-heading` }, heading), ...children));
  place("sections").append(element("a", { href: `#${id}` }, heading));
}

function panel(id, heading, caption, ...children) {
  return element("div", { class: "panel" }, element("h3", {}, heading),
    caption ? element("p", { class: "caption", id: `${id}-caption` }, caption) : null, ...children,
    element("div", { id, class: "plot" }));
}

// A select with its label; options are [value, text].
function choice(label, options, chosen, change) {
  const select = element("select", { change: () => change(select.value) },
    ...options.map(([value, text]) => element("option", { value }, text)));
  select.value = chosen;
  return element("label", {}, label, select);
}

function say(text) { place("said").textContent = text; }

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied`);
}

function copyButton(label, what, text) {
  const button = element("button", { type: "button", click: async () => {
    await copy(text(), what);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}
