# SPDX-License-Identifier: Apache-2.0
# Source this file. with_progress TITLE LOG COMMAND... runs a command with its output in the file LOG, and shows on stderr how far
# it is: its time and its newest line of output. On a terminal the line changes in place; elsewhere there is a line every 15 s,
# unless the command ends sooner. Returns the exit status of the command; when it fails, prints the end of its output.
# Ctrl-C and SIGTERM end the command and everything that it started: a shell without job control ignores both in the background.
end_with_descendants() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do end_with_descendants "$child"; done
  kill "$1" 2>/dev/null || true
}
with_progress() {
  local title=$1 log=$2 began=$SECONDS shown=$SECONDS line pid status=0
  shift 2
  : >"$log"
  "$@" >>"$log" 2>&1 &
  pid=$!
  # shellcheck disable=SC2064  # the pid of now
  trap "end_with_descendants $pid; trap - INT TERM; kill -INT \$\$" INT
  # shellcheck disable=SC2064
  trap "end_with_descendants $pid; trap - INT TERM; kill -TERM \$\$" TERM
  while kill -0 "$pid" 2>/dev/null; do
    timeout 1 tail --pid="$pid" --sleep-interval=0.1 -f /dev/null || true
    line=$(tail -c 2000 "$log" | tr '\r' '\n' | sed -e 's/\x1b\[[0-9;?]*[A-Za-z]//g' -e '/^[[:space:]]*$/d' | tail -n 1 | tr -dc '[:print:]')
    line="$title: $((SECONDS - began)) s  ${line:0:60}"
    if [ -t 2 ]; then
      printf '\r\033[K%s' "${line:0:$((${COLUMNS:-80} - 1))}" >&2
    elif [ $((SECONDS - shown)) -ge 15 ]; then
      shown=$SECONDS
      echo "$line" >&2
    fi
  done
  wait "$pid" || status=$?
  trap - INT TERM
  [ ! -t 2 ] || printf '\r\033[K' >&2
  [ "$status" = 0 ] || tail -n 20 "$log" >&2
  return "$status"
}
