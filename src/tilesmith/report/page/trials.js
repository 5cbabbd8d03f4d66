// The configs tried: inflated after the rest is drawn, and looked at one problem at a time.
let TRIALS = { problems: [], reasons: [] };

async function inflate() {
  const letters = atob(place("trials").textContent), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  TRIALS = { problems: [], reasons: [], ...JSON.parse(text) };
}

// One row for each config of a group of columns.
function rowsOf(group) {
  const names = Object.keys(group.axes);
  return group.us.map((us, index) => ({
    us, solver: group.solver, spread: group.spread[index], at: group.at ? group.at[index] : null, untuned: index === group.untuned,
    reason: group.bad[index] < 0 ? "" : TRIALS.reasons[group.bad[index]], values: Object.fromEntries(names.map((name) => [name, group.axes[name][index]])),
    config: group.text ? group.text[index] : names.filter((name) => group.axes[name][index] !== null).map((name) => `${name}=${group.axes[name][index]}`).join(" "),
  }));
}
const groupsHeld = () => TRIALS.problems[STATE.problem] || [];
const groupHeld = () => groupsHeld().find((group) => group.solver === STATE.solver) || groupsHeld()[0];
const varied = (group) => Object.keys(group.axes).filter((name) => new Set(group.axes[name]).size > 1);

// The configs in the order in which they were checked, to the second.
function inOrder() {
  const rows = groupsHeld().flatMap(rowsOf);
  if (rows.some((row) => row.at === null)) return { rows: rows.filter((row) => row.us), ordered: false };
  rows.sort((a, b) => a.at - b.at);
  rows.forEach((row, index) => { row.count = index + 1; });
  return { rows, ordered: true };
}

// The mean of the best of n configs drawn at random of those tried: what a search without a strategy would reach.
function byChance(values) {
  const sorted = [...values].sort((a, b) => a - b), size = sorted.length, curve = [];
  for (let n = 1; n <= size; n = Math.max(n + 1, Math.floor(n * 1.05))) {
    let left = 1, mean = 0; // `left`: the chance that none of the configs before is among the n
    for (let k = 0; k <= size - n; k++) {
      const first = left * n / (size - k);
      mean += first * sorted[k];
      left -= first;
    }
    curve.push({ n, us: mean });
  }
  if (size && curve[curve.length - 1].n !== size) curve.push({ n: size, us: sorted[0] });
  return curve;
}

function curveSpec() {
  const { rows, ordered } = inOrder(), good = rows.filter((row) => row.us), problem = PROBLEMS[STATE.problem];
  if (!good.length) return problem && problem.tried ? "No config of this problem works." : "No input has the configs that were tried for this problem.";
  const seconds = STATE.clock === "seconds";
  if (seconds && !ordered) return "These records do not say when each config was checked; searches of this version note it.";
  const at = (row) => seconds ? row.at : row.count, best = Math.min(...good.map((row) => row.us));
  const dots = ordered ? good.map((row) => ({ x: at(row), us: row.us, tip: { kernel: row.solver, config: row.config, time: time(row.us) } })) : [];
  const steps = [];
  if (ordered) {
    let least = Infinity;
    for (const row of good) if (row.us < least) { least = row.us; steps.push({ x: at(row), us: least }); }
    steps.push({ x: at(rows[rows.length - 1]), us: least });
  }
  const chance = seconds ? [] : byChance(good.map((row) => row.us)).map(({ n, us }) => ({ x: n, us }));
  const untuned = rows.find((row) => row.untuned && row.us);
  const marks = [
    ...(untuned ? [{ us: untuned.us, text: `untuned ${time(untuned.us)}` }] : []),
    ...(problem.rival ? [{ us: problem.rival.us, text: `${library(problem.rival.name)} ${time(problem.rival.us)}` }] : []),
  ];
  const sorted = good.map((row) => row.us).sort((a, b) => a - b);
  const top = Math.max(Math.min(best * 6, sorted[Math.floor(sorted.length * .9)]), best * 1.15, ...marks.map((mark) => Math.min(mark.us * 1.05, best * 8)), chance.length ? Math.min(chance[0].us, best * 4) : 0);
  const low = Math.min(best, ...marks.map((mark) => mark.us)) / 1.04, apart = Math.log(top / low) * 15 / 250;
  // Beside the plot, and not on each other.
  const beside = marks.map((mark) => ({ text: mark.text, us: Math.min(mark.us, top) })).sort((a, b) => a.us - b.us);
  beside.forEach((mark, index) => { if (index) mark.us = Math.max(mark.us, beside[index - 1].us * Math.exp(apart)); });
  const y = { field: "us", type: "quantitative", scale: { type: "log", domain: [low, top], nice: false, clamp: true }, axis: { title: "microseconds", format: "~g", tickCount: 5 } };
  const x = { field: "x", type: "quantitative", scale: { zero: seconds, nice: false, domainMin: seconds ? 0 : 1 }, axis: { title: seconds ? "seconds of searching" : "configs checked", tickMinStep: 1, grid: false } };
  return {
    height: 250,
    layer: [
      { data: { values: dots.filter((dot) => dot.us <= top) }, mark: { type: "circle", size: 20, color: color("rival"), opacity: .6, clip: true }, encoding: { x, y, tooltip: dots.length ? TIP(dots) : null } },
      { data: { values: chance }, mark: { type: "line", color: color("rival"), strokeDash: [5, 4], strokeWidth: 1.5, tooltip: false, clip: true }, encoding: { x, y } },
      { data: { values: marks }, mark: { type: "rule", color: color("line"), tooltip: false, clip: true, strokeWidth: 1.5 }, encoding: { y } },
      { data: { values: steps }, mark: { type: "line", interpolate: "step-after", color: color("accent"), strokeWidth: 2.4, tooltip: false }, encoding: { x, y } },
      { data: { values: beside }, mark: { type: "text", align: "left", baseline: "middle", dx: 6, color: color("soft"), tooltip: false }, encoding: { y, x: { value: "width" }, text: { field: "text" } } },
    ],
  };
}

