# Ends processes that are certainly the ones meant: SIGTERM, a wait, SIGKILL, a wait.
# $1 boot id  $2 seconds between the two  $3... pid:ticks
# Prints "left PID" for each that is still there; the last line is "end".
boot=$1 grace=$2
shift 2
if [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ]; then echo end; exit 0; fi

alive() {
  line=$(cat "/proc/${1%%:*}/stat" 2>/dev/null) || return 1
  rest=${line##*) }
  want=${1#*:}
  set -- $rest
  [ "${20}" = "$want" ] || return 1
  case $1 in Z|X|x) return 1 ;; esac
}

any() {
  for one in "$@"; do alive "$one" && return 0; done
  return 1
}

send() {
  signal=$1
  shift
  for one in "$@"; do alive "$one" && kill -s "$signal" "${one%%:*}" 2>/dev/null; done
}

send TERM "$@"
left=$((grace * 5))
while [ $left -gt 0 ] && any "$@"; do left=$((left - 1)); sleep 0.2; done
send KILL "$@"
left=25
while [ $left -gt 0 ] && any "$@"; do left=$((left - 1)); sleep 0.2; done
for one in "$@"; do alive "$one" && echo "left ${one%%:*}"; done
echo end
