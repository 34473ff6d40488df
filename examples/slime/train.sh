#!/bin/sh
# slime or miles, in its own checkout; labels are tasks as JSON text, or ids of the tasks in GRADUS_TASKS.
export GRADUS_URL=${GRADUS_URL:-http://127.0.0.1:8000} GRADUS_GRADER=${GRADUS_GRADER:-ocaml} GRADUS_DEADLINE_S=1800
exec python train.py --input-key prompt --label-key task \
  --custom-rm-path gradus.integrations.slime.reward "$@"
