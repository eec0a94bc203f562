# What runs on this host of the starts in question, and everything that carries a marker at all.
# stdin: one start a line: marker, unit (or -), session (or -), known pids joined by commas (or -), folder.
# Prints tab-separated lines; the last is "end". A line that is missing means the answer was cut.
tab=$(printf '\t')
printf 'boot\t%s\n' "$(cat /proc/sys/kernel/random/boot_id)"
units='' sids='' pids=''
while IFS=$tab read -r marker unit sid known dir; do
  [ -n "$marker" ] || continue
  case $unit in -) ;; *) units="$units $unit" ;; esac
  case $sid in -) ;; *) sids="$sids $sid" ;; esac
  case $known in -) ;; *) pids="$pids $(printf '%s' "$known" | tr , ' ')" ;; esac
  if [ -d "$dir" ]; then
    size=$(wc -c <"$dir/log" 2>/dev/null)
    printf 'start\t%s\t%s\n' "$marker" "${size:-0}"
    [ -f "$dir/pid" ] && sed "s/^/file$tab$marker$tab/" "$dir/pid"
    [ -f "$dir/launcher" ] && printf 'file\t%s\tlauncher=%s\n' "$marker" "$(cat "$dir/launcher")"
    [ -f "$dir/exit" ] && printf 'file\t%s\texit=%s\n' "$marker" "$(cat "$dir/exit")"
  else
    printf 'start\t%s\t-\n' "$marker"
  fi
done
marked=$(printf '%s\n' /proc/[0-9]*/environ | xargs grep -lz '^KVADMIN_START=' 2>/dev/null)
marks=''
for file in $marked; do
  pid=${file#/proc/}
  pid=${pid%/environ}
  mark=$(tr '\000' '\n' <"$file" 2>/dev/null | sed -n 's/^KVADMIN_START=//p' | head -n 1)
  case $mark in ''|*[!0-9a-fA-F-]*) continue ;; esac
  marks="$marks $pid=$mark"
done
in_units=''
for unit in $units; do
  for file in $(printf '%s\n' /proc/[0-9]*/cgroup | xargs grep -lF "/$unit.service" 2>/dev/null); do
    pid=${file#/proc/}
    in_units="$in_units ${pid%/cgroup}=$unit"
  done
done
cat /proc/[0-9]*/stat 2>/dev/null | awk -v marks="$marks" -v units="$in_units" -v sids="$sids" -v pids="$pids" '
  BEGIN {
    n = split(marks, list, " "); for (i = 1; i <= n; i++) { split(list[i], p, "="); mark[p[1]] = p[2]; keep[p[1]] = 1 }
    n = split(units, list, " "); for (i = 1; i <= n; i++) { split(list[i], p, "="); unit[p[1]] = p[2]; keep[p[1]] = 1 }
    n = split(sids, list, " "); for (i = 1; i <= n; i++) wanted[list[i]] = 1
    n = split(pids, list, " "); for (i = 1; i <= n; i++) keep[list[i]] = 1
  }
  {
    a = index($0, "("); z = length($0)
    while (z > a && substr($0, z, 1) != ")") z--
    pid = substr($0, 1, a - 2); name = substr($0, a + 1, z - a - 1)
    split(substr($0, z + 2), f, " ")
    gsub(/[\t\n]/, " ", name)
    parent[pid] = f[2]
    text[pid] = pid "\t" f[2] "\t" f[4] "\t" f[20] "\t" f[1] "\t" f[22]
    comm[pid] = name
    if (f[4] in wanted) keep[pid] = 1
  }
  END {
    do {
      more = 0
      for (pid in text) if (!(pid in keep) && (parent[pid] in keep)) { keep[pid] = 1; more = 1 }
    } while (more)
    for (pid in keep) if (pid in text)
      print "proc\t" text[pid] "\t" ((pid in mark) ? mark[pid] : "-") "\t" ((pid in unit) ? unit[pid] : "-") "\t" comm[pid]
    print "end"
  }'
