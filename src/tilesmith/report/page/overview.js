// The plots of all problems: the roofline, ratios by group, and every problem in order.
const PROBLEMS = DATA.problems || [];
PROBLEMS.forEach((problem, index) => { problem.index = index; });
const STATE = { target: "", metric: "ratio", group: "lists", problem: 0, solver: "", clock: "trials", kept: {} };
const METRICS = {
  ratio: { name: "against the other library", title: "times as fast as the other library", at: (p) => p.ratio, zero: 1 },
  gain: { name: "against the untuned choice", title: "times as fast as the untuned choice", at: (p) => p.gain, zero: 1 },
  roof: { name: "share of the roofline", title: "share of the roofline", at: (p) => p.roof, zero: null },
};
const GROUPS = { lists: "list", family: "kernel family", operation: "operation", direction: "direction", dtype: "element type", target: "target" };
const groupsOf = (problem, name) => (name === "lists" ? problem.lists : [problem[name]]).filter(Boolean);
const metricsHere = () => Object.keys(METRICS).filter((name) => PROBLEMS.some((p) => METRICS[name].at(p)));
const groupsHere = () => Object.keys(GROUPS).filter((name) => PROBLEMS.some((p) => groupsOf(p, name).length));
const detail = (problem) => ({
  index: problem.index, problem: problem.name, kernel: problem.solver, time: time(problem.us),
  ...(problem.rival ? { [library(problem.rival.name)]: time(problem.rival.us), ratio: times(problem.ratio) } : {}),
  ...(problem.roof ? { roofline: percent(problem.roof) } : {}),
});
const TIP = (rows) => {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.tip)))].filter((name) => name !== "index");
  return names.map((name) => ({ field: `tip.${name.replaceAll(".", "\\.")}`, title: name, type: "nominal" }));
};

function rooflineSpec(width) {
  const target = STATE.target, place_ = DATA.places.find((each) => each.target === target) || { peaks: {}, bandwidth: {} };
  const here = PROBLEMS.filter((p) => p.target === target && p.us && p.ops && p.bytes);
  if (!here.length) return "No problem of this target has a time.";
  const most = Math.max(...here.map((p) => p.ops / p.us)) * 1e6, unit = most > 2e12 ? 1e12 : 1e9;
  const points = here.flatMap((p) => [
    ...(p.rival ? [{ who: "rival", x: p.ops / p.bytes, y: p.ops / p.rival.us * 1e6 / unit, tip: detail(p) }] : []),
    { who: "ours", x: p.ops / p.bytes, y: p.ops / p.us * 1e6 / unit, tip: detail(p) },
  ]);
  const lowest = Math.min(...points.map((p) => p.x)), highest = Math.max(...points.map((p) => p.x));
  const from = 10 ** Math.floor(Math.log10(lowest)), to = 10 ** Math.ceil(Math.log10(highest * 1.05));
  const peaks = [...new Map(here.filter((p) => p.peak).map((p) => [p.peak, p.dtype])).entries()];
  const [slopes, roofs] = [Object.entries(place_.bandwidth), []];
  for (const [peak, kind] of peaks) {
    for (const [memory, speed] of slopes) {
      for (let step = 0; step <= 60; step++) {
        const x = from * (to / from) ** (step / 60);
        roofs.push({ roof: `${kind} ${memory}`, memory, x, y: Math.min(peak, x * speed) / unit });
      }
      const knee = peak / speed;
      if (knee > from && knee < to) roofs.push({ roof: `${kind} ${memory}`, memory, x: knee, y: peak / unit });
    }
  }
  roofs.sort((a, b) => a.x - b.x);
  // Several element types may share a peak: one label for each.
  const names = peaks.map(([peak, kind]) => {
    const kinds = [...new Set(here.filter((p) => p.peak === peak).map((p) => p.dtype))].join(", ");
    return { x: to, y: peak / unit, text: `${kinds || kind} peak ${number(peak / unit)}` };
  });
  const low = Math.min(...points.map((p) => p.y)), high = Math.max(...points.map((p) => p.y), ...names.map((n) => n.y));
  const x = { field: "x", type: "quantitative", scale: { type: "log", domain: [from, to], nice: false }, axis: { title: "operations for each byte moved", format: "~g", grid: true, tickCount: 6 } };
  const y = { field: "y", type: "quantitative", scale: { type: "log", domain: [low / 1.5, high * 1.6], nice: false, clamp: true }, axis: { title: unit === 1e12 ? "TFLOP/s" : "GFLOP/s", format: "~g", grid: true, tickCount: 6 } };
  return {
    height: width < 560 ? 300 : 400,
    layer: [
      { data: { values: roofs }, mark: { type: "line", color: color("soft"), strokeWidth: 1.3, tooltip: false, clip: true },
        encoding: { x, y, detail: { field: "roof" }, strokeDash: { field: "memory", legend: null, scale: { domain: ["memory", "cache"], range: [[1, 0], [4, 4]] } } } },
      { data: { values: names }, mark: { type: "text", align: "right", dx: -4, dy: -8, color: color("soft"), tooltip: false },
        encoding: { x, y, text: { field: "text" } } },
      { data: { values: points.filter((p) => p.who === "rival") }, mark: { type: "point", filled: false, size: width < 560 ? 22 : 46, color: color("rival"), strokeWidth: 1.4, opacity: .8, cursor: "pointer" }, encoding: { x, y, tooltip: TIP(points) } },
      { data: { values: points.filter((p) => p.who === "ours") }, mark: { type: "circle", size: width < 560 ? 22 : 46, color: color("accent"), opacity: .85, cursor: "pointer" }, encoding: { x, y, tooltip: TIP(points) } },
    ],
  };
}

