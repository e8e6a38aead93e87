# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(in_requirements dbos)
harness=(env PYTHONPATH="$here" "$PEERS/venv/$name/bin/python" "$dir/bench.py" "$PG/bench_dbos_py")
durability="a transaction of PostgreSQL for each step, on disk before the next"
install() { pip_install && pg_up; }
fresh() { pg_fresh bench_dbos_py && warm_up; }
syncs() { pg_syncs "$@"; }
