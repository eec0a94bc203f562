# Starts one engine's wrapper, once, however often this runs.
# $1 folder of the start  $2 marker  $3 auto|systemd|session  $4 unit name
# Prints key=value lines; the last one is "end=1".
dir=$1 marker=$2 want=$3 unit=$4
umask 077
cd "$dir" 2>/dev/null || { echo "error=folder"; echo "end=1"; exit 0; }

ticks_of() {
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  rest=${line##*) }
  set -- $rest
  echo "${20}"
}

started() { [ -s pid ] || [ -s exit ]; }

marked() { # is any process of this start alive?
  printf '%s\n' /proc/[0-9]*/environ | xargs grep -lz "^KVADMIN_START=$marker\$" 2>/dev/null | grep -q .
}

can_systemd() {
  command -v systemd-run >/dev/null 2>&1 || return 1
  [ -n "$XDG_RUNTIME_DIR" ] || XDG_RUNTIME_DIR=/run/user/$(id -u)
  export XDG_RUNTIME_DIR
  state=$(timeout 5 systemctl --user is-system-running 2>/dev/null)
  case $state in running|degraded|starting) ;; *) return 1 ;; esac
  linger=$(timeout 5 loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null)
  [ "$linger" = yes ]
}

begin() {
  echo "$$ $(ticks_of $$) $(cat /proc/sys/kernel/random/boot_id)" >lock/owner
  launcher=session
  case $want in
    systemd) launcher=systemd ;;
    auto) if can_systemd; then launcher=systemd; fi ;;
  esac
  if [ "$launcher" = systemd ]; then
    can_systemd
    echo systemd >launcher
    if timeout 20 systemd-run --user --collect --quiet --no-block --unit="$unit" \
      --description="kvadmin engine, start $marker" \
      --property=KillMode=control-group --property=TimeoutStopSec=30 --property=Restart=no \
      --property=OOMPolicy=continue --property=UMask=0077 \
      --setenv=KVADMIN_START="$marker" --setenv=SPT_NOENV=1 \
      --working-directory="$dir" /bin/sh "$dir/run.sh" "$dir" 2>>launch.err; then
      return 0
    fi
    # an older systemd refuses a property it does not know
    if timeout 20 systemd-run --user --collect --quiet --no-block --unit="$unit" \
      --property=KillMode=control-group --property=TimeoutStopSec=30 \
      --setenv=KVADMIN_START="$marker" --setenv=SPT_NOENV=1 \
      --property=WorkingDirectory="$dir" /bin/sh "$dir/run.sh" "$dir" 2>>launch.err; then
      return 0
    fi
    if [ "$want" = systemd ]; then echo "error=systemd"; return 1; fi
  fi
  if ! command -v setsid >/dev/null 2>&1; then echo "error=setsid"; return 1; fi
  echo session >launcher
  KVADMIN_START=$marker SPT_NOENV=1 setsid /bin/sh "$dir/run.sh" "$dir" </dev/null >/dev/null 2>>launch.err &
}

fresh=0
if ! started; then
  if mkdir lock 2>/dev/null; then
    fresh=1
  else
    # somebody began before: a launch still under way, or one that died between lock and start
    tries=0
    while ! started && [ $tries -lt 25 ]; do
      owner='' was='' boot=''
      read -r owner was boot <lock/owner 2>/dev/null
      if [ -n "$owner" ] && [ "$(ticks_of "$owner")" = "$was" ] &&
        [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ]; then
        :
      elif [ $tries -ge 10 ] && ! marked; then
        if mv lock "lock.$$" 2>/dev/null && mkdir lock 2>/dev/null; then fresh=1; fi
        break
      fi
      tries=$((tries + 1))
      sleep 0.2
    done
  fi
fi
if [ $fresh = 1 ]; then
  if ! begin; then rmdir lock 2>/dev/null || mv lock "lock.$$"; echo "end=1"; exit 0; fi
fi
tries=0
while ! started && [ $tries -lt 50 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
echo "fresh=$fresh"
[ -f launcher ] && echo "launcher=$(cat launcher)"
[ -f pid ] && cat pid
[ -f exit ] && echo "exit=$(cat exit)"
started || tail -n 3 launch.err 2>/dev/null | sed 's/^/note=/'
echo "end=1"
