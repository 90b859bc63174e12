// A table of many thousands of rows. Only the rows in sight are elements of the page.

// Rows above and below the visible ones, for fast scrolling.
const SPARE = 6;

export class Table {
  #element;
  #body;
  #heading;
  #columns = [];
  #rows = [];
  #slots = [];
  #selected = null;
  #selectedIndex = 0;
  #height = 32;
  #open;

  // `open` is called with the row that a click or Enter opens.
  constructor(element, open) {
    this.#element = element;
    this.#open = open;
    this.#heading = part("heading", "row");
    this.#body = part("rows", "rowgroup");
    element.append(this.#heading, this.#body);
    element.addEventListener("scroll", () => this.render(), { passive: true });
    element.addEventListener("keydown", (event) => this.#key(event));
    this.#body.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.render()).observe(element);
  }

  // A column has a title, a class, and `fill(cell, row)`. A column that changes with time is `live`.
  setColumns(name, columns) {
    this.#columns = columns;
    this.#element.className = name;
    this.#heading.replaceChildren(...columns.map(({ title, kind }) => {
      const cell = part(`cell ${kind}`, "columnheader");
      cell.textContent = title;
      return cell;
    }));
    this.#slots = [];
    this.#body.replaceChildren();
    this.#selected = null;
    this.#selectedIndex = 0;
    this.#element.scrollTop = 0;
  }

  setRows(rows) {
    this.#rows = rows;
    if (this.#selected !== null) {
      const index = rows.findIndex((row) => row.id === this.#selected);
      // A selected row that has gone leaves the selection at its place.
      if (index >= 0) this.#selectedIndex = index;
    }
    this.render();
  }

  // Fills the cells that change with time.
  tick() {
    for (const slot of this.#slots) {
      if (!slot.row) continue;
      this.#columns.forEach(({ live, fill }, column) => {
        if (live) fill(slot.cells[column], slot.row);
      });
    }
  }

  render() {
    const element = this.#element;
    this.#height = parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 32;
    const { scrollTop, clientHeight } = element;
    const first = Math.max(0, Math.floor(scrollTop / this.#height) - SPARE);
    const count = Math.ceil(clientHeight / this.#height) + 2 * SPARE;
    const last = Math.min(this.#rows.length, first + count);
    const height = `${this.#rows.length * this.#height}px`;
    if (this.#body.style.height !== height) this.#body.style.height = height;
    element.setAttribute("aria-rowcount", this.#rows.length + 1);
    while (this.#slots.length < last - first) this.#slots.push(this.#slot());
    let active = "";
    // A row keeps its slot while it is in sight, so that scrolling fills only new rows.
    const size = this.#slots.length;
    this.#slots.forEach((slot, place) => {
      const index = first + ((place - (first % size) + size) % size);
      const row = index < last ? this.#rows[index] : undefined;
      this.#show(slot, row, index);
      if (row && row.id === this.#selected) active = slot.element.id;
    });
    if (active) element.setAttribute("aria-activedescendant", active);
    else element.removeAttribute("aria-activedescendant");
  }

  #show(slot, row, index) {
    const { element, cells } = slot;
    if (!row) {
      element.hidden = true;
      slot.row = undefined;
      return;
    }
    element.hidden = false;
    const top = index * this.#height;
    if (slot.top !== top) {
      element.style.transform = `translateY(${top}px)`;
      element.setAttribute("aria-rowindex", index + 2);
      slot.top = top;
      slot.index = index;
    }
    if (slot.row !== row) {
      this.#columns.forEach(({ fill }, column) => fill(cells[column], row));
      slot.row = row;
    }
    const selected = String(row.id === this.#selected);
    if (slot.selected !== selected) {
      element.setAttribute("aria-selected", selected);
      slot.selected = selected;
    }
  }

  #slot() {
    const element = part("row", "row");
    element.id = `row-${this.#slots.length}`;
    const cells = this.#columns.map(({ kind }) => part(`cell ${kind}`, "gridcell"));
    element.append(...cells);
    this.#body.append(element);
    return { element, cells };
  }

  #click(event) {
    const element = event.target.closest(".row");
    const slot = this.#slots.find((slot) => slot.element === element);
    if (!slot?.row) return;
    this.#select(slot.index);
    this.#open(slot.row);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.#element.clientHeight / this.#height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") {
      const row = this.#rows[this.#selectedIndex];
      if (row && row.id === this.#selected) this.#open(row);
    } else if (event.key in steps) {
      // The first key selects the row where the selection is.
      this.#select(this.#selectedIndex + (this.#selected === null ? 0 : steps[event.key]));
    } else {
      return;
    }
    event.preventDefault();
  }

  #select(index) {
    if (this.#rows.length === 0) return;
    this.#selectedIndex = Math.min(Math.max(index, 0), this.#rows.length - 1);
    this.#selected = this.#rows[this.#selectedIndex].id;
    const element = this.#element;
    const heading = this.#heading.offsetHeight;
    const top = this.#selectedIndex * this.#height;
    const room = element.clientHeight - heading - this.#height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    this.render();
  }
}

function part(name, role) {
  const element = document.createElement("div");
  element.className = name;
  element.setAttribute("role", role);
  return element;
}
