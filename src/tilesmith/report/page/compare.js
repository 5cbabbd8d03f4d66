// A page that compares two inputs: what became faster or slower beyond the spread.
function changesSpec() {
  const rows = DATA.changes.filter((row) => row.change).sort((a, b) => a.change - b.change).map((row, rank) => ({
    ...row, rank, one: 1, tip: { problem: row.name, before: time(row.before), after: time(row.after), "after over before": times(row.change), verdict: row.verdict } }));
  if (!rows.length) return "No problem has a time in both inputs.";
  const values = rows.map((row) => row.change), low = Math.min(.95, ...values) / 1.02, high = Math.max(1.05, ...values) * 1.02;
  const y = { field: "change", type: "quantitative", scale: { type: "log", domain: [low, high], nice: false }, axis: { title: "time after over before", format: "~g", tickCount: 6 } };
  return { height: 260, data: { values: rows }, layer: [
    { mark: { type: "bar" }, encoding: { x: { field: "rank", type: "ordinal", axis: null }, y, y2: { field: "one" },
      color: { field: "verdict", type: "nominal", legend: null, scale: { domain: ["faster", "same", "slower", "disturbed"], range: [color("accent"), color("line"), color("ink"), color("line")] } }, tooltip: TIP(rows) } },
    { data: { values: [{ change: 1 }] }, mark: { type: "rule", color: color("ink"), tooltip: false }, encoding: { y } },
  ] };
}

function scatterSpec() {
  const rows = DATA.changes.filter((row) => row.change).map((row) => ({ ...row, tip: { problem: row.name, before: time(row.before), after: time(row.after), "after over before": times(row.change), verdict: row.verdict } }));
  if (!rows.length) return "No problem has a time in both inputs.";
  const all = rows.flatMap((row) => [row.before, row.after]), domain = [Math.min(...all) / 1.2, Math.max(...all) * 1.2];
  const scale = { type: "log", domain, nice: false };
  const x = { field: "before", type: "quantitative", scale, axis: { title: "microseconds before", format: "~g", tickCount: 5 } };
  const y = { field: "after", type: "quantitative", scale, axis: { title: "microseconds after", format: "~g", tickCount: 5 } };
  return { height: 300, layer: [
    { data: { values: domain.map((value) => ({ before: value, after: value })) }, mark: { type: "line", color: color("soft"), strokeWidth: 1, tooltip: false }, encoding: { x, y } },
    { data: { values: rows }, mark: { type: "circle", size: 50, opacity: .8 }, encoding: { x, y,
      color: { field: "verdict", type: "nominal", legend: null, scale: { domain: ["faster", "same", "slower", "disturbed"], range: [color("accent"), color("line"), color("ink"), color("line")] } }, tooltip: TIP(rows) } },
  ] };
}

function comparePage() {
  section("changes", "What changed",
    element("ul", { class: "legend" }, element("li", { style: "--mark: var(--accent)" }, "faster"), element("li", { style: "--mark: var(--ink)" }, "slower"), element("li", { style: "--mark: var(--line)" }, "the same within the spread")),
    panel("every", "Every problem", "Time after over time before: below 1 became faster."),
    panel("scatter", "Before and after", "Each problem is a dot; below the line it became faster."));
  const shade = (row) => ({ faster: "ahead", slower: "bad", broken: "bad" })[row.verdict] || "";
  const table = new Table("Changes", [
    { name: "problem", value: (row) => row.name }, { name: "verdict", value: (row) => row.verdict, shade },
    { name: "after / before", number: true, value: (row) => row.change, text: (row) => times(row.change), shade },
    { name: "before (us)", number: true, value: (row) => row.before, text: (row) => number(row.before, 4) },
    { name: "after (us)", number: true, value: (row) => row.after, text: (row) => number(row.after, 4) },
    { name: "counts from (us)", number: true, value: (row) => row.limit, text: (row) => number(row.limit, 2) },
    { name: "kernel before", value: (row) => row.kernels[0] }, { name: "kernel after", value: (row) => row.kernels[1] },
    { name: "target", value: (row) => row.targets[0] === row.targets[1] ? row.targets[0] : row.targets.join(" -> ") },
    { name: "note", value: (row) => row.reason, wide: true }, { name: "key", value: (row) => row.key, clip: true },
  ], DATA.changes);
  section("table", "Table", table.element);
  figure("every", "Time after over time before, of every problem in order.", changesSpec);
  figure("scatter", "Time before and after of every problem.", scatterSpec);
}
