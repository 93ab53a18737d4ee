#!/usr/bin/env python3
"""Makes the expected answers under queries/tpch/answers (their format: queries/README.md).

    pip install duckdb==2.0.0 datafusion==55.0.0 tpchgen-cli==4.0.0
    python3 queries/make_answers.py            # writes the files
    python3 queries/make_answers.py --check    # writes nothing; fails if a file would change

tpchgen-cli makes the data as Parquet in a temporary folder, DuckDB (which shares no code with Rackscan or
DataFusion) makes the answers, and DataFusion must agree with every one of them, with its literals read as floats
and as decimals. An answer whose order its ORDER BY leaves open is refused: a test could not compare it row by row.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

WANTED = {"duckdb": "2.0.0", "datafusion": "55.0.0", "tpchgen-cli": "4.0.0"}
TPCH = Path(__file__).resolve().parent / "tpch"
TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
ALL = [f"q{number:02}" for number in range(1, 23)]
# Which queries are answered at which scale factor, over which tables.
SCALES = {
    "0.01": (ALL, TABLES),
    # Q6 is the first command of the README; Q8 and Q17 select next to nothing at 0.01.
    "0.1": (["q06", "q08", "q17"], TABLES),
    "1": (["q01", "q06"], ["lineitem"]),  # exact sums at the scale of the benchmarks
}
RELATIVE_TOLERANCE = Decimal("1e-9")
QUOTIENT_SCALE_MIN = 6


def kind_of(duckdb_type):
    """The kind of a column (queries/README.md) from DuckDB's type of it."""
    if decimal := re.fullmatch(r"DECIMAL\(\d+,(\d+)\)", duckdb_type):
        return f"decimal({decimal[1]})"
    kinds = {"INTEGER": "int", "BIGINT": "int", "HUGEINT": "int", "DATE": "date", "VARCHAR": "text"}
    return "approx" if duckdb_type == "DOUBLE" else kinds[duckdb_type]


def spell(value):
    """One value in its canonical form; a double as the shortest text that reads back as the same double."""
    if value is None:
        return r"\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def agrees(kind, expected, found):
    """Whether a found value is the expected one: by its spelling, and only a quotient with a tolerance."""
    if kind != "approx" or expected is None or found is None:
        return spell(expected) == spell(found)
    tolerance = RELATIVE_TOLERANCE * abs(Decimal(expected))
    if isinstance(found, Decimal):
        digits = -found.as_tuple().exponent
        if digits < QUOTIENT_SCALE_MIN:
            return False
        tolerance = max(tolerance, Decimal(1).scaleb(-digits))
    return abs(Decimal(expected) - Decimal(found)) <= tolerance


def require_total_order(name, sql, duck, rows):
    """Fails if two rows of the answer, before its LIMIT, are equal in all columns of the ORDER BY."""
    unlimited = re.sub(r"\nlimit \d+;\s*$", "\n", sql).rstrip().rstrip(";")
    order_by = re.search(r"\norder by\n((?: {4}\w+(?: desc)?,?(?:\n|$))+)$", unlimited)
    if order_by is None:
        if len(rows) != 1:
            sys.exit(f"{name}: {len(rows)} rows and no ORDER BY: their order is open")
        return
    keys = [line.strip().rstrip(",").split()[0] for line in order_by[1].strip().split("\n")]
    result = duck.execute(unlimited)
    names = [column[0] for column in result.description]
    counts = Counter(tuple(row[names.index(key)] for key in keys) for row in result.fetchall())
    ties = [key for key, count in counts.items() if count > 1]
    if ties:
        sys.exit(f"{name}: ORDER BY {', '.join(keys)} leaves the order of {len(ties)} groups open, first {ties[0]}")


def check_datafusion(name, sql, folder, tables, kinds, rows):
    """Fails with the first difference between DuckDB's rows and DataFusion's."""
    import datafusion

    for decimal_literals in ("false", "true"):
        context = datafusion.SessionContext(
            datafusion.SessionConfig().set("datafusion.sql_parser.parse_float_as_decimal", decimal_literals)
        )
        for table in tables:
            context.register_parquet(table, f"{folder}/{table}.parquet")
        batches = context.sql(sql).collect()
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        if len(found) != len(rows):
            sys.exit(f"{name}: DuckDB has {len(rows)} rows, DataFusion {len(found)}")
        for number, (ours, theirs) in enumerate(zip(rows, found), 1):
            for kind, expected, value in zip(kinds, ours, theirs, strict=True):
                if not agrees(kind, expected, value):
                    sys.exit(f"{name}, row {number}, {kind}: DuckDB {expected!r}, DataFusion {value!r}")


def answer(name, duck, folder, tables):
    """The text of the answer file of one query."""
    sql = (TPCH / f"{name}.sql").read_text()
    result = duck.execute(sql)
    columns = [column[0] for column in result.description]
    kinds = [kind_of(str(column[1])) for column in result.description]
    rows = result.fetchall()
    require_total_order(name, sql, duck, rows)
    check_datafusion(name, sql, folder, tables, kinds, rows)
    lines = ["# order: total", "\t".join(columns), "\t".join(kinds)]
    lines += ["\t".join(map(spell, row)) for row in rows]
    return "\n".join(lines) + "\n"


def main():
    """Reads the arguments, checks the packages, answers every scale factor."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    check = arguments.parse_args().check
    for package, wanted in WANTED.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "nothing"
        if found != wanted:
            sys.exit(f"{package}: found {found}, wanted {wanted}; pip install {package}=={wanted}")
    import duckdb

    changed = []
    for scale, (names, tables) in SCALES.items():
        with tempfile.TemporaryDirectory(prefix="rackscan-answers-") as folder:
            generate = ["tpchgen-cli", "parquet", f"--scale-factor={scale}", f"--output-dir={folder}"]
            subprocess.run([*generate, f"--tables={','.join(tables)}"], check=True)
            duck = duckdb.connect()
            for table in tables:
                duck.execute(f"create view {table} as select * from '{folder}/{table}.parquet'")
            for name in names:
                path = TPCH / "answers" / f"sf{scale}" / f"{name}.tsv"
                text = answer(name, duck, folder, tables)
                if not path.exists() or path.read_text() != text:
                    changed.append(str(path.relative_to(TPCH.parent)))
                    if not check:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_text(text)
        print(f"scale factor {scale}: {len(names)} answers, DuckDB and DataFusion agree")
    print("changed: " + (", ".join(changed) or "nothing"))
    if check and changed:
        sys.exit(1)


if __name__ == "__main__":
    main()
