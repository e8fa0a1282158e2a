"""What dask logs when a scheduler goes, and while clusters of ours run."""

import io
import logging

import pytest

from alpa_explore.execution.client import quiet_client, quiet_cluster


@pytest.mark.parametrize(("quiet", "name"), [(quiet_client, "distributed.client"), (quiet_cluster, "distributed")])
def test_contexts_may_overlap_and_leave_the_logger_as_it_was(quiet, name, monkeypatch):
    logger, text = logging.getLogger(name), io.StringIO()
    handler = logging.StreamHandler(text)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    said = logging.getLogger("distributed.client" if quiet is quiet_client else "distributed.scheduler")
    before = list(logger.filters), logger.level, list(handler.filters), handler.level
    first, second = quiet(), quiet()
    first.__enter__()
    second.__enter__()
    said.error("a traceback")
    first.__exit__(None, None, None)
    said.error("a traceback")
    said.critical("told")
    second.__exit__(None, None, None)
    assert text.getvalue() == "told\n"
    said.error("another program's")
    assert text.getvalue() == "told\nanother program's\n"
    assert (list(logger.filters), logger.level, list(handler.filters), handler.level) == before
