// Puts the page together.
function summarySection() {
  place("main").append(element("h1", {}, DATA.title), element("p", { class: "soft" }, DATA.made));
  const figures = DATA.figures.map((each, index) => element("div", { class: each.value.endsWith("x") ? "ours" : null },
    element("dt", {}, element("span", {}, each.label), element("span", { class: "value" }, each.value)), element("dd", {}, each.note || "")));
  section("summary", "Summary", element("dl", { class: "figures" }, ...figures),
    element("div", { class: "words" }, ...DATA.words.map((text) => element("p", {}, text))),
    ...DATA.warnings.map((text) => element("p", { class: "notice" }, text)));
}

function overviewSection() {
  const targets = [...new Set(PROBLEMS.map((p) => p.target))], metrics = metricsHere(), groups = groupsHere();
  const count = (target) => PROBLEMS.filter((p) => p.target === target).length;
  STATE.target = [...targets].sort((a, b) => count(b) - count(a))[0];
  STATE.metric = metrics[0] || "ratio";
  STATE.group = groups.find((name) => new Set(PROBLEMS.flatMap((p) => groupsOf(p, name))).size > 1) || groups[0] || "family";
  const redraw = () => drawAll(["groups", "every"]);
  const rivals = PROBLEMS.some((p) => p.rival);
  section("speed", "How fast",
    panel("roofline", "Roofline", "Each problem by what it computes for each byte, and how fast. The line is what the machine allows at most: its memory on the left, its arithmetic on the right. Click a problem to see how it was tuned.",
      element("div", { class: "tools" }, targets.length > 1 ? choice("Target", targets.map((name) => [name, name]), STATE.target, (value) => { STATE.target = value; draw("roofline"); }) : null,
        element("ul", { class: "legend", style: "margin: 0" }, element("li", { style: "--mark: var(--accent)" }, "ours"), ...(rivals ? [element("li", { class: "hollow" }, "other library")] : []),
          element("li", { class: "line", style: "--mark: var(--soft)" }, "what the machine allows"), ...(DATA.places.some((each) => each.bandwidth.cache) ? [element("li", { class: "dashed" }, "from cache")] : [])))),
    element("div", { class: "tools" },
      metrics.length ? choice("Show", metrics.map((name) => [name, METRICS[name].name]), STATE.metric, (value) => { STATE.metric = value; redraw(); }) : null,
      choice("by", groups.map((name) => [name, GROUPS[name]]), STATE.group, (value) => { STATE.group = value; draw("groups"); })),
    panel("groups", "By group", "Each mark is a problem; the diamond is the geometric mean of the group. Disturbed problems are left out."),
    panel("every", "Every problem", "In order, the least first. Orange: ours is faster; grey: the other is."));
  const open = (datum) => { const tip = datum.tip; if (tip && tip.index !== undefined) choose(tip.index, true); };
  figure("roofline", () => `Roofline of ${STATE.target}: speed of each problem over its operations for each byte.`, rooflineSpec, open);
  figure("groups", () => `Problems ${METRICS[STATE.metric].name}, by ${GROUPS[STATE.group]}. The table of problems has the numbers.`, groupsSpec, open);
  figure("every", () => `Every problem ${METRICS[STATE.metric].name}, in order. The table of problems has the numbers.`, everySpec, open);
}

function problemsSection() {
  const shade = (row) => ({ faster: "ahead", slower: "bad" })[row.standing] || "";
  const several = DATA.places.length > 1;
  const columns = [
    { name: "problem", value: (row) => row.name, cell: (row) => element("a", { href: `#p${row.index}` }, row.name) },
    { name: "time (us)", number: true, value: (row) => row.us, text: (row) => row.us ? number(row.us, 4) : row.status, shade: (row) => row.us ? "" : "bad" },
    { name: "other library (us)", number: true, value: (row) => row.rival && row.rival.us, text: (row) => row.rival ? number(row.rival.us, 4) : "" },
    { name: "library", value: (row) => row.rival && library(row.rival.name) },
    { name: "against it", number: true, value: (row) => row.ratio, text: (row) => times(row.ratio), shade },
    { name: "lost (us)", number: true, value: (row) => row.rival && row.us ? Math.max(0, row.us - row.rival.us) : null, text: (row) => row.rival && row.us > row.rival.us ? number(row.us - row.rival.us) : "" },
    { name: "against untuned", number: true, value: (row) => row.gain, text: (row) => times(row.gain) },
    { name: "roofline", number: true, value: (row) => row.roof, text: (row) => percent(row.roof) },
    { name: "GFLOP/s", number: true, value: (row) => rate(row.flops, row.us), text: (row) => number(rate(row.flops, row.us)) },
    { name: "kernel", value: (row) => row.solver }, { name: "list", value: (row) => row.lists.join(", ") },
    { name: "configs", number: true, value: (row) => row.tried || null }, { name: "failed", number: true, value: (row) => row.failed || null },
    { name: "state", value: (row) => row.status, shade: (row) => row.status === "ok" ? "" : "bad" },
    ...(several ? [{ name: "target", value: (row) => row.target }] : []),
    { name: "config", value: (row) => row.config, clip: true }, { name: "command", value: (row) => row.command, clip: true },
  ].filter((column) => ["problem", "time (us)"].includes(column.name) || PROBLEMS.some((row) => column.value(row)));
  const sort = columns.findIndex((column) => column.name === (PROBLEMS.some((p) => p.ratio) ? "against it" : "problem"));
  const table = new Table("Problems", columns, PROBLEMS.slice(), { sort, least: 2, rowId: (row) => `row-${row.index}` });
  section("problems", "Problems", table.element);
}