function groupRows() {
  const { at } = METRICS[STATE.metric], rows = new Map();
  for (const problem of PROBLEMS) {
    const value = at(problem);
    if (value && problem.status === "ok") for (const name of groupsOf(problem, STATE.group)) rows.set(name, [...(rows.get(name) || []), problem]);
  }
  return [...rows].map(([name, members]) => ({ name, members, mean: geomean(members.map(at)) })).sort((a, b) => b.mean - a.mean);
}

function groupsSpec(width) {
  const { at, zero, title } = METRICS[STATE.metric], rows = groupRows();
  if (!rows.length) return "No input says this of any problem.";
  const named = (row) => `${row.name}   ${zero ? times(row.mean) : percent(row.mean)}`;
  const labels = rows.map((row) => ({ group: named(row), mean: row.mean, zero: zero || 0,
    tip: { group: row.name, problems: row.members.length, mean: zero ? times(row.mean) : percent(row.mean) } }));
  const dots = rows.flatMap((row) => row.members.map((p) => ({ group: named(row), value: at(p), tip: detail(p) })));
  const values = [...dots.map((dot) => dot.value), ...(zero ? [1] : [])];
  const domain = zero ? [Math.min(...values) / 1.06, Math.max(...values) * 1.06] : [0, Math.max(1, ...values)];
  const scale = zero ? { type: "log", domain, nice: false } : { domain, nice: false };
  const x = { type: "quantitative", scale, axis: { title, format: zero ? "~g" : ".0%", grid: true, tickCount: 5,
    ...(zero ? { values: [.1, .2, .3, .5, .7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100].filter((v) => v >= domain[0] && v <= domain[1]) } : {}) } };
  const y = { field: "group", type: "nominal", sort: rows.map(named), axis: { title: null, labelLimit: width < 560 ? 180 : 260, labelColor: color("ink"), ticks: false, domain: false } };
  return {
    height: 30 * rows.length,
    layer: [
      { data: { values: labels }, mark: { type: "bar", height: 12, color: color("accent"), opacity: .38 }, encoding: { y, x: { ...x, field: "mean" }, x2: { field: "zero" }, tooltip: TIP(labels) } },
      { data: { values: dots }, mark: { type: "tick", thickness: 1.6, size: 16, opacity: .55, color: color("ink"), cursor: "pointer" }, encoding: { y, x: { ...x, field: "value" }, tooltip: TIP(dots) } },
      ...(zero ? [{ data: { values: [{ one: 1 }] }, mark: { type: "rule", color: color("soft"), tooltip: false }, encoding: { x: { ...x, field: "one" } } }] : []),
      { data: { values: labels }, mark: { type: "point", shape: "diamond", filled: true, size: 95, color: color("accent"), opacity: 1 }, encoding: { y, x: { ...x, field: "mean" }, tooltip: TIP(labels) } },
    ],
  };
}