function sharesSpec() {
  const group = groupHeld();
  if (!group) return "No input has the configs that were tried for this problem.";
  const rows = group.shares.map(([axis, share]) => ({ axis, share, text: percent(share), tip: { axis, "share of the variance": percent(share) } })).slice(0, 12);
  if (!rows.length) return "Too few configs of this kernel were tried to say which axes mattered.";
  const y = { field: "axis", type: "nominal", sort: rows.map((row) => row.axis), axis: { title: null, ticks: false, domain: false, labelLimit: 150 } };
  const x = { field: "share", type: "quantitative", scale: { domain: [0, Math.min(1, Math.max(.1, rows[0].share * 1.25))], nice: false }, axis: { title: "share of the variance of log time", format: ".0%", tickCount: 4 } };
  return { height: 21 * rows.length, data: { values: rows }, layer: [
    { mark: { type: "bar", height: 11, color: color("accent") }, encoding: { y, x, tooltip: TIP(rows) } },
    { mark: { type: "text", align: "left", dx: 5, color: color("soft"), tooltip: false }, encoding: { y, x, text: { field: "text" } } },
  ] };
}

function slicesSpec(width) {
  const group = groupHeld();
  if (!group) return "No input has the configs that were tried for this problem.";
  const good = rowsOf(group).filter((row) => row.us), shares = new Map(group.shares);
  const axes = varied(group).sort((a, b) => (shares.get(b) || 0) - (shares.get(a) || 0)).slice(0, 6);
  if (!axes.length || !good.length) return "Every config tried has the same values.";
  const columns = Math.min(axes.length, width < 520 ? 1 : width < 860 ? 2 : 3);
  const each = Math.floor((width - columns * 62) / columns), best = Math.min(...good.map((row) => row.us));
  const y = { field: "us", type: "quantitative", scale: { type: "log", domain: [best / 1.05, Math.max(...good.map((row) => row.us)) * 1.05], nice: false }, axis: { title: null, format: "~g", tickCount: 4 } };
  return {
    autosize: { type: "pad" }, width: undefined, columns, spacing: { row: 22, column: 18 },
    concat: axes.map((axis) => {
      const dots = good.map((row) => ({ value: row.values[axis], us: row.us, tip: { [axis]: row.values[axis], time: time(row.us), config: row.config } }));
      const x = { field: "value", type: "ordinal", sort: [...new Set(dots.map((dot) => dot.value))].sort((a, b) => a - b), axis: { title: null, labelAngle: 0, grid: false } };
      return { title: axis, width: each, height: 120, data: { values: dots }, layer: [
        { mark: { type: "point", filled: true, size: 22, opacity: .5, color: color("rival") }, encoding: { x, y, tooltip: TIP(dots) } },
        { mark: { type: "line", point: { filled: true, size: 34, color: color("accent") }, color: color("accent"), strokeWidth: 1.8, tooltip: false }, encoding: { x, y: { ...y, aggregate: "min" } } },
      ] };
    }),
  };
}

