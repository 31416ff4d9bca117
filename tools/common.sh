# Shared by ./check, ./demo and the scripts of tools/; source it from the root of the repository.

say() { printf '%s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The heading of a stage, with the time since the start of the script: "== 1:05 Build".
stage() { printf '\n== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

# Options of a quick build. Files are compiled eight at a time: half of a compilation is the standard
# library's headers, again and again.
unity='-Dunity=on -Dunity_size=8'

# configure DIR OPTIONS...: a build directory, new or as it was left by an earlier or interrupted run.
# Prints Meson's summary; the whole log is in DIR.log.
configure() {
  local dir=$1 log=$1.log
  shift
  mkdir -p "$(dirname "$dir")"
  if ! { [ -f "$dir/build.ninja" ] && "$meson" setup --reconfigure "$dir" "$@" > "$log" 2>&1; }; then
    rm -rf "$dir"
    if ! "$meson" setup "$dir" "$@" > "$log" 2>&1; then
      cat "$log" >&2
      return 1
    fi
  fi
  sed -n '/^treering [0-9]/,$p' "$log" | grep -v '^$' || true
}

# quieter [N]: where the output is not a terminal, of ninja's "[12/80] Compiling" lines each Nth (20th), and
# all others.
quieter() {
  if [ -t 1 ]; then
    cat
  else
    awk -v "every=${1:-20}" '/^\[[0-9]+\/[0-9]+\] / { if (n++ % every) next } { print; fflush() }'
  fi
}

# Under sudo in a user's checkout, only apt-get needs root: the rest is done as that user, so that no
# file of the tree becomes root's.
leave_root() {
  if [ "$(id -u)" = 0 ] && [ "${SUDO_UID:-0}" != 0 ] && [ "$(stat -c %u .)" = "$SUDO_UID" ]; then
    exec sudo -H -u "#$SUDO_UID" -- "$@"
  fi
}
