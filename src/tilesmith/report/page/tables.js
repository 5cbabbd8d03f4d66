// Tables that sort, filter, and copy as CSV. A column: { name, text(row), value(row), number, wide, cell(row) }.
const csvCell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  // A cell that begins like a formula would be run by a spreadsheet.
  const safe = /^[=+@\t\r]/.test(text) || (/^-/.test(text) && isNaN(Number(text))) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
const csvOf = (columns, rows) =>
  [columns.map((each) => each.name), ...rows.map((row) => columns.map((each) => each.value(row)))]
    .map((cells) => cells.map(csvCell).join(",")).join("\n") + "\n";

function compared(a, b) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

class Table {
  constructor(label, columns, rows, { sort = null, descending = false, rowId = null, least = 8 } = {}) {
    Object.assign(this, { label, columns, rows, sort, descending, rowId, shown: rows });
    this.body = element("tbody");
    this.heads = columns.map((column, index) => element("th", { scope: "col", class: column.number ? "number" : null },
      element("button", { type: "button", click: () => this.sortBy(index) }, column.name)));
    this.count = element("span", { class: "soft", "aria-live": "polite" });
    this.filter = element("input", { type: "search", placeholder: "words to look for", input: () => this.show() });
    const tools = element("div", { class: "tools" },
      rows.length >= least ? element("label", {}, "Filter", this.filter) : null, this.count, element("span", { class: "grow" }),
      copyButton("Copy as CSV", `${label} as CSV`, () => csvOf(this.columns, this.shown)));
    this.scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}: table` },
      element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body));
    this.element = element("div", {}, tools, this.scroll);
    this.show();
  }

  textOf(column, row) {
    const text = column.text ? column.text(row) : column.value(row);
    return text === null || text === undefined ? "" : String(text);
  }

  wordsOf(row) {
    this.texts ||= new Map(this.rows.map((each) => [each, this.columns.map((column) => this.textOf(column, each)).join(" ").toLowerCase()]));
    return this.texts.get(row);
  }

  sortBy(index) {
    this.descending = this.sort === index ? !this.descending : Boolean(this.columns[index].number);
    this.sort = index;
    this.show();
  }

  show() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = words.length ? this.rows.filter((row) => words.every((word) => this.wordsOf(row).includes(word))) : [...this.rows];
    if (this.sort !== null) {
      const { value } = this.columns[this.sort];
      const none = (row) => value(row) === null || value(row) === undefined;
      this.shown.sort((a, b) => none(a) || none(b) ? none(a) - none(b) : (this.descending ? -1 : 1) * compared(value(a), value(b)));
    }
    this.heads.forEach((head, index) => {
      if (index === this.sort) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...this.shown.map((row) => this.rowOf(row)));
    this.count.textContent = this.shown.length === this.rows.length
      ? plural(this.rows.length, "row") : `${this.shown.length} of ${plural(this.rows.length, "row")}`;
  }

  rowOf(row) {
    const cells = this.columns.map((column) => {
      const shades = [column.number ? "number" : "", column.wide ? "wide" : "", column.clip ? "clip" : "", column.shade ? column.shade(row) : ""];
      return element("td", { class: shades.filter(Boolean).join(" ") || null, title: column.clip ? this.textOf(column, row) : null },
        column.cell ? column.cell(row) : this.textOf(column, row));
    });
    return element("tr", this.rowId ? { id: this.rowId(row) } : {}, ...cells);
  }
}
