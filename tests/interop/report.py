"""Counts what passed and what failed, and prints the matrix."""

from collections import defaultdict


class Report:
    def __init__(self):
        self.passed = 0
        self.failures: list[str] = []
        self.cells: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def check(self, what: str, problem: str | None, cell: tuple[str, str] | None = None) -> bool:
        """Records one check; `problem` says what is wrong, None that nothing is."""
        good = problem is None
        if cell:
            self.cells[cell][0 if good else 1] += 1
        if good:
            self.passed += 1
        else:
            self.failures.append(f"{what}: {problem}")
            print(f"FAIL {what}: {problem}", flush=True)
        return good

    def matrix(self) -> str:
        """Publishers down, readers across; a cell counts the payloads that passed, or after `!` those that did not."""
        rows = list(dict.fromkeys(row for row, _ in self.cells))
        columns = list(dict.fromkeys(column for _, column in self.cells))
        width = max((len(row) for row in rows), default=0)
        legend = [f"  {number:>2} {column}" for number, column in enumerate(columns, 1)]
        head = " " * width + "".join(f"{number:>4}" for number in range(1, len(columns) + 1))
        lines = [head]
        for row in rows:
            cells = []
            for column in columns:
                good, bad = self.cells.get((row, column), (0, 0))
                text = f"!{bad}" if bad else good or "-"
                cells.append(f"{text:>4}")
            lines.append(row.ljust(width) + "".join(cells))
        return "\n".join(["readers:", *legend, "publishers by readers, payloads passed (!n: n failed):", *lines])