const isKept = (row) => Object.entries(STATE.kept).every(([axis, value]) => value === "" || String(row.values[axis]) === value);

function parallelSpec(width) {
  const group = groupHeld();
  if (!group) return "No input has the configs that were tried for this problem.";
  const shares = new Map(group.shares), all = rowsOf(group), good = all.filter((row) => row.us);
  if (!good.length) return "No config of this kernel works.";
  const most = Math.max(2, Math.floor(width / 74) - 1);
  const names = varied(group).sort((a, b) => (shares.get(b) || 0) - (shares.get(a) || 0)).slice(0, most);
  if (!names.length) return "Every config tried has the same values.";
  const axes = [...names, "time"], best = Math.min(...good.map((row) => row.us)), worst = Math.max(...good.map((row) => row.us));
  const scaleOf = Object.fromEntries(names.map((name) => {
    const values = [...new Set(all.map((row) => row.values[name]).filter((value) => value !== null && value !== undefined))].sort((a, b) => a - b);
    return [name, { values, at: (value) => values.length === 1 ? .5 : values.indexOf(value) / (values.length - 1) }];
  }));
  const timeAt = (us) => worst > best ? Math.log(us / best) / Math.log(worst / best) : 0;
  const lines = [], order = [...good].sort((a, b) => b.us - a.us);
  order.forEach((row, id) => {
    const kept = isKept(row), tip = { time: time(row.us), "over the best": times(row.us / best), config: row.config };
    for (const axis of axes) lines.push({ id, axis, kept, y: axis === "time" ? timeAt(row.us) : scaleOf[axis].at(row.values[axis]), slow: 1 - id / Math.max(1, order.length - 1), tip });
  });
  const ticks = axes.flatMap((axis) => axis === "time"
    ? [{ axis, y: 0, text: time(best) }, ...(worst > best * 1.05 ? [{ axis, y: 1, text: time(worst) }] : [])]
    : scaleOf[axis].values.filter((_, index, list) => list.length <= 12 || index % Math.ceil(list.length / 12) === 0 || index === list.length - 1).map((value) => ({ axis, y: scaleOf[axis].at(value), text: String(value), value: String(value) })));
  const x = { field: "axis", type: "nominal", sort: axes, scale: { type: "point", padding: .35 },
    axis: { title: null, orient: "top", labelAngle: axes.some((name) => name.length * 7.2 > width / axes.length) ? -28 : 0, labelLimit: 160, labelOverlap: false, domain: false, ticks: false, grid: true, gridColor: color("line") } };
  const y = { field: "y", type: "quantitative", scale: { domain: [-.03, 1.03], nice: false }, axis: null };
  const some = lines.some((line) => !line.kept);
  return {
    height: 330, data: { values: lines },
    layer: [
      { transform: [{ filter: "!datum.kept" }], mark: { type: "line", strokeWidth: .8, opacity: .25, color: color("line"), tooltip: false }, encoding: { x, y, detail: { field: "id" } } },
      { transform: [{ filter: "datum.kept" }], mark: { type: "line", strokeWidth: some ? 1.6 : 1.2, opacity: .55 }, encoding: { x, y, detail: { field: "id" }, order: { field: "axis", sort: axes },
        color: { field: "slow", type: "quantitative", legend: null, scale: { interpolate: "rgb", domain: [0, .1, .12, 1], range: [color("accent"), color("accent"), color("rival"), color("line")] } }, tooltip: TIP(lines) } },
      { data: { values: ticks }, mark: { type: "text", fontSize: 11, color: color("panel"), stroke: color("panel"), strokeWidth: 6, tooltip: false }, encoding: { x, y, text: { field: "text" } } },
      { data: { values: ticks }, mark: { type: "text", fontSize: 11, color: color("ink"), cursor: "pointer", tooltip: false }, encoding: { x, y, text: { field: "text" } } },
    ],
  };
}
