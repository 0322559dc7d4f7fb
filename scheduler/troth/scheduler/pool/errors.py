"""What a node is told whose report is not taken."""

from __future__ import annotations

from troth.scheduler.errors import SchedulerError


class ReportRefused(SchedulerError):
    """Nothing was noted of the report."""

    code = "report_refused"
    status = 400


class ClassNotServed(ReportRefused):
    """This scheduler serves no such class."""

    code = "class_not_served"
    status = 404
