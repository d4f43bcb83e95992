#!/usr/bin/env bash
# From the models to the tables and figures; ./run_all.sh help shows every word. Nothing is installed before all
# of them are understood. Written for bash 3.2 (macOS), any current folder, a path with spaces.
me="$0"
while [ -h "$me" ]; do  # called by a symbolic link
  next="$(readlink -- "$me")"
  case "$next" in /*) me="$next" ;; *) me="$(dirname -- "$me")/$next" ;; esac
done
here="$(CDPATH='' cd -- "$(dirname -- "$me")" && pwd -P)" || exit 1
unset PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONINSPECT PYTHONHASHSEED
export CALLED_FROM="$PWD" PYTHONIOENCODING=:backslashreplace  # for terminals that lack a character

# Any Python from 3.8 on reads the words and finds the environment; the environment itself needs 3.11-3.14. With -I it
# imports its own library alone: nothing from this folder, from the user's, or that a variable names.
boot=""
for name in python3 python python3.14 python3.13 python3.12 python3.11; do
  if "$name" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then boot="$name"; break; fi
done
if [ -z "$boot" ] && command -v uv >/dev/null 2>&1; then
  uv python find 3.12 >/dev/null 2>&1 || uv python install 3.12
  boot="$(uv python find 3.12)"
fi
if [ -z "$boot" ]; then
  echo "run_all.sh: no Python was found; install Python 3.11 to 3.14, or uv" >&2
  exit 1
fi

verb="$("$boot" -I "$here/workflow/cli.py" "$@")" || exit $?
case "$verb" in ./run_all.sh*) printf '%s\n' "$verb"; exit 0 ;; esac

if [ "$verb" = archive ]; then  # the last commit: the same bytes whenever the same git and gzip make it
  cd -- "$here" || exit 1
  changed="$(git ls-files --error-unmatch run_all.sh >/dev/null 2>&1 && git status --porcelain)" ||
    { echo "run_all.sh: an archive is made of the last commit: it needs git, and a clone of the project" >&2; exit 2; }
  [ -z "$changed" ] ||
    { echo "run_all.sh: an archive is made of the last commit: commit what 'git status' lists, or set it aside" >&2; exit 2; }
  name="$(sed -n '/^dependencies/q; s/^name = "\(.*\)"$/\1/p; s/^version = "\(.*\)"$/\1/p' pyproject.toml | paste -s -d - -)"
  set -o pipefail; mkdir -p artifacts
  file="artifacts/$name.tar.gz"
  git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -n >"$file.partial" || exit 1
  mv -- "$file.partial" "$file" || exit 1
  digest="import hashlib; print(hashlib.sha256(open('$file', 'rb').read()).hexdigest())"
  echo "$file: sha256 $("$boot" -I -c "$digest"); unpacked, ./run_all.sh replay makes its tables and figures"
  exit 0
fi
python="$("$boot" -I "$here/workflow/environment.py" "$verb")" || exit $?
export PYTHONPATH="$here"

if [ "$verb" = lab ]; then
  first="$(cd -- "$here" && "$python" -m workflow.lab "$@")" || exit $?
fi
if [ "$verb" = lab ] || [ "$verb" = test ]; then  # what follows -- is theirs
  while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
  [ $# -gt 0 ] && shift
fi
case "$verb" in
  lab)
    [ "$(id -u)" = 0 ] && set -- --allow-root "$@"
    export JUPYTER_PREFER_ENV_PATH=1 JUPYTER_CONFIG_PATH="$here/notebooks/.jupyter"  # which asks about no news
    cd -- "$here" && exec "$python" -m jupyterlab --LabApp.default_url="/lab/tree/$first" "$@"
    ;;
  test)
    cd -- "$here" && "$python" -m ruff check . && "$python" -m ruff format --check --quiet . && "$python" -m mypy && exec "$python" -m pytest "$@"
    ;;
  *)
    cd -- "$here" && exec "$python" -m workflow.run "$@"
    ;;
esac
