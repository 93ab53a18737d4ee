#!/usr/bin/env python3
"""How fast is another engine on the same machine, over the same rows as Parquet?

Started by `rackscan bench tpch --peers datafusion,duckdb`; speaks lines on standard input and output so that its runs
can be interleaved with rackscan's. Needs the packages tpchgen-cli and datafusion or duckdb.

    tpch_peer.py --engine datafusion --scale 1 --threads 2 --data DIR
      > {"engine": "datafusion", "version": "55.0.0"}       once the tables are there
      < {"sql": "select ..."}
      > {"ms": 81.2, "rows": 1}                             one warm run, all rows collected
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]


def generate(folder: pathlib.Path, scale: float) -> None:
    """Writes the eight tables as Parquet, unless an earlier run finished doing so."""
    done = folder / f"complete-{scale:g}"
    if done.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = ["tpchgen-cli", "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(folder)]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {result.stderr.strip()}")
    done.touch()


def datafusion_runner(folder: pathlib.Path, threads: int):
    import datafusion

    config = datafusion.SessionConfig().with_target_partitions(threads)
    context = datafusion.SessionContext(config)
    for table in TABLES:
        context.register_parquet(table, str(folder / f"{table}.parquet"))
    return datafusion.__version__, lambda sql: sum(batch.num_rows for batch in context.sql(sql).collect())


def duckdb_runner(folder: pathlib.Path, threads: int):
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    for table in TABLES:
        connection.execute(f"create view {table} as select * from read_parquet('{folder / table}.parquet')")
    return duckdb.__version__, lambda sql: len(connection.execute(sql).fetchall())


RUNNERS = {"datafusion": datafusion_runner, "duckdb": duckdb_runner}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=sorted(RUNNERS), required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder for the Parquet files")
    arguments = parser.parse_args()
    generate(arguments.data, arguments.scale)
    version, run = RUNNERS[arguments.engine](arguments.data, arguments.threads)
    print(json.dumps({"engine": arguments.engine, "version": version}), flush=True)
    for line in sys.stdin:
        sql = json.loads(line)["sql"]
        start = time.perf_counter()
        rows = run(sql)
        print(json.dumps({"ms": round((time.perf_counter() - start) * 1000, 3), "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
