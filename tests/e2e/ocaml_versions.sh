#!/usr/bin/env bash
# Shows that the OCaml grader works with other versions of OCaml than the one of this machine. Not part of `make test`.
#
#   tests/e2e/ocaml_versions.sh /opt/ocaml-4.14.2 /opt/ocaml-5.3.0     prefixes of installed compilers; "" is PATH as it is
#
# A prefix has bin/ocamlc, bin/ocamlopt and compiler-libs (`./configure --prefix=... && make && make install`), and
# bin/ocamlfind for what needs packages (unix, str). It must not be under /tmp: boxes have a /tmp of their own.
# For each: the grader's proof of itself (the probe of the sandbox and the five cases), one `gradus grade`, the whole corpus
# of attacks, the tests of the grader, of both ways' agreement and of the attacks, and the public corpora without packages.
# Prints one line per step; fails if any step failed, or if a test was skipped. About 8 minutes each on two cores.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-$PWD/.venv/bin/python}
gradus=("$python" -m gradus)
failed=0

step() { # what, command ...
  local what=$1 said
  shift
  if said=$("$@" 2>&1); then
    printf '  %-32s ok    %s\n' "$what" "$(tail -n 1 <<<"$said")"
  else
    printf '  %-32s WRONG\n%s\n' "$what" "$(tail -n 30 <<<"$said")"
    failed=1
  fi
}

prove() {
  "$python" -c '
from services.graders.ocaml.grader import OcamlGrader
grader = OcamlGrader()
grader.self_test()
print(grader.info().grader, grader.toolchain.build.name)'
}

one_grade() {
  local line='{"id": "a", "completion": "let f x = x + 1", "task": {"signature": "val f : int -> int", "tests": "assert (f 2 = 3)"}}'
  "${gradus[@]}" grade ocaml - <<<"$line" |
    "$python" -c 'import json; r = json.loads(input()); print(r["toolchain"], r["reward"]); assert r["passed"]'
}

tests() { # a skipped test shows nothing
  "$python" -m pytest -q -rs -p no:cacheprovider "$@" | tee /dev/stderr | tail -n 1 | grep -qv skipped
}

for prefix in "$@"; do
  (
    [ -z "$prefix" ] || export PATH="$prefix/bin:$PATH"
    echo "OCaml $(ocamlc -version), $(command -v ocamlc)"
    step "proof of itself, five cases" prove
    step "one grade" one_grade
    step "attacks" "${gradus[@]}" attack ocaml
    step "tests of the grader" tests tests/contract/test_ocaml_grader.py
    step "both ways agree" tests tests/contract/test_warm_and_cold.py
    step "tests of attacks" tests tests/attack/test_ocaml_attacks.py
    step "corpora without packages" "$python" tests/e2e/ocaml_corpora.py --without-packages
    exit $failed
  ) || failed=1
done
exit $failed
