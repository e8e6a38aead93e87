# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(in_package_json @restatedev/restate-server)+sdk-$(locked restate-sdk)
durability="the server's log, on disk before the SDK is told that a step is taken; a server and a service on one machine"
service=("$BIN/bench-restate" serve 127.0.0.1:9080)
harness=("$BIN/bench-restate" http://127.0.0.1:8080)
server_pid='' service_pid=''

install() { npm_install && cargo_install --locked; }
start_server() {
  # The package of this machine's architecture is the one that npm has installed.
  local server=("$PEERS/npm/$name/node_modules/@restatedev/restate-server-linux-"*/bin/restate-server)
  spawn "$PEERS/log/restate-server.log" env RESTATE_LOG_FILTER=warn RESTATE_DISABLE_TELEMETRY=true "${server[0]}" --no-logo --base-dir "$DATA/restate" --listen-mode tcp --bind-ip 127.0.0.1 --advertised-host 127.0.0.1
  server_pid=$spawned
}
start_service() {
  spawn "$DATA/service" "${service[@]}"
  service_pid=$spawned
}
stop() {
  local pid
  for pid in $server_pid $service_pid; do end "$pid"; done
  server_pid='' service_pid=''
}
fresh() {
  stop
  rm -rf "$DATA/restate"
  start_server
  start_service
  until_true 60 curl -sf http://127.0.0.1:9070/health &&
    until_true 60 curl -sf http://127.0.0.1:8080/restate/health &&
    until_true 30 curl -sf http://127.0.0.1:9070/deployments --json '{"uri": "http://127.0.0.1:9080", "force": true}' &&
    until_true 30 timeout 10 "${harness[@]}" w1 1
}
bench() {
  local before
  before=$(resident)
  within "$limit" "${harness[@]}" "$@" || return 1
  [[ $1 == w5 ]] || return 0
  sleep 5
  awk -v now="$(resident)" -v before="$before" -v runs="$2" \
    'BEGIN { printf "{\"workload\":\"W5\",\"value\":%.1f,\"unit\":\"MiB\",\"note\":\"%d runs; server and service\"}\n", (now - before) / 1024, runs }' | record
}
resident() { cat "/proc/$server_pid/status" "/proc/$service_pid/status" | awk '/^VmRSS/ { sum += $2 } END { print sum }'; }
load() {
  "${harness[@]}" load "$1" &&
    until_true "$limit" grep -q loaded "$DATA/service"
}
# Server and service are killed, and both started again.
go_on() {
  stop
  START_NS=$(date +%s%N)
  export START_NS
  start_server
  start_service
  unset START_NS
  until_true "$limit" ended "$service_pid" && record <"$DATA/service"
}
syncs() {
  spawn /dev/null strace -f -qq -o "$DATA/strace" -e trace=fsync,fdatasync,sync_file_range -p "$server_pid"
  local tracer=$spawned
  until_true 10 traced "$server_pid" || return 1
  limited "$limit" "${harness[@]}" "$@" || return 1
  kill -TERM "$tracer"
  wait "$tracer" || true
  end "$tracer"
  synced=$(count_syncs "$DATA/strace")
}
traced() { ! grep -q '^TracerPid:.0$' "/proc/$1/status"; }
