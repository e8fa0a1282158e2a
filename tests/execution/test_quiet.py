"""What dask logs when a scheduler goes."""

import logging

from alpa_explore.execution.quiet import quiet_client


def test_contexts_may_overlap_and_leave_the_logger_as_it_was(caplog):
    logger = logging.getLogger("distributed.client")
    before = list(logger.filters), logger.level
    first, second = quiet_client(), quiet_client()
    first.__enter__()
    second.__enter__()
    logger.error("a traceback")
    first.__exit__(None, None, None)
    logger.error("a traceback")
    logger.critical("told")
    second.__exit__(None, None, None)
    assert [record.message for record in caplog.records] == ["told"]
    logger.error("another program's")
    assert caplog.messages == ["told", "another program's"]
    assert (list(logger.filters), logger.level) == before
