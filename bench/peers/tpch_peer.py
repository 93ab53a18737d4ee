#!/usr/bin/env python3
"""How fast is another engine on the same machine, over the same rows as Parquet?

Started by `rackscan bench tpch --peers datafusion,duckdb,duckdb-native`; speaks lines on standard input and output so that its
runs can be interleaved with rackscan's. Needs the packages tpchgen-cli and datafusion or duckdb. `duckdb-native` reads tables in
DuckDB's own format, which are made once of the Parquet files and kept beside them.

    tpch_peer.py --engine datafusion --scale 1 --threads 2 --data DIR
      > {"engine": "datafusion", "version": "55.0.0"}       once the tables are there
      < {"sql": "select ..."}
      > {"ms": 81.2, "rows": 1}                             one run, all rows collected
      < {"reopen": true}
      > {"reopened": true}                                  nothing of the tables is in this process's memory
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


class DataFusion:
    def __init__(self, folder: pathlib.Path, threads: int):
        import datafusion

        self.module, self.folder, self.threads = datafusion, folder, threads
        self.version = datafusion.__version__
        self.open()

    def open(self) -> None:
        config = self.module.SessionConfig().with_target_partitions(self.threads)
        self.context = self.module.SessionContext(config)
        for table in TABLES:
            self.context.register_parquet(table, str(self.folder / f"{table}.parquet"))

    def run(self, sql: str) -> int:
        return sum(batch.num_rows for batch in self.context.sql(sql).collect())


class DuckDb:
    def __init__(self, folder: pathlib.Path, threads: int):
        import duckdb

        self.module, self.folder, self.threads = duckdb, folder, threads
        self.version = duckdb.__version__
        self.connection = None
        self.open()

    def open(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = self.module.connect(config={"threads": self.threads})
        self.connection.execute("set enable_progress_bar = false")
        for table in TABLES:
            self.connection.execute(f"create view {table} as select * from read_parquet('{self.folder / table}.parquet')")

    def run(self, sql: str) -> int:
        return len(self.connection.execute(sql).fetchall())


class DuckDbNative(DuckDb):
    def open(self) -> None:
        if self.connection:
            self.connection.close()
        # Another version may write another format.
        path = self.folder / f"native-{self.version}.duckdb"
        if not path.exists():
            self.make(path)
        self.connection = self.module.connect(str(path), read_only=True, config={"threads": self.threads})
        self.connection.execute("set enable_progress_bar = false")

    def make(self, path: pathlib.Path) -> None:
        """Copies the Parquet files into a database; it gets its name when it is whole."""
        unfinished = path.with_suffix(".unfinished")
        for left in (unfinished, pathlib.Path(f"{unfinished}.wal")):
            left.unlink(missing_ok=True)
        with self.module.connect(str(unfinished), config={"threads": self.threads}) as connection:
            connection.execute("set enable_progress_bar = false")
            for table in TABLES:
                source = self.folder / f"{table}.parquet"
                connection.execute(f"create table {table} as select * from read_parquet('{source}')")
            connection.execute("analyze")
            connection.execute("checkpoint")
        unfinished.rename(path)


ENGINES = {"datafusion": DataFusion, "duckdb": DuckDb, "duckdb-native": DuckDbNative}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder for the Parquet files")
    arguments = parser.parse_args()
    generate(arguments.data, arguments.scale)
    engine = ENGINES[arguments.engine](arguments.data, arguments.threads)
    print(json.dumps({"engine": arguments.engine, "version": engine.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("reopen"):
            engine.open()
            print(json.dumps({"reopened": True}), flush=True)
            continue
        start = time.perf_counter()
        rows = engine.run(request["sql"])
        print(json.dumps({"ms": round((time.perf_counter() - start) * 1000, 3), "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
