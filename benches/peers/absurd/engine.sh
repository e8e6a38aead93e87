# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(in_requirements absurd-sdk)
harness=(env PYTHONPATH="$here" "$PEERS/venv/$name/bin/python" "$dir/bench.py" "$PG/bench_absurd")
durability="a transaction of PostgreSQL for each step, on disk before the next; W3 with a claim of 2 s that is over (120 s is usual)"
install() { pip_install && pg_up; }
fresh() { pg_fresh bench_absurd && ABSURD_DATABASE_URL=$PG/bench_absurd "$PEERS/venv/$name/bin/absurdctl" init >/dev/null; }
syncs() { pg_syncs "$@"; }
go_on() {
  # Until the claim of the killed worker is over.
  sleep 3
  START_NS=$(date +%s%N) within "$limit" "${harness[@]}" go-on
}
