"""Every verified OCaml record of the corpora beside the checkout: its reference gets full marks,
its stub does not."""

from __future__ import annotations

import pytest

from services.graders.ocaml.grader import OcamlGrader
from tests.e2e.ocaml_corpora import CORPORA, DATA, grade_all, missing_packages, records, wrong


@pytest.mark.slow
def test_references_get_full_marks_and_stubs_do_not(ocaml_grader: OcamlGrader) -> None:
    absent = [name for name in CORPORA if not (DATA / name).exists()]
    if absent:
        pytest.skip(f"the corpora are not beside this checkout: {', '.join(absent)}")
    if missing := missing_packages():
        pytest.skip(f"the corpora need OCaml packages: apt-get install {' '.join(missing)}")
    results = grade_all(ocaml_grader)
    assert len(results) == 2 * len(list(records())) > 100
    found = [wrong(which, result, record) for record, which, result in results]
    assert list(filter(None, found)) == []