function failuresSection() {
  if (!DATA.failures.length) { section("failures", "Failures", element("p", { class: "soft" }, "No config failed, and every problem has a kernel.")); return; }
  const links = (row) => {
    const first = row.problems.slice(0, 3).flatMap((index, at) => [at ? ", " : "", element("a", { href: `#p${index}` }, PROBLEMS[index].name)]);
    return element("span", {}, ...first, row.problems.length > 3 ? ` and ${row.problems.length - 3} more` : "");
  };
  const table = new Table("Failures", [
    { name: "times", number: true, value: (row) => row.count }, { name: "why", value: (row) => row.reason, wide: true },
    { name: "kernels", value: (row) => row.solvers.join(", "), wide: true },
    { name: "problems", value: (row) => row.problems.map((index) => PROBLEMS[index].name).join("; "), cell: links, wide: true },
  ], DATA.failures, { sort: 0, descending: true });
  section("failures", "Failures", element("p", { class: "caption" }, "A config that fails is recorded with its reason and can never be chosen."), table.element);
}

function machineSection() {
  const facts = (pairs) => new Table("Facts", [{ name: "what", value: (row) => row[0] }, { name: "is", value: (row) => row[1], wide: true }], pairs).element;
  const peak = ([name, value]) => [`${name} peak`, value > 2e12 ? `${number(value / 1e12)} TFLOP/s` : `${number(value / 1e9)} GFLOP/s`];
  const speed = ([name, value]) => [`${name} bandwidth`, `${number(value / 1e9)} GB/s`];
  section("machine", "Machine and inputs",
    ...DATA.places.flatMap((each) => [element("div", { class: "panel" }, element("h3", {}, each.target),
      facts([...each.facts, ...Object.entries(each.peaks).map(peak), ...Object.entries(each.bandwidth).map(speed)]))]),
    element("div", { class: "panel" }, element("h3", {}, "Inputs"), new Table("Inputs", [
      { name: "input", value: (row) => row.name, wide: true }, { name: "kind", value: (row) => row.kind },
      { name: "problems", number: true, value: (row) => row.problems }, { name: "configs", number: true, value: (row) => row.trials },
    ], DATA.sources).element),
    element("div", { class: "panel" }, element("h3", {}, "This page"),
      element("div", { class: "command" }, element("code", {}, DATA.command), copyButton("Copy command", "The command", () => DATA.command))));
}

function fromAddress() {
  const found = /^#p(\d+)$/.exec(location.hash);
  if (found && PROBLEMS[Number(found[1])]) choose(Number(found[1]), true);
}

async function start() {
  watchPage();
  summarySection();
  if (DATA.kind === "compare") {
    comparePage();
    machineSection();
    await drawAll();
  } else {
    overviewSection();
    problemsSection();
    problemSection();
    if (DATA.importance.length) {
      section("axes", "Axes", panel("axes-plot", "Axes that mattered, by kernel family", "Percent of the variance of log time that each axis explains alone, averaged over the problems where the family was searched. Empty: under one percent, or not varied."));
      figure("axes-plot", "Importance of each axis for each kernel family.", axesSpec);
    }
    failuresSection();
    machineSection();
    await inflate();
    // The problem that a reader looks at first: the one that gained most, or the one with most configs.
    const first = [...PROBLEMS].sort((a, b) => (b.gain || 0) - (a.gain || 0) || b.tried - a.tried)[0];
    addEventListener("hashchange", fromAddress);
    await Promise.all([choose(first.index), drawAll([...FIGURES.keys()].filter((id) => !PROBLEM_FIGURES.includes(id)))]);
    fromAddress();
  }
  document.body.dataset.ready = "yes";
}
start();
