#!/bin/sh
# The last step of a grader's image build: its own cases, and the attacks on its own boxes, as its worker runs them at
# every start. An image that fails them is not made.
#
# usage: self_test.sh GRADER required|auto
# Boxes need namespaces, and not every builder lets a build step make them: podman and buildah do, BuildKit does not by
# default. `required` fails there. `auto` says that nothing was tested and continues: the worker tests itself at every
# start and serves nothing before it has passed.
set -eu
grader=$1 mode=$2
case $mode in required | auto) ;; *) echo "self_test.sh: SELF_TEST is required or auto, not '$mode'" >&2; exit 2 ;; esac

if ! said=$(unshare --user --map-root-user --mount --pid --fork true 2>&1); then
  echo "NOT PROVEN HERE: this builder lets a build step make no namespaces ($said)." >&2
  echo "The $grader worker tests itself when it starts. SELF_TEST=required and podman build test it now." >&2
  [ "$mode" = auto ]
  exit
fi
# required of the container that it runs in; a build step has other protections
unset GRADUS_REQUIRE_HARDENING
exec python -c '
import sys
from services.graders.base import load
grader = load(sys.argv[1])
grader.self_test()
if sys.argv[1] == "program":
    for name in grader.languages:
        grader.get_language(name)
    print("languages that run their examples:", *grader.languages)
print(sys.argv[1], "holds: own cases graded as expected, every attack on its boxes failed")' "$grader"
