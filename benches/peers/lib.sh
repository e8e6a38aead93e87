# What `run`, `measure` and the engines share. An engine.sh may replace what is marked so.
# shellcheck shell=bash disable=SC2034,SC2154 # the rest is in `measure` and in engine.sh

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PEERS=${PEERS:-$here/../../target/peers}
mkdir -p "$PEERS/data" "$PEERS/log"
PEERS=$(cd "$PEERS" && pwd)
DATA=$PEERS/data
BIN=$PEERS/cargo/release
RESULTS=${RESULTS:-$PEERS/results.jsonl}
export CARGO_TARGET_DIR=$PEERS/cargo NODE_NO_WARNINGS=1 DO_NOT_TRACK=1 PYTHONDONTWRITEBYTECODE=1

progress() { printf '%s  %-18s %s\n' "$(date +%T)" "${entry:-}" "$*" >&2; }

# --- Processes: what is started is ended, by its id, however this one ends.

started=()
spawn() { # OUT COMMAND..: starts it, as $spawned
  local out=$1
  shift
  "$@" >"$out" 2>>"$PEERS/log/$name.log" &
  spawned=$!
  started+=("$spawned")
}
end() { # PID: kills it
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
  local left=() pid
  for pid in "${started[@]}"; do [[ $pid == "$1" ]] || left+=("$pid"); done
  started=("${left[@]}")
}
end_all() {
  local pid
  # What started something itself (timeout) is told, and ends that first.
  for pid in "${started[@]}"; do
    if kill -TERM "$pid" 2>/dev/null; then until_true 5 ended "$pid" || true; fi
    end "$pid"
  done
  pg_down
}
ended() { ! kill -0 "$1" 2>/dev/null; }
# Waits for a command, which a trap can interrupt.
run_for() { # OUT COMMAND..
  local status=0
  spawn "$@"
  wait "$spawned" || status=$?
  end "$spawned"
  ((status == 0)) || { echo "status $status: $(tail -n 1 "$PEERS/log/$name.log" | cut -c 1-200)" >&2; return "$status"; }
}
limited() { # SECONDS COMMAND..
  run_for "$DATA/out" timeout --foreground "$@"
}
within() { limited "$@" && record <"$DATA/out"; } # SECONDS COMMAND..: records what it measured
until_true() { # SECONDS COMMAND..: waits for a condition
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { echo "waited in vain for: $*" >&2; return 1; }
    sleep 0.05
  done
}

# --- Results: one line of JSON each. Other lines are passed over.

