// The section of one problem: its facts, its curve, its axes and every config that was tried.
const PROBLEM_FIGURES = []; // those of the problem that is chosen

function problemSection() {
  const options = PROBLEMS.map((problem) => [String(problem.index), `${problem.name}${DATA.places.length > 1 ? ` on ${problem.target}` : ""}`]);
  options.sort((a, b) => compared(a[1], b[1]));
  const pick = choice("Problem", options, String(STATE.problem), (value) => choose(Number(value)));
  pick.querySelector("select").id = "pick";
  section("tuning", "One problem",
    element("div", { class: "tools" }, pick, element("label", { id: "solver-choice" })),
    element("div", { class: "panel" }, element("div", { id: "facts" })),
    ...(PROBLEMS.some((problem) => problem.tried) ? triedPanels() : []));
}

// What can be shown where an input has the configs that were tried.
function triedPanels() {
  PROBLEM_FIGURES.push("curve", "shares", "slices", "parallel");
  figure("curve", () => `Tuning curve of ${PROBLEMS[STATE.problem].name}: the best time so far over ${STATE.clock}.`, curveSpec);
  figure("shares", () => `Importance of the axes of ${STATE.solver} for ${PROBLEMS[STATE.problem].name}.`, sharesSpec);
  figure("slices", () => `Time over the values of each axis of ${STATE.solver}.`, slicesSpec);
  figure("parallel", () => `Parallel coordinates of every config of ${STATE.solver} that was tried.`, parallelSpec, (datum) => {
    if (datum.value === undefined) return;
    STATE.kept[datum.axis] = STATE.kept[datum.axis] === datum.value ? "" : datum.value;
    keepTools();
    draw("parallel");
  });
  return [
    element("div", { class: "pair" },
      panel("curve", "Tuning curve", "The best time so far. The dashed line is the mean best of as many of these configs in random order: below it, the search did better than chance. Records have the second of each check: configs of one second are in no order.",
        element("div", { class: "tools" }, choice("Over", [["trials", "configs"], ["seconds", "seconds"]], STATE.clock, (value) => { STATE.clock = value; draw("curve"); }))),
      panel("shares", "Axes that mattered", "How much of the variance of log time each axis explains alone, among the configs tried.")),
    panel("slices", "Slices", "Each config tried is a dot; the line is the best at each value of the axis. Microseconds."),
    panel("parallel", "Every config tried", "Each line is a config that works, the fastest tenth in orange, the slowest ones pale. Keep only some values of an axis below, or click a value.",
      element("div", { class: "tools", id: "keep" })),
    element("div", { class: "panel" }, element("h3", {}, "Configs"), element("div", { id: "configs" })),
  ];
}

function fact(name, value) {
  return value ? [element("div", {}, element("dt", {}, name), element("dd", {}, value))] : [];
}

function showFacts() {
  const p = PROBLEMS[STATE.problem];
  const rivals = p.rivals.map(([name, us, mode]) => `${library(name)} ${time(us)}${mode ? ` (${mode})` : ""}`).join(", ");
  const speed = rate(p.flops, p.us);
  place("facts").replaceChildren(
    element("h3", {}, p.name),
    element("div", { class: "command" }, element("code", {}, p.command), copyButton("Copy command", "The command", () => p.command)),
    ...(p.status === "ok" ? [] : [element("p", { class: "notice" }, `${p.status}: ${p.reason || "no reason is recorded"}`)]),
    element("dl", { class: "facts" },
      ...fact("Time", p.us ? `${time(p.us)}${p.spread ? ` ± ${time(p.spread)}` : ""}` : ""), ...fact("Other libraries", rivals),
      ...fact("Against the library", times(p.ratio)), ...fact("Against untuned", times(p.gain)),
      ...fact("Rate", speed ? (speed > 2000 ? `${number(speed / 1000)} TFLOP/s` : `${number(speed)} GFLOP/s`) : ""), ...fact("Roofline", percent(p.roof)),
      ...fact("Kernel", p.solver), ...fact("Target", p.target),
      ...fact("Search", p.search ? `${p.search.strategy}: ${plural(p.search.trials, "config")} in ${number(p.search.seconds)} s, ${p.search.ended}` : ""),
      ...fact("Error and its bound", p.error !== null && p.bound !== null ? `${number(p.error, 2)} of ${number(p.bound, 2)}` : ""), ...fact("Measured", p.date)),
    p.config ? element("p", { class: "soft" }, "Config: ", element("code", {}, p.config)) : "");
}

function solverTools() {
  const groups = groupsHeld();
  const options = groups.map((group) => [group.solver, `${group.solver} (${plural(group.us.length, "config")})`]);
  place("solver-choice").replaceChildren(...(options.length
    ? choice("Kernel", options, STATE.solver, (value) => { STATE.solver = value; STATE.kept = {}; keepTools(); drawAll(["shares", "slices", "parallel"]); }).childNodes : []));
}

function keepTools() {
  const group = groupHeld(), shares = new Map(group ? group.shares : []);
  const names = group ? varied(group).sort((a, b) => (shares.get(b) || 0) - (shares.get(a) || 0)).slice(0, 8) : [];
  const kept = group ? rowsOf(group).filter((row) => row.us && isKept(row)) : [];
  const best = kept.length ? Math.min(...kept.map((row) => row.us)) : null;
  const options = (name) => [["", "all"], ...[...new Set(group.axes[name])].filter((value) => value !== null).sort((a, b) => a - b).map((value) => [String(value), String(value)])];
  place("keep").replaceChildren(
    ...names.map((name) => choice(name, options(name), STATE.kept[name] || "", (value) => { STATE.kept[name] = value; keepTools(); draw("parallel"); })),
    element("span", { class: "soft", "aria-live": "polite" }, group ? `${plural(kept.length, "config")}${best ? `, the best takes ${time(best)}` : ""}` : ""));
}

function configTable() {
  const rows = groupsHeld().flatMap(rowsOf).sort((a, b) => (a.us || Infinity) - (b.us || Infinity));
  if (!rows.length) { place("configs").replaceChildren(element("p", { class: "none" }, "No input has the configs that were tried for this problem.")); return; }
  const table = new Table("Configs tried", [
    { name: "time (us)", number: true, value: (row) => row.us, text: (row) => row.us ? number(row.us, 4) : "failed", shade: (row) => row.us ? "" : "bad" },
    { name: "spread (us)", number: true, value: (row) => row.us ? row.spread : null, text: (row) => row.us ? number(row.spread, 2) : "" },
    { name: "kernel", value: (row) => row.solver }, { name: "checked after (s)", number: true, value: (row) => row.at, text: (row) => number(row.at) },
    { name: "config", value: (row) => row.config, clip: true }, { name: "note", value: (row) => row.untuned ? "untuned choice" : row.reason, wide: true },
  ], rows);
  place("configs").replaceChildren(table.element);
}

// Show one problem; from a click on a plot or in a table, move there too.
async function choose(index, moves = false) {
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  STATE.problem = index;
  STATE.kept = {};
  const groups = groupsHeld(), own = groups.find((group) => group.solver === PROBLEMS[index].solver);
  STATE.solver = own ? own.solver : groups.length ? groups[0].solver : "";
  place("pick").value = String(index);
  document.getElementById(`row-${index}`)?.classList.add("chosen");
  showFacts();
  if (PROBLEM_FIGURES.length) {
    solverTools();
    keepTools();
    configTable();
  }
  if (moves) place("tuning").scrollIntoView();
  await drawAll(PROBLEM_FIGURES);
}
