"""benchmarks/mutations.py: its faults fit the sources, and the tests see those in files that have changed."""

import ast
import faulthandler
from collections import Counter

import pytest

from benchmarks import mutations

FAULTS = mutations.faults()
PACKAGES = sorted({fault.package for fault in FAULTS})


def test_every_fault_applies_once_to_the_sources_compiles_and_names_tests() -> None:
    assert len(FAULTS) > 90
    assert not [fault.breaks for fault in FAULTS if fault.old == fault.new]
    assert not [words for words, count in Counter(fault.breaks for fault in FAULTS).items() if count > 1]
    for fault in FAULTS:
        ast.parse(fault.applied((mutations.ROOT / fault.file).read_text(encoding="utf-8")), fault.file)
        assert all((mutations.ROOT / tests).exists() for tests in fault.tests), fault


def test_every_package_that_computes_has_a_fault() -> None:
    inside = {path.name for path in (mutations.ROOT / "alpa_explore").iterdir() if (path / "__init__.py").exists()}
    assert inside <= set(PACKAGES)


@pytest.mark.sweep(kept=0)
@pytest.mark.parametrize("package", PACKAGES)
def test_faults_in_files_that_changed_in_the_last_week_are_seen(package: str) -> None:
    faulthandler.cancel_dump_traceback_later()  # each fault has a limit of its own, and all of them take minutes
    changed = mutations.changed_files("")
    outcomes = mutations.try_all([f for f in FAULTS if f.package == package and f.file in changed])
    assert [outcome.fault.breaks for outcome in outcomes if not outcome.tier] == []