function everySpec() {
  const { at, zero, title } = METRICS[STATE.metric];
  const rows = PROBLEMS.filter((p) => at(p) && p.status === "ok").sort((a, b) => at(a) - at(b)).map((p, rank) => ({
    rank: rank + 1, value: at(p), zero: zero || 0, ahead: zero ? at(p) >= 1 : true, tip: detail(p) }));
  if (!rows.length) return "No input says this of any problem.";
  const values = rows.map((row) => row.value);
  const domain = zero ? [Math.min(1 / 1.05, ...values) / 1.04, Math.max(1.05, ...values) * 1.04] : [0, Math.max(1, ...values)];
  const y = { field: "value", type: "quantitative", scale: zero ? { type: "log", domain, nice: false } : { domain, nice: false },
    axis: { title, format: zero ? "~g" : ".0%", ...(zero ? { values: [.1, .2, .5, .7, 1, 1.5, 2, 3, 5, 10, 20, 50].filter((v) => v >= domain[0] && v <= domain[1]) } : {}) } };
  return {
    height: 230, data: { values: rows },
    layer: [
      { mark: { type: "bar", cursor: "pointer" }, encoding: { x: { field: "rank", type: "ordinal", axis: null, scale: { paddingInner: rows.length > 120 ? .08 : .2 } }, y, y2: { field: "zero" },
        color: { field: "ahead", type: "nominal", legend: null, scale: { domain: [true, false], range: [color("accent"), color("rival")] } }, tooltip: TIP(rows) } },
      ...(zero ? [{ data: { values: [{ value: 1 }] }, mark: { type: "rule", color: color("ink"), tooltip: false }, encoding: { y } }] : []),
    ],
  };
}

function axesSpec(width) {
  const rows = DATA.importance.filter(([, , share]) => share >= .005);
  if (!rows.length) return "Too few configs were tried to say which axes mattered.";
  const best = new Map(), most = Math.max(.2, ...rows.map(([, , share]) => share));
  for (const [, axis, share] of rows) best.set(axis, Math.max(share, best.get(axis) || 0));
  const columns = [...best].sort((a, b) => b[1] - a[1]).map(([axis]) => axis).slice(0, Math.max(5, Math.floor((width - 160) / 58)));
  const cells = rows.filter(([, axis]) => columns.includes(axis)).map(([family, axis, share, problems]) => ({
    family, axis, share, text: share >= .01 ? `${Math.round(100 * share)}` : "", tip: { family, axis, "share of the variance": percent(share), problems } }));
  const dark = document.documentElement.dataset.theme === "dark";
  return {
    height: 30 * new Set(cells.map((cell) => cell.family)).size, data: { values: cells },
    encoding: { y: { field: "family", type: "nominal", axis: { title: null, labelLimit: 160, ticks: false, domain: false } },
      x: { field: "axis", type: "nominal", sort: columns, axis: { title: null, orient: "top", labelAngle: -38, labelLimit: 150, ticks: false, domain: false, labelOverlap: false } } },
    layer: [
      { mark: { type: "rect", cornerRadius: 3 }, encoding: { color: { field: "share", type: "quantitative", legend: null, scale: { interpolate: "rgb", domain: [0, most], range: [color("grid"), color("accent")], clamp: true } }, tooltip: TIP(cells) } },
      { mark: { type: "text", fontSize: 11.5, tooltip: false }, encoding: { text: { field: "text" }, color: { condition: { test: `datum.share > ${most / 2}`, value: dark ? "#14100d" : "#ffffff" }, value: color("ink") } } },
    ],
  };
}
