# Sends a signal to processes that are certainly the ones meant.
# $1 boot id  $2 TERM|KILL|INT  $3... pid:ticks
# Prints "sent PID", "gone PID", "other PID" (the number belongs to another process now), "refused PID".
boot=$1 signal=$2
shift 2
if [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ]; then echo "rebooted 0"; exit 0; fi

ticks_of() {
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  rest=${line##*) }
  set -- $rest
  echo "${20}"
}

for one in "$@"; do
  pid=${one%%:*}
  now=$(ticks_of "$pid")
  if [ -z "$now" ]; then echo "gone $pid"
  elif [ "$now" != "${one#*:}" ]; then echo "other $pid"
  elif kill -s "$signal" "$pid" 2>/dev/null; then echo "sent $pid"
  else echo "refused $pid"; fi
done
