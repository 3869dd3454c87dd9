# Run by TestServiceUnderSystemd as the first process of its namespaces: a user
# manager of systemd, and the service in it. $1 is the program.
# 77: no manager can be had here.
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user/0 && chmod 700 /run/user/0 &&
  mount -t tmpfs tmpfs /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t tmpfs tmpfs /opt &&
  mkdir -p /opt/bin /opt/home && cp "$1" /opt/bin/toolsd || exit 77
export HOME=/opt/home XDG_RUNTIME_DIR=/run/user/0 PATH=/opt/bin:$PATH
cd /opt/home
dbus-daemon --session --address=unix:path=$XDG_RUNTIME_DIR/bus --fork --nopidfile || exit 77
systemd=/lib/systemd/systemd
[ -x $systemd ] || systemd=/usr/lib/systemd/systemd

manager() { # starts it, with variables of its own
  env "$@" $systemd --user >/run/manager.log 2>&1 &
  for _ in $(seq 100); do
    case $(systemctl --user is-system-running 2>/dev/null) in running | degraded) return 0 ;; esac
    sleep 0.1
  done
  cat /run/manager.log
  exit 77
}
manager A=b

unit=$HOME/.config/systemd/user/toolsd.service
step() { echo "== $*"; }
has() { # what the last answer must hold
  case $answer in *"$1"*) ;; *)
    echo "no $1 in: $answer"
    exit 1
    ;;
  esac
}
run() { # expected exit code, then the command
  want=$1 && shift
  answer=$("$@" 2>&1)
  code=$?
  [ $code = "$want" ] || { echo "$*: exit $code, want $want: $answer"; exit 1; }
}
main_pid() { systemctl --user show toolsd -p MainPID --value; }

step "nothing is installed"
run 0 toolsd service status --json && has '"installed":false'
run 0 toolsd service uninstall --json && has '"changed":false'
run 4 toolsd service start --json && has not_found

step "install takes over from a daemon that a verb started"
run 0 toolsd start
run 0 toolsd service install --json && has '"changed":true' && has '"enabled":true' && has '"serves":true'
run 0 toolsd service install --json && has '"changed":false' && has '"serves":true'
run 0 toolsd status --no-start --json && has "\"pid\":$(main_pid)"
run 0 toolsd service status && has "the service's"
grep -q '^WantedBy=default.target$' "$unit" && grep -q '^ExecStart=/opt/bin/toolsd serve' "$unit" || { cat "$unit"; exit 1; }

step "a killed daemon comes back, and nothing of it stays"
mkdir -p .config/toolsd
echo '{"mcpServers":{"deaf":{"command":"sh","args":["-c","setsid sleep 7777 & exec sleep 7778"]}}}' >.config/toolsd/config.json
for _ in $(seq 100); do [ "$(ps -eo args | grep -c '^sleep 777')" = 2 ] && break; sleep 0.1; done
old=$(ps -eo pid,args | awk '/ sleep 777/ && !/awk/ {print $1}')
before=$(main_pid)
kill -9 "$before"
for _ in $(seq 80); do [ "$(main_pid)" != "$before" ] && [ "$(main_pid)" != 0 ] && break; sleep 0.1; done
for pid in $old; do [ -e /proc/$pid ] && { echo "process $pid of the killed daemon lives"; exit 1; }; done
for _ in $(seq 50); do toolsd status --no-start >/dev/null 2>&1 && break; sleep 0.1; done
run 0 toolsd service status --json && has '"serves":true'

step "asked to stop, it stays down; a verb's daemon and the service do not fight"
run 0 toolsd stop
run 0 toolsd service status --json && has '"running":false'
run 0 toolsd start
run 0 systemctl --user start toolsd # finds the lock taken
sleep 1.5
run 0 systemctl --user show toolsd -p NRestarts,ExecMainStatus && has NRestarts=0 && has ExecMainStatus=0
run 0 toolsd service status --json && has '"running":false' && has '"serves":false'
run 0 toolsd service start --json && has '"changed":true' && has '"serves":true'
run 0 toolsd service restart --json && has '"serves":true'
run 0 toolsd service stop --json && has '"running":false'

step "after a new login it runs by itself"
systemctl --user exit
for _ in $(seq 100); do systemctl --user is-system-running >/dev/null 2>&1 || break; sleep 0.1; done
manager A=b
for _ in $(seq 50); do toolsd status --no-start >/dev/null 2>&1 && break; sleep 0.1; done
run 0 toolsd service status --json && has '"serves":true'
run 0 toolsd service uninstall --json && has '"changed":true'
[ -z "$(find .config/systemd -type f -o -type l)" ] || { find .config/systemd; exit 1; }
run 3 toolsd status --no-start

step "names that hold everything"
export TOOLSD_DIR='/opt/home/a "q" %h $HOME {{y}} ü \x'
mkdir -p '/opt/dir {{x}} 100% $a' && cp /opt/bin/toolsd '/opt/dir {{x}} 100% $a/toolsd'
run 0 '/opt/dir {{x}} 100% $a/toolsd' service install --json && has '"serves":true'
[ -S "$TOOLSD_DIR/run/toolsd.sock" ] || exit 1
run 0 toolsd service install --json && has '"changed":true' && has '"serves":true' # another program
run 0 toolsd service uninstall
TOOLSD_DIR=$'/opt/home/x\nExecStartPre=/bin/touch /opt/evil' run 1 toolsd service install && has TOOLSD_DIR
[ ! -e "$unit" ] || exit 1

step "a step that fails leaves nothing, and nothing that is left blocks the next one"
export TOOLSD_DIR=/opt/home/bad
mkdir -p $TOOLSD_DIR/state/toolsd.lock # a daemon cannot start there
run 1 toolsd service install --json && has 'taken out again' && has toolsd.lock
[ ! -e "$unit" ] || exit 1
unset TOOLSD_DIR
mkdir -p "$(dirname "$unit")" && echo garbage >"$unit"
run 0 toolsd service install --json && has '"serves":true'
rm "$unit" # by hand
run 0 toolsd service uninstall --json && has '"changed":true'
run 0 toolsd service uninstall --json && has '"changed":false'
run 2 toolsd service install --user somebody
mount -t tmpfs tmpfs /tmp && cp /opt/bin/toolsd /tmp/toolsd && run 1 /tmp/toolsd service install && has 'do not stay'
umount /tmp

step "a manager that looks for units elsewhere"
systemctl --user exit
for _ in $(seq 100); do systemctl --user is-system-running >/dev/null 2>&1 || break; sleep 0.1; done
export XDG_CONFIG_HOME=/opt/xdg
manager XDG_CONFIG_HOME=/opt/xdg
run 0 toolsd service install --json && has '"serves":true'
run 0 toolsd service install --json && has '"changed":false'
run 0 toolsd service uninstall --json && has '"changed":true'
[ -z "$(find .config/systemd /opt/xdg/systemd -type f -o -type l)" ] || { find .config/systemd /opt/xdg/systemd; exit 1; }
echo "all done"