record() {
  sed -n "s/^{/{\"engine\":\"$entry\",\"version\":\"$version\",\"durability\":\"$durability\",/p" >>"$RESULTS"
}
failed() { # WORKLOAD WHY
  progress "$1: $2"
  printf '{"workload":"%s","failed":"%s"}\n' "$1" "$(tr -c '[:print:]' ' ' <<<"${2//[\"\\]/ }")" | record
}

# --- The versions that are pinned, from the files that pin them.

locked() { sed -n "/^name = \"$1\"\$/{n;s/version = \"\(.*\)\"/\1/p;q}" "$dir/Cargo.lock"; }
in_package_json() { sed -n "s|.*\"$1\": \"\(.*\)\".*|\1|p" "$dir/package.json"; }
in_requirements() { sed -n "s/^$1==\([^ ;]*\).*/\1/p" "$dir/requirements.txt"; }

cargo_install() { nice -n 10 cargo build --quiet --release -j "${JOBS:-2}" --manifest-path "$dir/Cargo.toml" "$@"; }
npm_install() {
  mkdir -p "$PEERS/npm/$name"
  cp "$dir"/package*.json "$PEERS/npm/$name/"
  npm --prefix "$PEERS/npm/$name" ci --loglevel=error --no-audit --no-fund --ignore-scripts
}
pip_install() {
  [[ -x $PEERS/venv/$name/bin/python ]] || python3 -m venv "$PEERS/venv/$name"
  "$PEERS/venv/$name/bin/pip" install --quiet --disable-pip-version-check -r "$dir/requirements.txt"
}

# --- PostgreSQL: a throw-away cluster of Debian's packages on loopback, with its defaults (fsync and synchronous_commit on).

pg_pid=
PG_PORT=${PG_PORT:-5544}
PG=postgresql://bench:bench@127.0.0.1:$PG_PORT
pg_version() { "$(pg_bin)/postgres" --version | grep -oE '[0-9.]+' | head -n 1; }
pg_bin() {
  local bins=(/usr/lib/postgresql/*/bin)
  [[ -x ${bins[-1]}/initdb ]] || { echo "no PostgreSQL: apt-get install postgresql" >&2; return 1; }
  echo "${bins[-1]}"
}
pg_up() {
  [[ -z $pg_pid ]] || return 0
  local bin as=() log=$PEERS/log/postgres.log
  bin=$(pg_bin) || return 1
  rm -rf "$PEERS/pg"
  mkdir "$PEERS/pg"
  (umask 077 && echo bench >"$PEERS/pg/password")
  # It refuses to be root.
  if ((EUID == 0)); then
    chown -R postgres "$PEERS/pg"
    as=(setpriv --reuid postgres --regid postgres --init-groups)
  fi
  (cd / && "${as[@]}" "$bin/initdb" -D "$PEERS/pg/data" -A scram-sha-256 -U bench --pwfile="$PEERS/pg/password" -E UTF8 --locale C) >"$log" 2>&1 ||
    { echo "initdb: $(tail -n 1 "$log")" >&2; return 1; }
  (cd / && exec "${as[@]}" "$bin/postgres" -D "$PEERS/pg/data" -p "$PG_PORT" -h 127.0.0.1 -c unix_socket_directories=) >>"$log" 2>&1 &
  pg_pid=$!
  until_true 30 pg_answers_or_ended || true
  ! ended "$pg_pid" || { echo "PostgreSQL does not start: $(tail -n 1 "$log")" >&2; pg_pid=''; return 1; }
}
pg_answers_or_ended() { pg postgres 'select 1' || ended "$pg_pid"; }
pg_down() {
  [[ -n $pg_pid ]] || return 0
  kill -INT "$pg_pid" 2>/dev/null || true
  wait "$pg_pid" 2>/dev/null || true
  pg_pid=
  rm -rf "$PEERS/pg"
}
pg() { PGPASSWORD=bench psql -h 127.0.0.1 -p "$PG_PORT" -U bench "$1" -qAtc "$2"; } # DATABASE SQL
pg_fresh() { # DATABASE
  pg_up
  pg postgres "drop database if exists $1 with (force)"
  pg postgres "create database $1"
}
# Backends tell how often they synced when they end.
pg_syncs() { # ARGUMENTS..: as syncs
  local before after
  before=$(pg postgres 'select wal_sync from pg_stat_wal') && limited "$limit" "${harness[@]}" "$@" && until_true 10 pg_is_alone &&
    after=$(pg postgres 'select wal_sync from pg_stat_wal') && synced=$((after - before))
}
pg_is_alone() { [[ $(pg postgres "select count(*) from pg_stat_activity where backend_type = 'client backend'") == 1 ]]; }

# --- What an engine may replace.

install() { cargo_install --locked; }
# Begins anew: an empty store, servers that run.
fresh() { rm -rf "$store" "$store"-*; }
warm_up() { limited "$limit" "${harness[@]}" w1 1; } # for the schema to be there
bench() { within "$limit" "${harness[@]}" "$@"; }
# How often it asks the disk to sync, from its start to its end, as $synced.
syncs() { # ARGUMENTS..
  run_for /dev/null strace -f -y -qq -o "$DATA/strace" -e trace=fsync,fdatasync,sync_file_range,write,pwrite64,pwritev \
    timeout --foreground "$limit" "${harness[@]}" "$@" && synced=$(count_syncs "$DATA/strace")
}
count_syncs() { grep -cE '^[0-9]+ +(fsync|fdatasync|sync_file_range)\(' "$1" || true; }
# Comes to the step after so many, and is killed there.
load() {
  spawn "$DATA/out" "${harness[@]}" load "$1"
  local pid=$spawned
  until_true "$limit" loaded_or_ended "$pid"
  end "$pid"
  grep -q loaded "$DATA/out" || { echo "it did not come to the step after $1 others" >&2; return 1; }
}
loaded_or_ended() { grep -q loaded "$DATA/out" || ended "$1"; }
# From the start of a new process to the body of that step.
go_on() { START_NS=$(date +%s%N) within "$limit" "${harness[@]}" go-on; }
