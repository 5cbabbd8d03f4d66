// Plots: each is a function of the page's state that gives a Vega-Lite specification, drawn again when that changes.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function theme() {
  const [ink, soft, line, grid, accent] = ["ink", "soft", "line", "grid", "accent"].map(color);
  return {
    background: null, font: "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif",
    view: { stroke: null }, mark: { color: accent, tooltip: true },
    axis: { labelColor: soft, titleColor: soft, gridColor: grid, domainColor: line, tickColor: line, labelFontSize: 12,
      titleFontSize: 12.5, titleFontWeight: 500, titlePadding: 10, labelPadding: 5, labelOverlap: "greedy", labelSeparation: 6 },
    header: { labelColor: ink, titleColor: soft, labelFontSize: 12.5, labelFontWeight: 600 },
    title: { color: ink, fontSize: 12.5, fontWeight: 600, anchor: "start", offset: 8 },
    legend: { labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 12.5, titleFontWeight: 500 },
    text: { color: ink, fontSize: 12 }, range: { ramp: [grid, accent], heatmap: [grid, accent] },
  };
}

const FIGURES = new Map(); // id -> { spec, label, view, ready }

// `spec(width)` gives the specification, or a text that says why there is nothing to draw.
function figure(id, label, spec, click = null) {
  FIGURES.set(id, { spec, label, click, view: null });
}

async function draw(id) {
  const drawn = FIGURES.get(id), at = place(id);
  const turn = drawn.turn = (drawn.turn || 0) + 1;
  const width = Math.max(240, at.clientWidth);
  const spec = drawn.spec(width);
  drawn.width = width;
  if (drawn.view) { drawn.view.finalize(); drawn.view = null; }
  at.dataset.drawn = "no";
  if (typeof spec === "string") {
    at.replaceChildren(element("p", { class: "none" }, spec));
    at.removeAttribute("role");
    at.removeAttribute("aria-label");
    at.dataset.drawn = "empty";
    return;
  }
  // A layer without data has a scale without an extent, of which Vega warns.
  if (spec.layer) spec.layer = spec.layer.filter((layer) => !layer.data || layer.data.values.length);
  const inside = element("div", { "aria-hidden": "true" });
  at.replaceChildren(inside);
  const label = typeof drawn.label === "function" ? drawn.label() : drawn.label;
  at.setAttribute("role", "img");
  at.setAttribute("aria-label", label);
  const made = await vegaEmbed(inside, { $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    autosize: { type: "fit-x", contains: "padding" }, width, ...spec },
  { actions: false, renderer: "canvas", config: theme(), tooltip: { disableDefaultStyle: true }, defaultStyle: false });
  if (turn !== drawn.turn) { made.finalize(); return; }
  drawn.view = made.view;
  drawn.finalize = made.finalize;
  if (drawn.click) {
    made.view.addEventListener("click", (_, item) => {
      const datum = item && item.datum ? item.datum : null;
      if (datum) drawn.click(datum.datum || datum);
    });
  }
  at.dataset.drawn = "yes";
}

const drawAll = (ids = [...FIGURES.keys()]) => Promise.all(ids.map(draw));

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const button = place("theme");
  button.textContent = name === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", name === "dark" ? "Light colours" : "Dark colours");
  button.removeAttribute("aria-pressed");
}

function watchPage() {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  setTheme(document.documentElement.dataset.theme);
  place("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    drawAll();
  });
  scheme.addEventListener("change", () => { setTheme(scheme.matches ? "dark" : "light"); drawAll(); });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawAll([...FIGURES.keys()].filter((id) => {
      return Math.max(240, place(id).clientWidth) !== FIGURES.get(id).width;
    })), 150);
  });
}
